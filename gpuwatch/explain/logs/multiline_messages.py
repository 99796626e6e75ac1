"""Log units of several lines: a colocation report, a wrapped mapping, a card's description, an nvidia-smi table.

Layouts of nvidia-smi: drivers up to 450 (no columns for MIG instances), later ones, and later ones with a table of MIG
devices, whose rows are not cards, between cards and processes.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from gpuwatch.core.model.run import DeviceMapping
from gpuwatch.explain.logs import tensorflow_device_lines
from gpuwatch.explain.logs.log_facts import LogFacts, LoggedGpu, SmiProcess
from gpuwatch.explain.logs.op_placement_lines import ColocationReader
from gpuwatch.explain.logs.sizes_and_device_names import pci_address

MAX_LIST_ENTRIES = 64
_FOLDED_LINES = 4
_RANGE = re.compile(r"\(\d{1,2}\.\d\) - \(\d{1,2}\.\d\)")
_CARD_LINES = 6
MAX_TABLE_LINES = 400
_MIB = 1 << 20
_QUOTES = " \t>#|`"

_VERSIONS = re.compile(r"NVIDIA-SMI [\d.]{1,24}.{1,60}?Driver Version: ([\d.]{1,24})")
_CARD = re.compile(r"\|\s{1,6}\d{1,3}\s{1,4}(\S.{0,60}?)\s{1,30}(?:On|Off|N/A)\s*\|\s*([0-9A-Fa-f:.]{7,20})\s")
_MEMORY = re.compile(r"\|\s*(\d{1,8})MiB\s*/\s*(\d{1,8})MiB\s*\|")
_PROCESS = re.compile(
    r"\|\s{1,6}(\d{1,3})\s{1,6}(?:\S{1,4}\s{1,6}\S{1,4}\s{1,12})?(\d{1,9})\s{1,8}([CGM+]{1,3})\s{1,4}"
    r"(\S.{0,80}?)\s{1,60}(?:(\d{1,8})MiB|N/A)\s*\|"
)


def version_of_table(line: str) -> str | None:
    """The driver's version, if nvidia-smi's output begins with this line."""
    match = _VERSIONS.search(line)
    return match[1] if match else None


class SmiReader:
    """Takes the lines of one output of nvidia-smi: the cards with their memory, and the processes."""

    def __init__(self) -> None:
        self.cards: list[LoggedGpu] = []
        self.processes: list[SmiProcess] = []
        self._lines = 0
        self._card: LoggedGpu | None = None

    def take(self, raw: str) -> bool:
        """Takes a line, which may be quoted; False if it does not belong to the table."""
        self._lines += 1
        at = next((i for i in (raw.find("|"), raw.find("+-")) if i >= 0), -1)
        if self._lines > MAX_TABLE_LINES or (at < 0 and raw.strip(_QUOTES)) or at > 60:
            return False
        line = raw[at:] if at >= 0 else ""
        if match := _PROCESS.match(line):
            held = int(match[5]) * _MIB if match[5] else None
            self.processes.append(
                SmiProcess(gpu=int(match[1]), pid=int(match[2]), type=match[3], name=match[4].strip(), held_bytes=held)
            )
        elif match := _CARD.match(line):
            self._card = LoggedGpu(name=match[1].strip(), pci_bus_id=pci_address(match[2]))
        elif self._card is not None and (match := _MEMORY.search(line)):
            used, total = int(match[1]) * _MIB, int(match[2]) * _MIB
            self.cards.append(replace(self._card, total_bytes=total, free_bytes=max(total - used, 0)))
            self._card = None
        return True


class OpenUnits:
    """At most one unit of each kind; complete ones go into the facts."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self.open = False
        """Whether any unit is open: one check for each line instead of four."""
        self.colocation: ColocationReader | None = None
        self._folded: list[str] = []
        self._card: LoggedGpu | None = None
        self._card_lines = 0
        self._table: SmiReader | None = None
        self._range = False

    def begin_colocation(self, *, failed: bool) -> None:
        """``Colocation Debug Info:`` was read; a report that is already open continues."""
        if self.colocation is None:
            self.colocation, self.open = ColocationReader(failed=failed), True

    def begin_folded(self, message: str) -> None:
        """A mapping line was read that continues on the next lines."""
        self._folded, self.open = [message], True

    def begin_card(self, message: str) -> None:
        """``Found device 0 with properties:`` was read; the properties follow."""
        self._card, self._card_lines, self.open = tensorflow_device_lines.described(message, LoggedGpu()), 0, True

    def begin_table(self) -> None:
        """The head of nvidia-smi's output was read."""
        self._end_table()
        self._table, self.open = SmiReader(), True

    def begin_range(self) -> None:
        """``capability supported by this version of PyTorch is`` was read; the range is on the next line."""
        self._range, self.open = True, True

    def is_range(self, line: str) -> bool:
        """Whether this line is the range that was announced: ``(7.5) - (12.0)``."""
        announced, self._range = self._range, False
        if announced:
            self._look()
        return announced and _RANGE.fullmatch(line.strip()) is not None

    def row(self, raw: str) -> bool:
        """Takes a line of nvidia-smi's tables; False if none is open, or this line ends it."""
        if self._table is None:
            return False
        if not (within := self._table.take(raw)):
            self._end_table()
            self._look()
        return within

    def member(self, line: str) -> bool:
        """Takes a line of the colocation report; False if none is open, or this line ends it."""
        if self.colocation is None:
            return False
        if not (within := self.colocation.take(line)):
            self._end_colocation()
            self._look()
        return within

    def rest_of_mapping(self, line: str) -> tuple[DeviceMapping, str] | None:
        """The mapping that this line completes, and its whole text."""
        if not self._folded:
            return None
        self._folded.append(line)
        joined = " ".join(self._folded)
        found = tensorflow_device_lines.mapping(joined)
        if found is not None or len(self._folded) > _FOLDED_LINES:
            if found is not None:
                self._folded.clear()
            self._end_folded()
            self._look()
        return None if found is None else (found, joined)

    def property_of_card(self, line: str) -> None:
        """Takes a line that may belong to a card's description."""
        if self._card is None:
            return
        self._card_lines += 1
        if self._card_lines > _CARD_LINES:
            self._end_card()
            self._look()
        elif "emory" in line or "pciBusID" in line or "name: " in line:
            self._card = tensorflow_device_lines.described(line, self._card)

    def end(self) -> None:
        """Closes all units: a C++ line begins something else, or the log has ended."""
        if self.open:
            self._end_colocation()
            self._end_folded()
            self._end_card()
            self._end_table()
            self._range = False
            self.open = False

    def _look(self) -> None:
        self.open = bool(self.colocation or self._folded or self._card or self._table or self._range)

    def _end_colocation(self) -> None:
        reader, self.colocation = self.colocation, None
        if reader is None:
            return
        report = reader.result()
        known = self._facts.colocations
        if (report.members or report.requested) and report not in known and len(known) < MAX_LIST_ENTRIES:
            known.append(report)

    def _end_folded(self) -> None:
        """Takes device and memory from a mapping line that was never completed."""
        folded, self._folded = self._folded, []
        begun = tensorflow_device_lines.begun_mapping(" ".join(folded)) if folded else None
        known = self._facts.device_map
        if begun is None or len(known) >= MAX_LIST_ENTRIES:
            return
        if all(entry.framework_device != begun.framework_device for entry in known):
            known.append(begun)
            self._facts.note("device.mapped", folded[0])

    def _end_card(self) -> None:
        card, self._card = self._card, None
        known = self._facts.cards
        if card is not None and card != LoggedGpu() and card not in known and len(known) < MAX_LIST_ENTRIES:
            known.append(card)

    def _end_table(self) -> None:
        table, self._table = self._table, None
        if table is None:
            return
        for card in table.cards:
            others = [entry for entry in self._facts.cards if entry.pci_bus_id != card.pci_bus_id]
            if len(others) < MAX_LIST_ENTRIES:
                self._facts.cards = [*others, card]
        if table.processes:
            self._facts.smi_processes = table.processes[:MAX_LIST_ENTRIES]

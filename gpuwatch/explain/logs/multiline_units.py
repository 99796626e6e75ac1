"""Log units of several lines: a colocation report, a wrapped mapping, a card's description, an nvidia-smi table."""

from __future__ import annotations

import re

from gpuwatch.core.model.run import DeviceMapping
from gpuwatch.explain.logs import tensorflow_device_lines
from gpuwatch.explain.logs.log_facts import LogFacts, SeenCard
from gpuwatch.explain.logs.nvidia_smi import SmiReader
from gpuwatch.explain.logs.op_placement_lines import ColocationReader

MAX_LIST_ENTRIES = 64
_FOLDED_LINES = 4
_RANGE = re.compile(r"\(\d{1,2}\.\d\) - \(\d{1,2}\.\d\)")
_CARD_LINES = 6


class OpenUnits:
    """At most one unit of each kind; complete ones go into the facts."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self.open = False
        """Whether any unit is open: one check for each line instead of four."""
        self.colocation: ColocationReader | None = None
        self._folded: list[str] = []
        self._card: SeenCard | None = None
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
        self._card, self._card_lines, self.open = tensorflow_device_lines.described(message, SeenCard()), 0, True

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
        if self._table.take(raw):
            return True
        self._end_table()
        self._look()
        return False

    def member(self, line: str) -> bool:
        """Takes a line of the colocation report; False if none is open, or this line ends it."""
        if self.colocation is None:
            return False
        if self.colocation.take(line):
            return True
        self._end_colocation()
        self._look()
        return False

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
        elif tensorflow_device_lines.describes_card(line):
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
        if card is not None and card != SeenCard() and card not in known and len(known) < MAX_LIST_ENTRIES:
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

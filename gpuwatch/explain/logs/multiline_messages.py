"""Messages of several lines that are being read: colocation reports, wrapped mappings, GPU descriptions, tables."""

from __future__ import annotations

import re

from gpuwatch.core.model.run import DeviceMapping
from gpuwatch.explain.logs.log_facts import LogFacts, LoggedGpu
from gpuwatch.explain.logs.nvidia_tool_output import SmiTableReader
from gpuwatch.explain.logs.op_placement_lines import ColocationReader
from gpuwatch.explain.logs.tensorflow_device_lines import add_gpu_properties, parse_cut_mapping, parse_mapping

MAX_LIST_ENTRIES = 64
_MAX_MAPPING_LINES = 4
_CAPABILITY_RANGE = re.compile(r"\(\d{1,2}\.\d\) - \(\d{1,2}\.\d\)")
_MAX_GPU_LINES = 6


class OpenMessages:
    """At most one message of each kind; complete ones go into the facts."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self.open = False
        """Whether any message is open: one check for each line instead of four."""
        self.colocation: ColocationReader | None = None
        self._wrapped_mapping: list[str] = []
        self._gpu: LoggedGpu | None = None
        self._gpu_lines = 0
        self._table: SmiTableReader | None = None
        self._range_follows = False

    def begin_colocation(self, *, failed: bool) -> None:
        """``Colocation Debug Info:`` was read; a report that is already open continues."""
        if self.colocation is None:
            self.colocation, self.open = ColocationReader(failed=failed), True

    def begin_wrapped_mapping(self, message: str) -> None:
        """A mapping line was read that continues on the next lines."""
        self._wrapped_mapping, self.open = [message], True

    def begin_gpu_description(self, message: str) -> None:
        """``Found device 0 with properties:`` was read; the properties follow."""
        self._gpu, self._gpu_lines, self.open = add_gpu_properties(message, LoggedGpu()), 0, True

    def begin_table(self) -> None:
        """The head of nvidia-smi's output was read."""
        self._end_table()
        self._table, self.open = SmiTableReader(), True

    def begin_capability_range(self) -> None:
        """``capability supported by this version of PyTorch is`` was read; the range is on the next line."""
        self._range_follows, self.open = True, True

    def is_capability_range(self, line: str) -> bool:
        """Whether this line is the range that the line before announced: ``(7.5) - (12.0)``."""
        expected, self._range_follows = self._range_follows, False
        if expected:
            self._update_open()
        return expected and _CAPABILITY_RANGE.fullmatch(line.strip()) is not None

    def take_table_line(self, raw: str) -> bool:
        """Takes a line of nvidia-smi's tables; False if none is open, or this line ends it."""
        if self._table is None:
            return False
        if not (within := self._table.take(raw)):
            self._end_table()
            self._update_open()
        return within

    def take_colocation_line(self, line: str) -> bool:
        """Takes a line of the colocation report; False if none is open, or this line ends it."""
        if self.colocation is None:
            return False
        if not (within := self.colocation.take(line)):
            self._end_colocation()
            self._update_open()
        return within

    def complete_mapping(self, line: str) -> tuple[DeviceMapping, str] | None:
        """The mapping that this line completes, and its whole text."""
        if not self._wrapped_mapping:
            return None
        self._wrapped_mapping.append(line)
        joined = " ".join(self._wrapped_mapping)
        found = parse_mapping(joined)
        if found is not None or len(self._wrapped_mapping) > _MAX_MAPPING_LINES:
            if found is not None:
                self._wrapped_mapping.clear()
            self._end_wrapped_mapping()
            self._update_open()
        return None if found is None else (found, joined)

    def take_gpu_property(self, line: str) -> None:
        """Takes a line that may belong to a card's description."""
        if self._gpu is None:
            return
        self._gpu_lines += 1
        if self._gpu_lines > _MAX_GPU_LINES:
            self._end_gpu_description()
            self._update_open()
        elif "emory" in line or "pciBusID" in line or "name: " in line:
            self._gpu = add_gpu_properties(line, self._gpu)

    def close_all(self) -> None:
        """Closes all messages: a C++ line begins something else, or the log has ended."""
        if self.open:
            self._end_colocation()
            self._end_wrapped_mapping()
            self._end_gpu_description()
            self._end_table()
            self._range_follows = False
            self.open = False

    def _update_open(self) -> None:
        self.open = bool(self.colocation or self._wrapped_mapping or self._gpu or self._table or self._range_follows)

    def _end_colocation(self) -> None:
        reader, self.colocation = self.colocation, None
        if reader is None:
            return
        report = reader.result()
        known = self._facts.colocations
        if (report.members or report.requested) and report not in known and len(known) < MAX_LIST_ENTRIES:
            known.append(report)

    def _end_wrapped_mapping(self) -> None:
        """Takes device and memory from a mapping line that was never completed."""
        wrapped, self._wrapped_mapping = self._wrapped_mapping, []
        begun = parse_cut_mapping(" ".join(wrapped)) if wrapped else None
        known = self._facts.device_map
        if begun is None or len(known) >= MAX_LIST_ENTRIES:
            return
        if all(entry.framework_device != begun.framework_device for entry in known):
            known.append(begun)
            self._facts.note("device.mapped", wrapped[0])

    def _end_gpu_description(self) -> None:
        gpu, self._gpu = self._gpu, None
        known = self._facts.gpus
        if gpu is not None and gpu != LoggedGpu() and gpu not in known and len(known) < MAX_LIST_ENTRIES:
            known.append(gpu)

    def _end_table(self) -> None:
        table, self._table = self._table, None
        if table is None:
            return
        for gpu in table.gpus:
            others = [entry for entry in self._facts.gpus if entry.pci_bus_id != gpu.pci_bus_id]
            if len(others) < MAX_LIST_ENTRIES:
                self._facts.gpus = [*others, gpu]
        if table.processes:
            self._facts.smi_processes = table.processes[:MAX_LIST_ENTRIES]

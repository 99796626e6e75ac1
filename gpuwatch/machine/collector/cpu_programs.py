"""Processes that use the CPU while others use the GPUs: workers of GPU processes, and framework programs on no GPU.

Read every ten seconds: the CPU clock of every process of the host, one small file of those that have run, and more
only of the few that keep a core busy.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from gpuwatch.core.formatting.command_lines import is_own_command
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Process
from gpuwatch.machine.collector.process_rows import host_process
from gpuwatch.machine.sources.process_table import ProcessFacts, ProcessTable, cpu_clock
from gpuwatch.machine.sources.procfs import TICKS, lineage, parent, pids, process_stat

POLL_SECONDS = 10.0
_MIN_BUSY_PERCENT = 30.0
"""Percent of one core since the clocks were last read, from which a process counts as busy."""
_MIN_STILL_BUSY_PERCENT = 5.0
"""The same for one that was busy before, so that it does not come and go."""
_MIN_WORKER_PERCENT = 1.0
"""Percent of one core from which a descendant counts as a worker."""
_MAX_PROGRAMS = 8
_NO_GPU_USED = Missing("not_supported", detail="the process uses no GPU")


class CpuPrograms:
    """Compares CPU clocks over ten seconds; ``table`` has the other facts. Unchanged rows stay the same objects."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._updated_at = float("-inf")
        self._cpu_seconds: dict[int, float] = {}
        self._parents: dict[int, int] = {}
        self._cuda: dict[tuple[int, int], bool] = {}
        self.workers: dict[int, float] = {}
        """CPU percent of all descendants together, by pid of the GPU process."""
        self.bystanders: tuple[Process, ...] = ()
        """Busy programs with a GPU framework that use no GPU."""
        self._with_workers: dict[object, tuple[Process, Process]] = {}
        """By process with workers: its row without and with their CPU percent."""
        self.pids: set[int] = set()
        """The processes of which ``table`` must keep what it knows."""

    def rows(self, now: float, processes: list[Process]) -> tuple[Process, ...]:
        """The bystanders; puts the CPU of their workers into ``processes``, those on GPUs. ``now`` is monotonic."""
        self.update(now, {process.pid for process in processes})
        kept: dict[object, tuple[Process, Process]] = {}
        for number, process in enumerate(processes if self.workers else ()):
            cpu_percent = self.workers.get(process.pid)
            if cpu_percent is None:
                continue
            known = self._with_workers.get(process.key)
            if known is None or known[0] is not process or known[1].workers_cpu_percent != cpu_percent:
                known = (process, replace(process, workers_cpu_percent=cpu_percent))
            kept[process.key] = known
            processes[number] = known[1]
        self._with_workers = kept
        return self.bystanders

    def update(self, now: float, on_gpus: set[int]) -> bool:
        """Reads the clocks when that is due; True if it did. ``on_gpus``: pids that use a GPU; ``now`` is monotonic."""
        if now - self._updated_at < POLL_SECONDS:
            return False
        seconds, self._updated_at = now - self._updated_at, now
        before, self._cpu_seconds = self._cpu_seconds, {}
        self._parents = {}
        self.workers = {}
        busy: list[tuple[float, int]] = []
        known = {bystander.pid for bystander in self.bystanders}
        for pid in pids():
            cpu_seconds = self._read_cpu_seconds(pid)
            if cpu_seconds is None:
                continue
            self._cpu_seconds[pid] = cpu_seconds
            cpu_percent = (cpu_seconds - before.get(pid, cpu_seconds)) / seconds * 100
            if cpu_percent < _MIN_WORKER_PERCENT or pid in on_gpus:
                continue
            owner = next((above for above in lineage(pid, self._parent_of) if above in on_gpus), None)
            if owner is not None:
                self.workers[owner] = round(self.workers.get(owner, 0.0) + cpu_percent, 1)
            elif cpu_percent >= (_MIN_STILL_BUSY_PERCENT if pid in known else _MIN_BUSY_PERCENT) and pid != os.getpid():
                busy.append((-cpu_percent, pid))
        busy.sort()
        self._find_bystanders(busy[:_MAX_PROGRAMS], now)
        return True

    def _find_bystanders(self, busy: list[tuple[float, int]], now: float) -> None:
        found = []
        self.pids = {pid for _, pid in busy}
        for cpu_percent, pid in busy:
            facts = self._table.facts_of(pid, now)
            if facts is not None and facts.framework is not None and not is_own_command(facts.command):
                found.append(_program_row(facts, -cpu_percent, self._loads_cuda(facts)))
        self._cuda = {key: loaded for key, loaded in self._cuda.items() if key[0] in self.pids}
        self.bystanders = tuple(found)

    def _loads_cuda(self, facts: ProcessFacts) -> bool | None:
        """Whether libcuda is mapped; a library that was loaded once stays mapped."""
        key = (facts.pid, facts.start_ticks)
        if not self._cuda.get(key):
            try:
                with open(f"/proc/{facts.pid}/maps", "rb") as file:
                    self._cuda[key] = any(b"/libcuda.so" in line for line in file)
            except OSError:
                return None
        return self._cuda[key]

    def _read_cpu_seconds(self, pid: int) -> float | None:
        """CPU seconds of a process, all threads together; None when it has exited."""
        clock = cpu_clock(pid)
        if clock is not None:
            return clock / 1e9
        stat = process_stat(pid)
        return None if stat is None else stat.cpu_ticks / TICKS

    def _parent_of(self, pid: int) -> int:
        if pid not in self._parents:
            self._parents[pid] = parent(pid)
        return self._parents[pid]


def _program_row(facts: ProcessFacts, cpu_percent: float, cuda_loaded: bool | None) -> Process:
    process = host_process(facts)
    missing = {
        name: why_missing if name in process.readings or why_missing.reason != "not_supported" else _NO_GPU_USED
        for name, why_missing in process.missing.items()
        if name != "cpu_percent"
    }
    readings = {**process.readings, "cpu_percent": cpu_percent}
    return replace(process, readings=readings, missing=missing, state=facts.state, cuda_loaded=cuda_loaded)

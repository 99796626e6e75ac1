"""Processes that use the CPU while others use the GPUs: workers of GPU processes, and framework programs on no GPU.

Read every ten seconds: the CPU clock of every process of the host, one small file of those that have run, and more
only of the few that keep a core busy.
"""

from __future__ import annotations

import os

from msgspec.structs import replace

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.own_processes import is_own_command
from gpuwatch.machine.collector.process_rows import host_process
from gpuwatch.machine.sources.process_table import ProcessFacts, ProcessTable, cpu_clock
from gpuwatch.machine.sources.procfs import TICKS, lineage, parent, pids, process_stat

POLL_SECONDS = 10.0
_MIN_BUSY_PERCENT = 30.0
"""Percent of one core since the previous look, from which a process counts as busy."""
_MIN_STILL_BUSY_PERCENT = 5.0
"""The same for one that was busy before, so that it does not come and go."""
_MIN_WORKER_PERCENT = 1.0
"""Percent of one core from which a descendant counts as a worker."""
_MAX_PROGRAMS = 8
_NOT_THERE = Missing("not_supported", detail="the process uses no GPU")


class CpuPrograms:
    """Compares CPU clocks between two looks; ``table`` has the rest. Unchanged rows stay the same."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._at = float("-inf")
        self._spent: dict[int, float] = {}
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
            cpu = self.workers.get(process.pid)
            if cpu is None:
                continue
            known = self._with_workers.get(process.key)
            if known is None or known[0] is not process or known[1].workers_cpu_percent != cpu:
                known = (process, replace(process, workers_cpu_percent=cpu))
            kept[process.key] = known
            processes[number] = known[1]
        self._with_workers = kept
        return self.bystanders

    def update(self, now: float, on_gpus: set[int]) -> bool:
        """Looks again when that is due; True if it did. ``on_gpus``: pids that use a GPU; ``now`` is monotonic."""
        if now - self._at < POLL_SECONDS:
            return False
        lasted, self._at = now - self._at, now
        before, self._spent = self._spent, {}
        self._parents = {}
        self.workers = {}
        busy: list[tuple[float, int]] = []
        known = {bystander.pid for bystander in self.bystanders}
        for pid in pids():
            spent = self._cpu(pid)
            if spent is None:
                continue
            self._spent[pid] = spent
            cpu = (spent - before.get(pid, spent)) / lasted * 100
            if cpu < _MIN_WORKER_PERCENT or pid in on_gpus:
                continue
            owner = next((above for above in lineage(pid, self._parent) if above in on_gpus), None)
            if owner is not None:
                self.workers[owner] = round(self.workers.get(owner, 0.0) + cpu, 1)
            elif cpu >= (_MIN_STILL_BUSY_PERCENT if pid in known else _MIN_BUSY_PERCENT) and pid != os.getpid():
                busy.append((-cpu, pid))
        busy.sort()
        self._judge(busy[:_MAX_PROGRAMS], now)
        return True

    def _judge(self, busy: list[tuple[float, int]], now: float) -> None:
        found = []
        self.pids = {pid for _, pid in busy}
        for cpu, pid in busy:
            facts = self._table.facts_of(pid, now)
            if facts is not None and facts.framework is not None and not is_own_command(facts.command):
                found.append(_program_row(facts, -cpu, self._loads_cuda(facts)))
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

    def _cpu(self, pid: int) -> float | None:
        """CPU seconds of a process, all threads together; None when it has exited."""
        clock = cpu_clock(pid)
        if clock is not None:
            return clock / 1e9
        stat = process_stat(pid)
        return None if stat is None else stat.cpu_ticks / TICKS

    def _parent(self, pid: int) -> int:
        if pid not in self._parents:
            self._parents[pid] = parent(pid)
        return self._parents[pid]


def _program_row(facts: ProcessFacts, cpu: float, cuda_loaded: bool | None) -> Process:
    process = host_process(facts)
    missing = {
        name: lack if name in process.readings or lack.reason != "not_supported" else _NOT_THERE
        for name, lack in process.missing.items()
        if name != "cpu_percent"
    }
    readings = {**process.readings, "cpu_percent": cpu}
    return replace(process, readings=readings, missing=missing, state=facts.state, cuda_loaded=cuda_loaded)

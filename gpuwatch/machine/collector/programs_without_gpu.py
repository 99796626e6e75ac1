"""Rows of framework programs that use no GPU, and the CPU time of workers in the rows of GPU processes."""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Process
from gpuwatch.machine.collector.rows import host_process
from gpuwatch.machine.sources.cpu_programs import Bystander, CpuPrograms
from gpuwatch.machine.sources.host import ProcessTable

_NOT_THERE = Missing("not_supported", detail="the process uses no GPU")


class Bystanders:
    """Makes the rows; an unchanged row stays the same object."""

    def __init__(self, table: ProcessTable) -> None:
        self._programs = CpuPrograms(table)
        self._bystanders: tuple[Process, ...] = ()
        self._rows: dict[object, tuple[Process, Process]] = {}
        """By process with workers: its row without and with their CPU percent."""

    @property
    def pids(self) -> set[int]:
        """Processes whose facts the table must keep."""
        return self._programs.pids

    def look(self, now: float, processes: list[Process]) -> tuple[Process, ...]:
        """The bystanders; puts the CPU of their workers into ``processes``. ``now`` is monotonic."""
        if self._programs.look(now, {process.pid for process in processes}):
            self._bystanders = tuple(_row(bystander) for bystander in self._programs.bystanders)
        kept: dict[object, tuple[Process, Process]] = {}
        if self._programs.workers:
            for number, process in enumerate(processes):
                cpu = self._programs.workers.get(process.pid)
                if cpu is None:
                    continue
                known = self._rows.get(process.key)
                if known is None or known[0] is not process or known[1].workers_cpu_percent != cpu:
                    known = (process, msgspec.structs.replace(process, workers_cpu_percent=cpu))
                kept[process.key] = known
                processes[number] = known[1]
        self._rows = kept
        return self._bystanders


def _row(bystander: Bystander) -> Process:
    process = host_process(bystander.facts)
    missing = {
        name: lack if name in process.readings or lack.reason != "not_supported" else _NOT_THERE
        for name, lack in process.missing.items()
        if name != "cpu_percent"
    }
    return msgspec.structs.replace(
        process,
        readings={**process.readings, "cpu_percent": bystander.cpu_percent},
        missing=missing,
        state=bystander.facts.state,
        cuda_loaded=bystander.cuda_loaded,
    )

"""Rows of the programs beside the GPUs, and what workers add to the rows of those on them."""

from __future__ import annotations

import msgspec

from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import Process
from gpuwatch.monitor.rows import host_process
from gpuwatch.sources.around import Around, Bystander
from gpuwatch.sources.host import ProcessTable

_NOT_THERE = Missing("not_supported", detail="the process is on no GPU")


class Beside:
    """Keeps rows as they are until something is seen anew: what has not changed stays the same object."""

    def __init__(self, table: ProcessTable) -> None:
        self._around = Around(table)
        self._bystanders: tuple[Process, ...] = ()
        self._rows: dict[object, tuple[Process, Process]] = {}
        """Of each process with workers: its row as it came, and with their CPU."""

    @property
    def pids(self) -> set[int]:
        """Processes of which the table must keep what it knows."""
        return self._around.pids

    def look(self, now: float, at: float, processes: list[Process]) -> tuple[Process, ...]:
        """The bystanders; puts the CPU of their workers into ``processes``.

        ``now`` is monotonic, ``at`` is in seconds since the epoch.
        """
        if self._around.look(now, {process.pid for process in processes}):
            self._bystanders = tuple(_row(one, at) for one in self._around.bystanders)
        kept: dict[object, tuple[Process, Process]] = {}
        if self._around.workers:
            for number, process in enumerate(processes):
                cpu = self._around.workers.get(process.pid)
                if cpu is None:
                    continue
                known = self._rows.get(process.key)
                if known is None or known[0] is not process or known[1].workers_cpu_percent != cpu:
                    known = (process, msgspec.structs.replace(process, workers_cpu_percent=cpu))
                kept[process.key] = known
                processes[number] = known[1]
        self._rows = kept
        return self._bystanders


def _row(one: Bystander, at: float) -> Process:
    process = host_process(one.facts, at)
    missing = {
        name: lack if name in process.readings or lack.reason != "not_supported" else _NOT_THERE
        for name, lack in process.missing.items()
        if name != "cpu_percent"
    }
    return msgspec.structs.replace(
        process,
        readings={**process.readings, "cpu_percent": one.cpu_percent},
        missing=missing,
        state=one.facts.state,
        cuda_loaded=one.cuda_loaded,
    )

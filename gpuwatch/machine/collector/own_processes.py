"""What a recorder of another user could not read of the processes of this one: environment, framework, CPU programs.

A recorder that runs as a service sees every process, but may read the environment and the libraries of its own alone.
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.machine.collector.programs_without_gpu import Bystanders
from gpuwatch.machine.collector.rows import sees
from gpuwatch.machine.sources.host import DENIED, ProcessTable
from gpuwatch.machine.sources.missing_process import HIDDEN

_SAME_START = 1.5
"""Seconds by which two processes may compute the same start time differently."""


class OwnProcesses:
    """Completes the samples of a recorder, in their order; unchanged rows stay the same objects."""

    def __init__(self) -> None:
        self._table = ProcessTable()
        self._bystanders = Bystanders(self._table)
        self._rows: dict[int, tuple[Process, Process]] = {}
        """By identity: the rows of the last sample as they came and as they were completed."""
        self._before: tuple[tuple[Process, ...], tuple[Process, ...]] = ((), ())

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """The sample with what this user may read."""
        now = time.monotonic()
        rows: dict[int, tuple[Process, Process]] = {}
        completed = []
        for row in snapshot.processes:
            known = self._rows.get(id(row)) or (row, self._completed(row, snapshot, now))
            rows[id(row)] = known
            completed.append(known[1])
        self._rows = rows
        own = self._bystanders.look(now, completed)
        pids = {row.pid for row in own}
        self._table.forget_except({row.pid for row in completed} | self._bystanders.pids)
        if self._before[0] is not snapshot.processes or list(self._before[1]) != completed:
            self._before = (snapshot.processes, tuple(completed))
        others = tuple(row for row in snapshot.bystanders if row.pid not in pids)
        return replace(snapshot, processes=self._before[1], bystanders=(*own, *others))

    def _completed(self, row: Process, snapshot: Snapshot, now: float) -> Process:
        if not row.note.startswith(DENIED) or row.create_time is None:
            return row
        facts = self._table.look(row.pid, now)
        if facts is None or facts.environment is None or abs(facts.create_time - row.create_time) > _SAME_START:
            return row
        mapped, note = sees(facts, snapshot.devices)
        return replace(
            row,
            framework=facts.framework,
            container=facts.container,
            cuda_visible_devices=facts.environment.get("CUDA_VISIBLE_DEVICES"),
            device_map=mapped,
            note=note,
        )


def hides_processes(snapshot: Snapshot) -> bool:
    """Whether whoever took the sample was not shown processes that use GPUs (hidepid)."""
    return any(row.note.startswith(HIDDEN) for row in snapshot.processes)

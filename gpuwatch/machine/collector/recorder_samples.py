"""Completes the samples of a recorder with what only this user may read."""

from __future__ import annotations

import time

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import SAME_START_SECONDS, Device, Process, Snapshot
from gpuwatch.machine.collector.cpu_programs import CpuPrograms
from gpuwatch.machine.collector.process_rows import device_numbers_of
from gpuwatch.machine.history.reused_objects import MappedRows, same_or_new
from gpuwatch.machine.sources.process_table import DENIED, ProcessTable


class RecorderSampleCompleter:
    """Completes a recorder's samples with what only this user may read: environment, framework, CPU programs.

    A recorder that runs as a service sees every process, but may read the environment and the libraries of its own
    alone. Takes samples in their order; unchanged rows stay the same objects.
    """

    def __init__(self) -> None:
        self._table = ProcessTable()
        self._cpu_programs = CpuPrograms(self._table)
        self._rows = MappedRows(self._complete_row)
        self._processes: tuple[Process, ...] = ()
        self._devices: tuple[Device, ...] = ()
        self._now = 0.0

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """The sample with what this user may read."""
        self._devices, self._now = snapshot.devices, time.monotonic()
        completed = list(self._rows.made_of(snapshot.processes))
        own_bystanders = self._cpu_programs.rows(self._now, completed)
        pids = {row.pid for row in own_bystanders}
        self._table.keep_only({row.pid for row in completed} | self._cpu_programs.pids)
        self._processes = same_or_new(self._processes, completed)
        others = tuple(row for row in snapshot.bystanders if row.pid not in pids)
        return replace(snapshot, processes=self._processes, bystanders=(*own_bystanders, *others))

    def _complete_row(self, row: Process) -> Process:
        if not row.note.startswith(DENIED) or row.create_time is None:
            return row
        facts = self._table.facts_of(row.pid, self._now)
        if facts is None or facts.environment is None or abs(facts.create_time - row.create_time) > SAME_START_SECONDS:
            return row
        mapped, note = device_numbers_of(facts, self._devices)
        return replace(
            row,
            framework=facts.framework,
            container=facts.job_or_container,
            cuda_visible_devices=facts.environment.get("CUDA_VISIBLE_DEVICES"),
            device_map=mapped,
            note=note,
        )

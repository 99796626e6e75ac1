"""Snapshots of the host and its processes, without NVML: for a screen while the driver hangs."""

from __future__ import annotations

import datetime
import time

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.process_rows import host_process
from gpuwatch.machine.sources.process_table import ProcessTable


class HostSnapshots:
    """Takes snapshots of the host and its processes alone: without them a screen would stay empty."""

    def __init__(self) -> None:
        from gpuwatch.machine.sources.host_reader import HostReader  # psutil is slow to import

        self._reader = HostReader()
        self._table = ProcessTable()

    def take(self) -> Snapshot:
        """A snapshot without devices, with the busiest processes."""
        taken_at = datetime.datetime.now(datetime.UTC)
        began = time.monotonic()
        host, problems = self._reader.read()
        processes = tuple(map(host_process, self._table.busiest(began)))
        self._table.keep_only({process.pid for process in processes})
        return Snapshot(
            taken_at=taken_at,
            took_seconds=time.monotonic() - began,
            simulated=False,
            driver=None,
            devices=(),
            processes=processes,
            host=host,
            problems=tuple(problems),
            host_processes=self._table.process_count,
        )

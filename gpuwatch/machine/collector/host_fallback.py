"""A snapshot of the host and its processes while the driver blocks the collector.

A driver that hangs at its start would leave the screen empty although the host can be read.
"""

from __future__ import annotations

import datetime
import time

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.rows import host_process
from gpuwatch.machine.sources.host import HostReader, ProcessTable


def host_snapshot(reader: HostReader, table: ProcessTable) -> Snapshot:
    """A snapshot of this machine without its driver: host and processes."""
    taken_at = datetime.datetime.now(datetime.UTC)
    began = time.monotonic()
    host, problems = reader.read()
    processes = tuple(map(host_process, table.everyone(began)))
    table.forget_except({process.pid for process in processes})
    return Snapshot(
        taken_at=taken_at,
        took_seconds=time.monotonic() - began,
        simulated=False,
        driver=None,
        devices=(),
        processes=processes,
        host=host,
        problems=tuple(problems),
        host_processes=table.counted,
    )

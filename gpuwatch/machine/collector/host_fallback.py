"""Snapshots of the host and its processes while the driver blocks the first sample.

A driver that hangs at its start would leave the screen empty although the host can be read. So a thread waits for the
first sample, and starts reading the host if that takes too long.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.rows import host_process
from gpuwatch.machine.sources.host import HostReader, ProcessTable

PATIENCE = 0.6
"""Seconds to wait for the first sample before the host is read without the driver."""


class HostFallback:
    """Calls ``send`` with snapshots without devices, from another thread, until :meth:`end`.

    ``interval``: seconds between two of them.
    """

    def __init__(self, send: Callable[[Snapshot], None], interval: float) -> None:
        self._send = send
        self._interval = interval
        self._over = threading.Event()
        self._sending = threading.Lock()
        threading.Thread(target=self._run, name="gpuwatch-host-fallback", daemon=True).start()

    def end(self) -> None:
        """The driver has answered: ``send`` is not called after this returns."""
        self._over.set()
        with self._sending:
            pass

    def _run(self) -> None:
        if self._over.wait(PATIENCE):
            return
        host, table = HostReader(), ProcessTable()
        while True:
            snapshot = host_snapshot(host, table)
            with self._sending:
                if self._over.is_set():
                    return
                try:
                    self._send(snapshot)
                except BrokenPipeError:
                    os._exit(0)  # nobody reads anymore, and the other thread is blocked in the driver
            if self._over.wait(self._interval):
                return


def host_snapshot(reader: HostReader, table: ProcessTable) -> Snapshot:
    """A snapshot of this machine without its driver: host and processes."""
    taken_at = datetime.datetime.now(datetime.UTC)
    began = time.monotonic()
    host, problems = reader.read()
    facts = table.everyone(began)
    processes = tuple(host_process(fact) for fact in facts)
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

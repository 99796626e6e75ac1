"""The host and its processes, told while the driver keeps the first sample waiting.

A driver that hangs when it is opened would leave a screen without anything on it, although the host could
be read all the time. So a thread stands by until the first sample is there. Where that is in time, the
thread has done nothing and ends.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable

from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.rows import host_process
from gpuwatch.sources.host import HostReader, ProcessTable

PATIENCE = 0.6
"""Seconds that the driver has for the first sample before the host is told without it."""


class Meanwhile:
    """Gives snapshots without devices to ``tell``, from another thread, until :meth:`end`.

    ``interval``: seconds between two of them.
    """

    def __init__(self, tell: Callable[[Snapshot], None], interval: float) -> None:
        self._tell = tell
        self._interval = interval
        self._over = threading.Event()
        self._telling = threading.Lock()
        threading.Thread(target=self._run, name="gpuwatch-meanwhile", daemon=True).start()

    def end(self) -> None:
        """The driver has answered: nothing is told after this returns."""
        self._over.set()
        with self._telling:
            pass

    def _run(self) -> None:
        if self._over.wait(PATIENCE):
            return
        host, table = HostReader(), ProcessTable()
        while True:
            snapshot = look(host, table)
            with self._telling:
                if self._over.is_set():
                    return
                try:
                    self._tell(snapshot)
                except BrokenPipeError:
                    os._exit(0)  # nobody reads any more, and the other thread waits for the driver
            if self._over.wait(self._interval):
                return


def look(reader: HostReader, table: ProcessTable) -> Snapshot:
    """What can be told of this machine without its driver."""
    taken_at = datetime.datetime.now(datetime.UTC)
    began = time.monotonic()
    host, problems = reader.read()
    facts = table.everyone(began)
    at = taken_at.timestamp()
    processes = tuple(host_process(one, at) for one in facts)
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

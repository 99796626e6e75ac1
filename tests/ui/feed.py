"""A feed that a test drives by hand, and one that runs by itself for the demo."""

from __future__ import annotations

import threading
from collections.abc import Callable

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.collector.host_processes import HostProcesses, LocalProcesses
from gpuwatch.machine.sources.process_details import ProcessDetails


class FakeHost(LocalProcesses):
    """This machine, but for the details of processes, which are made up: signals are real."""

    def __init__(self, read_process: Callable[[tuple[int, float | None]], ProcessDetails]) -> None:
        super().__init__()
        self._read_process = read_process

    def details(self, pid: int, create_time: float | None) -> ProcessDetails:
        return self._read_process((pid, create_time))


class FakeFeed:
    """Gives what :meth:`push` was given."""

    def __init__(self, host: HostProcesses | None = None) -> None:
        self.interval = 1.0
        self.host = host or LocalProcesses()
        self.state = FeedStatus(state="starting")
        self.started = 0
        self.stopped = 0
        self.resumptions = 0
        self._pending: list[Snapshot] = []
        self._wake: Callable[[], None] | None = None

    def start(self, wake: Callable[[], None] | None = None) -> None:
        self.started += 1
        self._wake = wake

    def drain(self) -> list[Snapshot]:
        drained, self._pending = self._pending, []
        return drained

    def status(self) -> FeedStatus:
        return self.state

    def resumed(self) -> None:
        self.resumptions += 1

    def stop(self) -> None:
        self.stopped += 1

    def push(self, *snapshots: Snapshot) -> None:
        """A sample has arrived; the wake-up comes from another thread, as it does in life."""
        self._pending += snapshots
        self.state = FeedStatus(state="ok", age_seconds=0.0)
        if self._wake is not None:
            thread = threading.Thread(target=self._wake)
            thread.start()
            thread.join()


class MovingFeed(FakeFeed):
    """Makes a snapshot every interval in its own thread."""

    def __init__(self, make: Callable[[int], Snapshot], *, delay: float = 0.05) -> None:
        super().__init__()
        self._make = make
        self._delay = delay
        self._stop = threading.Event()
        self.hang = False

    def start(self, wake: Callable[[], None] | None = None) -> None:
        super().start(wake)
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        super().stop()
        self._stop.set()

    def _run(self) -> None:
        tick = 0
        self._stop.wait(self._delay)
        while not self._stop.is_set():
            self._pending.append(self._make(tick))
            self.state = FeedStatus(state="ok", age_seconds=0.0)
            if self._wake is not None:
                self._wake()
            tick += 1
            self._stop.wait(self.interval)

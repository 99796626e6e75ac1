"""What a source of hosts provides: the list of all of them, and the snapshots of one; the threads that read them."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.fleet_summary import FleetSummary, summarize_fleet
from gpuwatch.machine.collector.feed import Feed, FeedStatus
from gpuwatch.machine.collector.host_processes import HostProcesses


class FleetSource(ABC):
    """Where hosts come from."""

    name: str

    def start(self, request_read: Callable[[], None]) -> None:  # noqa: B027  # not all have something to start
        """Called once before the first read; ``request_read`` may be called from any thread to be read at once."""

    @abstractmethod
    def read(self) -> Fleet:
        """All hosts now; may block for seconds."""

    @abstractmethod
    def feed(self, host: str, interval: float) -> Feed:
        """The snapshots of one of the hosts, one every ``interval`` seconds; not started yet."""

    def set_interval(self, interval: float) -> None:  # noqa: B027  # not all read in between
        """Sets the seconds between two reads."""

    def stop(self) -> None:  # noqa: B027
        """Ends what was started."""


class ReaderThread(threading.Thread):
    """Reads hosts with ``read``, which returns once ``stopping`` is set; ``wake`` is called if it fails."""

    def __init__(self, name: str, read: Callable[[], None], wake: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._read, self._wake = read, wake
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        """The error of gpuwatch itself that ended the thread: whoever shows the hosts raises it."""

    def start(self) -> None:
        """Starts it, unless it was started before."""
        if self.ident is None:
            super().start()

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001  # see failure
            self.failure = error
            self._wake()

    def stop(self, seconds: float) -> None:
        """Ends it; one that still waits for an answer after so many seconds is left to end by itself."""
        self.stopping.set()
        if self.is_alive() and self is not threading.current_thread():
            self.join(seconds)


class HostFeed(ABC):
    """The snapshots of one host, put in ``_arrived`` by a thread, which then calls ``_wake``.

    Implements :class:`gpuwatch.machine.collector.feed.Feed` with the methods of its subclasses.
    """

    _thread: ReaderThread

    def __init__(self, host: str) -> None:
        self.host = HostProcesses(host)
        self._wake: Callable[[], None] = lambda: None
        self._arrived: deque[Snapshot] = deque()

    def start(self, wake: Callable[[], None] | None = None) -> None:
        if wake is not None:
            self._wake = wake
        self._thread.start()

    def drain(self) -> list[Snapshot]:
        """The snapshots since the last call; the error that ended the thread is raised."""
        if self._thread.failure is not None:
            raise self._thread.failure
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    @abstractmethod
    def _status(self) -> tuple[float | None, str]:
        """The age of the newest snapshot in seconds, and why there is no newer one (empty if there is)."""

    def status(self) -> FeedStatus:
        age, problem = self._status()
        if problem:
            return FeedStatus("stopped", age, detail=problem)
        return FeedStatus("starting") if age is None else FeedStatus("ok", age)

    def resumed(self) -> None:  # noqa: B027
        """Nothing to do: no driver is waited for, and connections that were closed during the stop are made again."""


class FleetPoller:
    """The newest hosts of a source, summed up; read in a thread of its own, so that a screen never waits for them.

    ``interval``: seconds between two reads.
    """

    def __init__(self, source: FleetSource, interval: float) -> None:
        self.source = source
        self.interval = interval
        self.summary: FleetSummary | None = None
        """The newest; None before the first."""
        self._wake: Callable[[], None] = lambda: None
        self._read_due = threading.Event()
        self._thread = ReaderThread("gpuwatch-fleet", self._read_hosts, lambda: self._wake())

    @property
    def failure(self) -> BaseException | None:
        """The error of gpuwatch itself that ended the thread."""
        return self._thread.failure

    def set_interval(self, seconds: float) -> None:
        """Sets the seconds between two reads, and reads at once; may be called at any time."""
        self.interval = seconds
        self.source.set_interval(seconds)
        self._read_due.set()

    def start(self, wake: Callable[[], None]) -> None:
        """Starts reading; ``wake`` is called from the thread after each read."""
        self._wake = wake
        self.source.start(self.read_now)
        self._thread.start()

    def read_now(self) -> None:
        """Reads at once instead of at the end of the interval."""
        self._read_due.set()

    def stop(self) -> None:
        """Ends the thread and the source."""
        self._thread.stopping.set()
        self._read_due.set()
        self._thread.stop(0.5)
        self.source.stop()

    def _read_hosts(self) -> None:
        while not self._thread.stopping.is_set():
            began = time.monotonic()
            self._read_due.clear()
            fleet = self.source.read()
            if self._thread.stopping.is_set():
                return
            self.summary = summarize_fleet(fleet, self.summary)
            self._wake()
            seconds_left = began + self.interval - time.monotonic()
            if seconds_left > 0:
                self._read_due.wait(seconds_left)

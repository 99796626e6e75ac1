"""What a source of hosts provides: the list of all of them, and the snapshots of one; its reader, in a thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.fleet_summary import FleetSummary, summarize_fleet
from gpuwatch.machine.collector.feed import Feed, FeedStatus, ProcessAccess


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


class HostFeed(ABC):
    """The snapshots of one host, put in ``_arrived`` by another thread, which then calls ``_wake``.

    Implements :class:`gpuwatch.machine.collector.feed.Feed` with the methods of its subclasses.
    """

    def __init__(self, host: str) -> None:
        self.host = ProcessAccess(host)
        self._wake: Callable[[], None] = lambda: None
        self._arrived: deque[Snapshot] = deque()

    def start(self, wake: Callable[[], None] | None = None) -> None:
        if wake is not None:
            self._wake = wake
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Starts the thread, unless it runs."""

    def drain(self) -> list[Snapshot]:
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

    ``interval`` is in seconds and may be set at any time.
    """

    def __init__(self, source: FleetSource, interval: float) -> None:
        self.source = source
        self._interval = interval
        self.summary: FleetSummary | None = None
        """The newest; None before the first."""
        self._wake: Callable[[], None] = lambda: None
        self._read_due = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        """The error of gpuwatch itself that ended the thread."""

    @property
    def interval(self) -> float:
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = seconds
        self.source.set_interval(seconds)
        self._read_due.set()

    def start(self, wake: Callable[[], None]) -> None:
        """Starts reading; ``wake`` is called from the thread after each read."""
        self._wake = wake
        if self._thread is None:
            self.source.start(self.read_now)
            self._thread = threading.Thread(target=self._run, name="gpuwatch-fleet", daemon=True)
            self._thread.start()

    def read_now(self) -> None:
        """Reads at once instead of at the end of the interval."""
        self._read_due.set()

    def stop(self) -> None:
        """Ends the thread; one that waits for an answer is left to end by itself."""
        self._stopping = True
        self._read_due.set()
        if self._thread is not None:
            self._thread.join(timeout=0.5)
            self.source.stop()

    def _run(self) -> None:
        try:
            while not self._stopping:
                began = time.monotonic()
                self._read_due.clear()
                fleet = self.source.read()
                if self._stopping:
                    return
                self.summary = summarize_fleet(fleet, self.summary)
                self._wake()
                seconds_left = began + self._interval - time.monotonic()
                if seconds_left > 0:
                    self._read_due.wait(seconds_left)
        except BaseException as error:  # noqa: BLE001  # the screen raises it
            self.failure = error
            self._wake()

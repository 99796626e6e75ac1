"""What a source of hosts provides: the list of all of them (:class:`FleetSource`), and the snapshots of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable

from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.model.snapshot import Snapshot
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

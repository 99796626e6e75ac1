"""Hosts over ssh, with nothing on them but gpuwatch: all of them for the list, and one as a feed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.host_poller import FleetSource
from gpuwatch.fleet.ssh_streams import CONNECTING, GPUWATCH, RemoteStreams, Stream
from gpuwatch.machine.collector.host_access import HostAccess
from gpuwatch.machine.collector.snapshot_feed import FeedStatus

_COALESCE_SECONDS = 0.3
"""Seconds for which news are collected before they are shown."""


class SshSource(FleetSource):
    """The hosts of ``--hosts``; :meth:`read` never waits."""

    name = "ssh"

    def __init__(
        self, hosts: Sequence[str], interval: float, *, command: Sequence[str] = GPUWATCH, options: Sequence[str] = ()
    ) -> None:
        """``command``: how gpuwatch is called there; ``options``: further arguments of ``ssh``."""
        self._command, self._options = command, options
        self._streams = RemoteStreams(hosts, interval, self._on_change, command=command, options=options)
        self._views = {host: HostView(name=host, reason=CONNECTING, pending=True) for host in hosts}
        self._wake: Callable[[], None] = lambda: None
        self._timer: threading.Timer | None = None

    def start(self, news: Callable[[], None]) -> None:
        """Connects; ``news`` is called from another thread when :meth:`read` has something new."""
        self._wake = news
        self._streams.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._streams.stop()

    def feed(self, host: str, interval: float) -> SshHostFeed:
        return SshHostFeed(host, interval, command=self._command, options=self._options)

    def set_interval(self, interval: float) -> None:
        self._streams.interval = interval

    def read(self) -> Fleet:
        """All hosts as they are known now; an unchanged host is the same object."""
        if self._streams.failure is not None:
            raise self._streams.failure
        for host, stream in self._streams.streams.items():
            snapshot, reason, view = stream.snapshot, stream.reason, self._views[host]
            if view.snapshot is not snapshot or view.reason != reason:
                self._views[host] = HostView(name=host, snapshot=snapshot, reason=reason, pending=reason == CONNECTING)
        return Fleet(taken_at=time.time(), source=self.name, hosts=tuple(self._views.values()))

    def _on_change(self, stream: Stream) -> None:
        """Shows a host that answers, or does no longer; more samples of it wait for the interval."""
        changed = self._views[stream.host].reason != stream.reason
        if changed and (self._timer is None or not self._timer.is_alive()):
            self._timer = threading.Timer(_COALESCE_SECONDS, self._wake)
            self._timer.daemon = True
            self._timer.start()


class SshHostFeed:
    """One host over a connection of its own; implements :class:`gpuwatch.machine.collector.snapshot_feed.Feed`."""

    def __init__(
        self, host: str, interval: float, *, command: Sequence[str] = GPUWATCH, options: Sequence[str] = ()
    ) -> None:
        self.host = HostAccess(host)
        self._streams = RemoteStreams([host], interval, self._on_sample, command=command, options=options)
        self._stream = self._streams.streams[host]
        self._wake: Callable[[], None] | None = None
        self._arrived: deque[Snapshot] = deque()
        self._last: Snapshot | None = None

    @property
    def interval(self) -> float:
        return self._streams.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._streams.interval = seconds

    def start(self, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake
        self._streams.start()

    def drain(self) -> list[Snapshot]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def status(self) -> FeedStatus:
        stream = self._stream
        age = None if stream.sampled_at is None else time.monotonic() - stream.sampled_at
        if stream.reason and (age is not None or stream.failures):
            return FeedStatus("stopped", age, detail=stream.reason)
        return FeedStatus("starting") if age is None else FeedStatus("ok", age)

    def resumed(self) -> None:
        """Nothing to do: streams that were closed during the stop restart by themselves."""

    def stop(self) -> None:
        self._streams.stop()

    def _on_sample(self, stream: Stream) -> None:
        if stream.snapshot is not None and stream.snapshot is not self._last:
            self._last = stream.snapshot
            self._arrived.append(stream.snapshot)
        if self._wake is not None:
            self._wake()

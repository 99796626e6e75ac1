"""One host of a Prometheus server as a feed: its last hour first, then what is new."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

from gpuwatch.core.model.fleet import HostView
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.exporter_metric_names import REPORTED, exporter_names_of
from gpuwatch.fleet.hosts_from_prometheus_series import Collected
from gpuwatch.fleet.prometheus_api import NoAnswer, Prometheus, Sample
from gpuwatch.fleet.prometheus_queries import query_of_gpus
from gpuwatch.fleet.prometheus_source import PrometheusSource
from gpuwatch.machine.collector.host_access import HostAccess
from gpuwatch.machine.collector.snapshot_feed import FeedStatus

_PAST_SECONDS, _STEP_SECONDS = 3600.0, 15.0
"""Seconds of history, and between two of its samples."""
_MAX_GPUS = 64
"""GPUs of one host that are asked for."""


class PrometheusFeed:
    """Snapshots of one host; implements :class:`gpuwatch.machine.collector.snapshot_feed.Feed`."""

    def __init__(self, server: Prometheus, source: PrometheusSource, name: str, interval: float) -> None:
        self.interval = interval
        self.host = HostAccess(name)
        self._server = server
        self._source = source
        self._wake: Callable[[], None] | None = None
        self._arrived: deque[Snapshot] = deque()
        self._last: float | None = None
        self._problem = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, wake: Callable[[], None] | None = None) -> None:
        self._wake = wake
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpuwatch-host", daemon=True)
            self._thread.start()

    def drain(self) -> list[Snapshot]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def status(self) -> FeedStatus:
        age = None if self._last is None else time.time() - self._last
        if self._problem:
            return FeedStatus("stopped", age, detail=self._problem)
        return FeedStatus("starting") if age is None else FeedStatus("ok", age)

    def resumed(self) -> None:
        """Nothing is late: the server keeps what was not asked for."""

    def stop(self) -> None:
        """Ends the thread; one that waits for an answer is left to end by itself."""
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=0.5)

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        uuids = self._source.uuids(self.host.name)[:_MAX_GPUS]
        past = False
        while not self._stopping.is_set():
            at = time.time()
            try:
                if not past:
                    self._give(self._history(uuids, at - _PAST_SECONDS, at - self.interval))
                    past = True
                self._give(self._now(uuids, at))
                self._problem = ""
            except NoAnswer as error:
                self._problem = error.message
            if self._wake is not None:
                self._wake()
            self._stopping.wait(self.interval)

    def _give(self, snapshots: list[Snapshot]) -> None:
        self._arrived += snapshots
        if snapshots:
            self._last = snapshots[-1].taken_at.timestamp()

    def _now(self, uuids: list[str], at: float) -> list[Snapshot]:
        view = self._source.host(self.host.name, self._server.query(query_of_gpus(exporter_names_of(), uuids)), at)
        if view is None:
            raise NoAnswer(f"{self._server.name} has no new data of {self.host.name}")
        return self._newer([view])

    def _history(self, uuids: list[str], begin: float, end: float) -> list[Snapshot]:
        moments: defaultdict[float, Collected] = defaultdict(Collected)
        for series in self._server.query_range(query_of_gpus(exporter_names_of(), uuids), begin, end, _STEP_SECONDS):
            if series.metric.get("__name__") not in REPORTED:
                continue
            for at, text in series.values:
                moments[at].add_reading(Sample(series.metric, (at, text)))
        views: list[HostView] = []
        for at, collected in sorted(moments.items()):
            self._source.add_identities(collected)
            views += collected.hosts(at).values()
        return self._newer(views)

    def _newer(self, views: list[HostView]) -> list[Snapshot]:
        found = []
        last = self._last or 0.0
        for view in views:
            if view.snapshot is not None and view.snapshot.taken_at.timestamp() > last:
                last = view.snapshot.taken_at.timestamp()
                found.append(view.snapshot)
        return found

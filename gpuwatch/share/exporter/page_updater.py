"""Keeps the page up to date: takes samples from a feed, judges them, counts Xids."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed_interface import Feed
from gpuwatch.machine.history.gone_gpus import forget_gone
from gpuwatch.session.current_findings import all_findings
from gpuwatch.share.exporter.metric_series import Content, Options
from gpuwatch.share.exporter.metrics_page import Page
from gpuwatch.share.exporter.slurm_job_map import JobMap

STALE_SECONDS = 60.0
"""Age in seconds from which a sample is no longer shown as the state of now: its readings are left out."""
_POLL_SECONDS = 1.0
"""Seconds between looks at a feed that delivers nothing."""
_SAME_ERROR_SECONDS = 5.0
"""Seconds by which the times may differ at which two collectors received the same error."""


class PageUpdater:
    """A feed, and the page of its newest sample."""

    def __init__(
        self,
        feed: Feed,
        options: Options,
        *,
        job_map: JobMap | None = None,
        say: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``say``: tells the user what is wrong, one line each; ``clock``: seconds since the epoch."""
        self._feed, self._options, self._job_map, self._say = feed, options, job_map, say
        self._clock, self._monotonic = clock, monotonic
        self._conditions = ConditionEngine()
        self._xids = XidCounts(clock())
        self._wake = threading.Event()
        self._stopping = False
        self._snapshot: Snapshot | None = None
        self._taken_at: float | None = None
        """When it was taken, by the monotonic clock."""
        self._silent = False
        self._map_error = ""
        self._shown = Content()
        self.page = Page(self._shown, options, None, monotonic)
        """The newest page; may be read by other threads."""

    def stop(self) -> None:
        """Ends :meth:`run`; may be called from a signal handler."""
        self._stopping = True
        self._wake.set()

    def run(self, tick: Callable[[], None] = lambda: None) -> None:
        """Publishes until :meth:`stop`, and ends the feed; ``tick`` is called at least every second."""
        self._feed.start(self._wake.set)
        try:
            while not self._stopping:
                self._wake.wait(_POLL_SECONDS)
                self._wake.clear()
                self.look()
                tick()
        finally:
            self._feed.stop()
            if self._job_map is not None:
                self._job_map.remove()

    def look(self) -> None:
        for snapshot in self._feed.drain():
            self._conditions.observe(snapshot)
            self._xids.observe(snapshot)
            self._snapshot = snapshot
            self._taken_at = self._monotonic() - max(self._clock() - snapshot.taken_at.timestamp(), 0.0)
            self._map_jobs(snapshot)
        status = self._feed.status()
        self._conditions.feed(status, self._clock())
        if (silent := status.state == "not-answering") != self._silent:
            self._silent = silent
            what = f"the collector {status.blame}" if status.blame else "the driver does not answer"
            why = "; ".join(filter(None, (what, status.detail)))
            self._say(f"gpuwatch: no samples: {why}" if silent else "gpuwatch: sampling again")
        newest = self._snapshot
        given = newest.findings if newest is not None else ()
        driver = newest is not None and newest.driver is not None
        content = Content(
            newest,
            tuple(finding for finding in all_findings(given, self._conditions) if finding.until is None),
            None if status.state == "starting" else status.state == "ok" and driver,
            status.replaced,
            self._taken_at is not None and self._monotonic() - self._taken_at < STALE_SECONDS,
            self._xids.counts,
        )
        if content.snapshot is not self._shown.snapshot or content[1:] != self._shown[1:]:
            self._shown = content
            self.page = Page(content, self._options, self._taken_at, self._monotonic)

    def _map_jobs(self, snapshot: Snapshot) -> None:
        if self._job_map is None:
            return
        error = ""
        try:
            self._job_map.write(snapshot)
        except OSError as failure:
            error = failure.strerror or str(failure)
        if error and error != self._map_error:
            self._say(f"gpuwatch: cannot write the job map: {error}")
        self._map_error = error


class XidCounts:
    """Counts by UUID and Xid since a moment, in seconds since the epoch.

    Samples may come from a recorder's collector for a while, whose list is another one: what both received counts once.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._latest: dict[str, tuple[Xid, ...]] = {}
        self._until: dict[str, float] = {}
        """When the latest that was counted had been received."""
        self.counts: dict[str, dict[str, int]] = {}
        """By UUID, then by Xid (``unknown`` if the driver does not know it); replaced when something is counted."""

    def observe(self, snapshot: Snapshot) -> None:
        for device in snapshot.devices:
            before = self._latest.get(device.uuid, ())
            if device.xids is before:
                continue
            self._latest[device.uuid] = device.xids
            new = self._new(device.uuid, before, device.xids)
            if not new:
                continue
            self._until[device.uuid] = max(xid.at for xid in new)
            counts = dict(self.counts.get(device.uuid, {}))
            for xid in new:
                name = "unknown" if xid.code is None else str(xid.code)
                counts[name] = counts.get(name, 0) + 1
            self.counts = self.counts | {device.uuid: counts}
        forget_gone({device.uuid for device in snapshot.devices}, self._latest, self._until, self.counts)

    def _new(self, uuid: str, before: Sequence[Xid], now: Sequence[Xid]) -> Sequence[Xid]:
        # The list grows at its end, and its oldest are dropped.
        for common in range(min(len(before), len(now)), 0, -1):
            if before[len(before) - common :] == now[:common]:
                return now[common:]
        counted = self._until.get(uuid)
        return [xid for xid in now if xid.at > (self._since if counted is None else counted + _SAME_ERROR_SECONDS)]

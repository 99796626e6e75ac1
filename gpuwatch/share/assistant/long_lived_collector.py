"""The machine that an assistant asks about: one collector, started by the first question and kept after it."""

from __future__ import annotations

import threading
import time

import msgspec

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.session.single_snapshot import findings_of, silence, without_driver

DEADLINE_SECONDS = 8.0
"""Seconds within which the driver has to answer a question."""
INTERVAL_SECONDS = 5.0
"""Seconds between samples while nobody asks: enough to tell what lasts, such as throttling."""
_FIRST_INTERVAL_SECONDS = 0.25
"""Seconds between the first two samples: rates need two."""


class LongLivedCollector:
    """Snapshots on request, from any thread. The driver is called in the collector's process alone."""

    def __init__(self, *, deadline: float = DEADLINE_SECONDS) -> None:
        self._deadline = deadline
        self._feed: LiveFeed | None = None
        self._conditions = ConditionEngine()
        self.newest: Snapshot | None = None
        """The newest snapshot; None before the first."""
        self._count = 0
        self._changed = threading.Condition()

    def snapshot(self) -> Snapshot:
        """A snapshot that is taken now, with its findings; of the host alone if the driver does not answer in time."""
        until = time.monotonic() + self._deadline
        asked = time.time()
        with self._changed:
            if self._feed is None:
                self._feed = LiveFeed(_FIRST_INTERVAL_SECONDS, on_demand=True)
                self._feed.start(self._take)
            feed = self._feed
            feed.sample_now()
            self._changed.wait_for(lambda: self._is_new(asked) or bool(feed.failure), until - time.monotonic())
            newest = self.newest if self._is_new(asked) else None
            lasting = self._conditions.findings
        if newest is None:
            silent = without_driver(self._deadline, silence(feed))
            return msgspec.structs.replace(silent, findings=findings_of(silent))
        seen = findings_of(newest)
        known = {("healthy", None), *((finding.id, finding.device_uuid) for finding in seen)}
        more = (finding for finding in lasting if (finding.id, finding.device_uuid) not in known)
        return msgspec.structs.replace(newest, findings=(*seen, *more))

    def stop(self) -> None:
        if self._feed is not None:
            self._feed.stop()

    def _is_new(self, asked: float) -> bool:
        """Whether the newest snapshot is one with rates that was taken after ``asked``, in seconds since the epoch."""
        return self.newest is not None and self._count > 1 and self.newest.taken_at.timestamp() >= asked

    def _take(self) -> None:
        """Called by the feed's threads."""
        with self._changed:
            assert self._feed is not None
            for snapshot in self._feed.drain():
                self._conditions.observe(snapshot)
                self.newest = snapshot
                self._count += 1
            if self._count > 1 and self._feed.interval != INTERVAL_SECONDS:
                self._feed.interval = INTERVAL_SECONDS
            self._changed.notify_all()

"""Snapshots for an assistant: one collector, started by the first question and kept after it."""

from __future__ import annotations

import threading
import time

import msgspec

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.session.snapshots import findings_of, silence, without_driver

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
        self._sample_count = 0
        self._changed = threading.Condition()

    def snapshot(self) -> Snapshot:
        """A snapshot that is taken now, with its findings; of the host alone if the driver does not answer in time."""
        deadline = time.monotonic() + self._deadline
        asked_at = time.time()
        with self._changed:
            if self._feed is None:
                self._feed = LiveFeed(_FIRST_INTERVAL_SECONDS, on_demand=True)
                self._feed.start(self._receive)
            feed = self._feed
            feed.sample_now()
            self._changed.wait_for(lambda: self._is_new(asked_at) or bool(feed.failure), deadline - time.monotonic())
            newest = self.newest if self._is_new(asked_at) else None
            lasting_findings = self._conditions.findings
        if newest is None:
            host_snapshot = without_driver(self._deadline, silence(feed))
            return msgspec.structs.replace(host_snapshot, findings=findings_of(host_snapshot))
        current_findings = findings_of(newest)
        known_keys = {("healthy", None), *((finding.id, finding.device_uuid) for finding in current_findings)}
        lasting_only = (finding for finding in lasting_findings if (finding.id, finding.device_uuid) not in known_keys)
        return msgspec.structs.replace(newest, findings=(*current_findings, *lasting_only))

    def stop(self) -> None:
        if self._feed is not None:
            self._feed.stop()

    def _is_new(self, asked_at: float) -> bool:
        """Whether the newest snapshot has rates, and was taken after ``asked_at`` (seconds since the epoch)."""
        return self.newest is not None and self._sample_count > 1 and self.newest.taken_at.timestamp() >= asked_at

    def _receive(self) -> None:
        """Called by the feed's threads."""
        with self._changed:
            assert self._feed is not None
            for snapshot in self._feed.drain():
                self._conditions.observe(snapshot)
                self.newest = snapshot
                self._sample_count += 1
            if self._sample_count > 1 and self._feed.interval != INTERVAL_SECONDS:
                self._feed.interval = INTERVAL_SECONDS
            self._changed.notify_all()

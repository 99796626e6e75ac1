"""Records what a feed delivers: samples, what is wrong in them, and what happened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import Feed
from gpuwatch.machine.recording.running_recorders import Announcement
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.session.alerts import Alerts
from gpuwatch.session.current_findings import recorded_and_current_findings

_POLL_SECONDS = 1.0
"""Seconds between looks at a feed that delivers nothing."""
_LATE_SECONDS = 0.5
"""Seconds, besides the interval, after which those who follow the recording are told that a sample is late."""


class Recorder:
    """A feed and the file that it is recorded to."""

    def __init__(
        self,
        feed: Feed,
        writer: RecordingWriter,
        *,
        clock: Callable[[], float] = time.time,
        announcement: Announcement | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        """``announcement``: by which dashboards on this machine find the recording. ``alerts`` end with :meth:`run`."""
        self._feed = feed
        self._writer = writer
        self._announcement = announcement
        self._alerts = alerts
        self._last_arrival = time.monotonic()
        """When the last sample came."""
        self._clock = clock
        self._conditions = ConditionEngine()
        self._wake = threading.Event()
        self._stopping = False
        self.snapshot: Snapshot | None = None
        """The last recorded sample."""

    def stop(self) -> None:
        """Ends :meth:`run` after what has arrived is recorded; may be called from a signal handler."""
        self._stopping = True
        self._wake.set()

    def run(self, show: Callable[[], None] = lambda: None) -> None:
        """Records until :meth:`stop`, and ends the feed; ``show`` is called after each sample.

        :class:`~gpuwatch.machine.recording.writer.RecordingStopped` if the file can no longer be written.
        """
        self._feed.start(self._wake.set)
        try:
            while not self._stopping:
                self._wake.wait(_POLL_SECONDS)
                self._wake.clear()
                self._record_arrived()
                show()
        finally:
            self._feed.stop()
            if self._alerts is not None:
                self._alerts.close()

    def _record_arrived(self) -> None:
        snapshots = self._feed.drain()
        for snapshot in snapshots:
            events = self._conditions.observe(snapshot)
            findings = recorded_and_current_findings(snapshot.findings, self._conditions)
            self._writer.add(snapshot, findings, events)
            if self._alerts is not None:
                self._alerts.observe(findings, snapshot)
            self.snapshot = snapshot
        status = self._feed.status()
        self._writer.add_events(self._conditions.feed(status, self._clock()))
        if self._alerts is not None:
            self._writer.add_events(self._alerts.events())
        if snapshots:
            self._last_arrival = time.monotonic()
        if self._announcement is not None:
            if snapshots:
                self._announcement.report_sample()
            elif time.monotonic() - self._last_arrival > self._feed.interval + _LATE_SECONDS:
                self._announcement.report_silence(status.detail, status.collector_fault)

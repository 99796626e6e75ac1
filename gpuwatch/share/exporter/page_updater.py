"""Keeps the metrics page up to date: takes samples from a feed, and evaluates conditions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuwatch.core.formatting.file_names import file_name
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import Feed
from gpuwatch.session.current_findings import recorded_and_current_findings
from gpuwatch.share.exporter.metric_series import ExporterOptions, ScrapeContent
from gpuwatch.share.exporter.metrics_page import MetricsPage
from gpuwatch.share.exporter.slurm_job_map import SlurmJobMap
from gpuwatch.share.exporter.xid_counts import XidCounts

STALE_SECONDS = 60.0
"""Age in seconds from which a sample is no longer shown as the state of now: its readings are left out."""
_POLL_SECONDS = 1.0
"""Seconds after which the state of a feed is read that delivers nothing."""


class PageUpdater:
    """A feed, and the page of its newest sample."""

    def __init__(
        self,
        feed: Feed,
        options: ExporterOptions,
        *,
        job_map: SlurmJobMap | None = None,
        log: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``log`` gets a line on whose samples are served, and on each problem; ``clock``: seconds since the epoch."""
        self._feed, self._options, self._job_map, self._log = feed, options, job_map, log
        self._clock, self._monotonic = clock, monotonic
        self._conditions = ConditionEngine()
        self._xids = XidCounts(clock())
        self._wake = threading.Event()
        self._stopping = False
        self._snapshot: Snapshot | None = None
        self._taken_at: float | None = None
        """When it was taken, by the monotonic clock."""
        self._recording: str | None = None
        """The file of the recorder whose samples are served; empty: those of an own collector; None: not known yet."""
        self._driver_silent = False
        self._job_map_error = ""
        self._content = ScrapeContent()
        self.page = MetricsPage(self._content, options, None, monotonic)
        """The newest page; may be read by other threads."""

    def stop(self) -> None:
        """Ends :meth:`run`; may be called from a signal handler."""
        self._stopping = True
        self._wake.set()

    def run(self, on_poll: Callable[[], None] = lambda: None) -> None:
        """Publishes until :meth:`stop`, and ends the feed; ``on_poll`` is called at least every second."""
        self._feed.start(self._wake.set)
        try:
            while not self._stopping:
                self._wake.wait(_POLL_SECONDS)
                self._wake.clear()
                self.update()
                on_poll()
        finally:
            self._feed.stop()
            if self._job_map is not None:
                self._job_map.remove_files()

    def update(self) -> None:
        """Takes what has arrived from the feed; a new page if anything changed."""
        for snapshot in self._feed.drain():
            self._conditions.observe(snapshot)
            self._xids.observe(snapshot)
            self._snapshot = snapshot
            self._taken_at = self._monotonic() - max(self._clock() - snapshot.taken_at.timestamp(), 0.0)
            self._write_job_map(snapshot)
        status = self._feed.status()
        self._conditions.feed(status, self._clock())
        if status.state == "ok" and status.recording != self._recording:
            self._recording = status.recording
            source = f"of the recorder of {file_name(status.recording)}" if status.recording else "of its own collector"
            self._log(f"gpuwatch: serving samples {source}")
        if (driver_silent := status.state == "not-answering") != self._driver_silent:
            self._driver_silent = driver_silent
            what = f"the collector {status.blame}" if status.blame else "the driver does not answer"
            why = "; ".join(filter(None, (what, status.detail)))
            self._log(f"gpuwatch: no samples: {why}" if driver_silent else "gpuwatch: sampling again")
        newest = self._snapshot
        snapshot_findings = newest.findings if newest is not None else ()
        has_driver = newest is not None and newest.driver is not None
        content = ScrapeContent(
            newest,
            tuple(
                finding
                for finding in recorded_and_current_findings(snapshot_findings, self._conditions)
                if finding.until is None
            ),
            None if status.state == "starting" else status.state == "ok" and has_driver,
            status.replaced,
            self._taken_at is not None and self._monotonic() - self._taken_at < STALE_SECONDS,
            self._xids.counts,
        )
        if content.snapshot is not self._content.snapshot or content[1:] != self._content[1:]:
            self._content = content
            self.page = MetricsPage(content, self._options, self._taken_at, self._monotonic)

    def _write_job_map(self, snapshot: Snapshot) -> None:
        if self._job_map is None:
            return
        error = ""
        try:
            self._job_map.update(snapshot)
        except OSError as failure:
            error = failure.strerror or str(failure)
        if error and error != self._job_map_error:
            self._log(f"gpuwatch: cannot write the job map: {error}")
        self._job_map_error = error

"""The metrics page: the text of one sample, made once however many scrape it; what updates it, and counts Xids."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Sequence

from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import Feed
from gpuwatch.machine.history.gone_gpus import forget_gone
from gpuwatch.session.current_findings import recorded_and_current_findings
from gpuwatch.share.exporter.metric_series import ExporterOptions, ScrapeContent, series_lines
from gpuwatch.share.exporter.slurm_job_map import SlurmJobMap
from gpuwatch.share.metric_families import SNAPSHOT_AGE
from gpuwatch.share.openmetrics_text import Family, TextFormat, label_text

CONTENT_TYPES: dict[TextFormat, str] = {
    "plain": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
_COMPRESSION_LEVEL = 4
"""Level of gzip compression: half the time of the default, for 5 % more bytes."""
_GZIP_WINDOW_BITS = 31
"""Window bits with which zlib writes gzip's header and checksum."""
STALE_SECONDS = 60.0
"""Age in seconds from which a sample is no longer shown as the state of now: its readings are left out."""
_POLL_SECONDS = 1.0
"""Seconds after which the state of a feed is read that delivers nothing."""
_SAME_ERROR_SECONDS = 5.0
"""Seconds by which the times may differ at which two collectors received the same error."""


class MetricsPage:
    """The page of one sample. May be read by several threads."""

    def __init__(
        self,
        content: ScrapeContent,
        options: ExporterOptions,
        taken_at: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``taken_at``: when the snapshot was taken, by ``clock``; None without one."""
        self._content, self._options, self._taken_at, self._clock = content, options, taken_at, clock
        self._lock = threading.Lock()
        self._lines: dict[Family, list[str]] | None = None
        self._texts: dict[TextFormat, bytes] = {}
        self._compressed: dict[TextFormat, tuple[bytes, zlib._Compress]] = {}
        """The compressed text without its end, and the state in which the compressor is there."""
        self._host_labels = label_text({"host": options.host})

    def body(self, text_format: TextFormat, *, gzip: bool = False) -> bytes:
        """The page with the age that the sample has now."""
        age_lines = self._age_lines(text_format)
        with self._lock:
            text = self._texts.get(text_format)
            if text is None:
                text = self._texts[text_format] = self._sample_lines(text_format)
            if not gzip:
                return text + age_lines
            if text_format not in self._compressed:
                compressor = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
                compressed = compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)
                self._compressed[text_format] = (compressed, compressor)
            compressed, compressor = self._compressed[text_format]
            compressor = compressor.copy()
        return compressed + compressor.compress(age_lines) + compressor.flush()

    def _sample_lines(self, text_format: TextFormat) -> bytes:
        if self._lines is None:
            self._lines = series_lines(self._content, self._options).lines
        parts = []
        for family, lines in self._lines.items():
            parts.append(family.header(text_format))
            parts += lines
        return "".join(parts).encode()

    def _age_lines(self, text_format: TextFormat) -> bytes:
        text = ""
        if self._taken_at is not None:
            age = max(self._clock() - self._taken_at, 0.0)
            text = f"{SNAPSHOT_AGE.header(text_format)}{SNAPSHOT_AGE.sample_name}{self._host_labels} {age:.3f}\n"
        return (text + ("# EOF\n" if text_format == "openmetrics" else "")).encode()


class XidCounts:
    """Counts by UUID and Xid since a moment, in seconds since the epoch.

    Samples may come from a recorder's collector for a while, whose list is another one: what both received counts once.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._last_xids: dict[str, tuple[Xid, ...]] = {}
        self._counted_until: dict[str, float] = {}
        """When the latest that was counted had been received."""
        self.counts: dict[str, dict[str, int]] = {}
        """By UUID, then by Xid (``unknown`` if the driver does not know it); replaced when something is counted."""

    def observe(self, snapshot: Snapshot) -> None:
        for device in snapshot.devices:
            previous = self._last_xids.get(device.uuid, ())
            if device.xids is previous:
                continue
            self._last_xids[device.uuid] = device.xids
            new_xids = self._new_xids(device.uuid, previous, device.xids)
            if not new_xids:
                continue
            self._counted_until[device.uuid] = max(xid.at for xid in new_xids)
            counts = dict(self.counts.get(device.uuid, {}))
            for xid in new_xids:
                name = "unknown" if xid.code is None else str(xid.code)
                counts[name] = counts.get(name, 0) + 1
            self.counts = self.counts | {device.uuid: counts}
        forget_gone({device.uuid for device in snapshot.devices}, self._last_xids, self._counted_until, self.counts)

    def _new_xids(self, uuid: str, previous: Sequence[Xid], current: Sequence[Xid]) -> Sequence[Xid]:
        # The list grows at its end, and its oldest are dropped.
        for common in range(min(len(previous), len(current)), 0, -1):
            if previous[len(previous) - common :] == current[:common]:
                return current[common:]
        counted_until = self._counted_until.get(uuid)
        since = self._since if counted_until is None else counted_until + _SAME_ERROR_SECONDS
        return [xid for xid in current if xid.at > since]


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
            source = (
                f"of the recorder of {printable_path(status.recording)}" if status.recording else "of its own collector"
            )
            self._log(f"gpuwatch: serving samples {source}")
        if (driver_silent := status.state == "not-answering") != self._driver_silent:
            self._driver_silent = driver_silent
            self._log(status.log_line)
        newest = self._snapshot
        snapshot_findings = newest.findings if newest is not None else ()
        findings = recorded_and_current_findings(snapshot_findings, self._conditions)
        has_driver = newest is not None and newest.driver is not None
        content = ScrapeContent(
            newest,
            tuple(finding for finding in findings if finding.until is None),
            None if status.state == "starting" else status.state == "ok" and has_driver,
            status.replacements,
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

"""The page that is scraped: text of one sample, made once however many scrape it, and the age at each scrape."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable

from gpuwatch.share.exporter.metric_series import Content, Options, series_of
from gpuwatch.share.openmetrics import SNAPSHOT_AGE, Family, Form, labels

CONTENT_TYPES: dict[Form, str] = {
    "plain": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
_COMPRESSION_LEVEL = 4
"""Level of gzip compression: half the time of the default, for 5 % more bytes."""
_GZIP_WINDOW_BITS = 31
"""Window bits with which zlib writes gzip's header and checksum."""


class Page:
    """One sample, as text. May be read by several threads."""

    def __init__(
        self, content: Content, options: Options, taken_at: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``taken_at``: when the snapshot was taken, by ``clock``; None without one."""
        self._content, self._options, self._taken_at, self._clock = content, options, taken_at, clock
        self._lock = threading.Lock()
        self._lines: dict[Family, list[str]] | None = None
        self._texts: dict[Form, bytes] = {}
        self._compressed: dict[Form, tuple[bytes, zlib._Compress]] = {}
        """The compressed text without its end, and the state in which the compressor is there."""
        self._own = labels({"host": options.host})

    def body(self, form: Form, *, gzip: bool = False) -> bytes:
        end = self._end(form)
        with self._lock:
            text = self._texts.get(form)
            if text is None:
                text = self._texts[form] = self._text(form)
            if not gzip:
                return text + end
            if form not in self._compressed:
                compressor = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
                self._compressed[form] = (compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH), compressor)
            begin, compressor = self._compressed[form]
            compressor = compressor.copy()
        return begin + compressor.compress(end) + compressor.flush()

    def _text(self, form: Form) -> bytes:
        if self._lines is None:
            self._lines = series_of(self._content, self._options).lines
        parts = []
        for family, lines in self._lines.items():
            parts.append(family.header(form))
            parts += lines
        return "".join(parts).encode()

    def _end(self, form: Form) -> bytes:
        text = ""
        if self._taken_at is not None:
            age = max(self._clock() - self._taken_at, 0.0)
            text = f"{SNAPSHOT_AGE.header(form)}{SNAPSHOT_AGE.sample}{self._own} {age:.3f}\n"
        return (text + ("# EOF\n" if form == "openmetrics" else "")).encode()

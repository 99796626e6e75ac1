"""The page: rendered once, compressed as one stream, its age as of each scrape."""

from __future__ import annotations

import gzip
import threading
import zlib

import pytest

from gpuwatch.share.exporter import metrics_page as page_module
from gpuwatch.share.exporter.metric_series import ScrapeContent, series_lines
from gpuwatch.share.exporter.metrics_page import MetricsPage
from gpuwatch.share.openmetrics_text import TextFormat
from tests.exporter.machines import OPTIONS, device, snapshot

CONTENT = ScrapeContent(snapshot(device()), driver_answers=True)


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_a_page_is_rendered_once_however_many_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ScrapeContent] = []

    def counted(content: ScrapeContent, options: object) -> object:
        made.append(content)
        return series_lines(content, OPTIONS)

    monkeypatch.setattr(page_module, "series_lines", counted)
    page = MetricsPage(CONTENT, OPTIONS, 0.0)
    assert made == []  # nobody has scraped yet
    forms: list[TextFormat] = ["plain", "openmetrics"]
    readers = [
        threading.Thread(target=page.body, args=(form,), kwargs={"gzip": packed})
        for form in forms
        for packed in (False, True)
        for _ in range(10)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert len(made) == 1


@pytest.mark.parametrize("form", ["plain", "openmetrics"])
def test_the_age_is_that_of_each_scrape(form: TextFormat) -> None:
    clock = Clock()
    page = MetricsPage(CONTENT, OPTIONS, 8.0, clock)
    for later, age in ((0.0, "2.000"), (30.0, "32.000"), (-30.0, "0.000")):
        clock.now = 10.0 + later
        text = page.body(form).decode()
        assert f'gpuwatch_snapshot_age_seconds{{host="node7"}} {age}\n' in text
        assert text.endswith("# EOF\n") == (form == "openmetrics")


@pytest.mark.parametrize("form", ["plain", "openmetrics"])
def test_compressed_it_is_one_stream_of_the_same_text(form: TextFormat) -> None:
    clock = Clock()
    page = MetricsPage(CONTENT, OPTIONS, 8.0, clock)
    for _ in range(3):
        clock.now += 1
        packed = page.body(form, gzip=True)
        assert gzip.decompress(packed) == page.body(form)
        stream = zlib.decompressobj(31)
        assert stream.decompress(packed) == page.body(form)
        assert stream.eof
        assert stream.unused_data == b""  # a client that reads only the first member reads everything
        assert len(packed) < len(page.body(form)) / 4


def test_without_a_sample_there_is_no_age() -> None:
    assert "age" not in MetricsPage(ScrapeContent(), OPTIONS, None).body("plain").decode().replace("Age", "")

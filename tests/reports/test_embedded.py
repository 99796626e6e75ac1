"""An HTML report carries its document: read back whole, masked as the page is, and inert however hostile."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from gpuwatch.cli.input_files import read_document
from gpuwatch.core import input_size_limits
from gpuwatch.core.masking.masked_documents import masked_for_sending
from gpuwatch.core.model.json_codec import EMBED_BEGIN, EMBED_END, Document, NotADocument, from_json, read
from gpuwatch.core.model.run import RunError
from gpuwatch.share.reports.report_formats import render, write
from tests.conftest import gpuwatch
from tests.reports.documents import full_experiment, full_run, full_snapshot, full_usage, hostile_run


class _Scripts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.kinds.append(dict(attrs))


@pytest.mark.parametrize("document", [full_run(), full_snapshot(), full_experiment(), full_usage(), hostile_run()])
def test_a_page_is_read_back_as_its_json_is(document: Document) -> None:
    page = render(document, "html")
    assert from_json(page.encode()) == from_json(render(document, "json").encode())
    found = _Scripts()
    found.feed(page)
    assert found.kinds == [{"type": "application/json", "id": "gpuwatch-document"}, {}]


def test_it_is_masked_as_the_page_is() -> None:
    token = "hf_" + "abcdefghij" * 4
    run = full_run(errors=(RunError(type="E", message=f"login --token {token}"),))
    page = render(run, "html", redact=True)
    assert token not in page
    assert from_json(page.encode()) == from_json(render(masked_for_sending(run, redact=True), "json").encode())


@pytest.mark.parametrize(
    "page",
    [
        b"<!DOCTYPE html><p>other",
        b"<!doctype html>" + EMBED_BEGIN.encode(),
        b"<!doctype html>" + EMBED_BEGIN.encode() * 100_000,
        b"<!doctype html>" + EMBED_BEGIN.encode() + b"<script>alert(1)" + EMBED_END.encode(),
        b"<!doctype html>" + EMBED_BEGIN.encode() + b"[" * 200_000 + EMBED_END.encode(),
        b"<!doctype html>" + EMBED_BEGIN.encode() + b"1,2" + EMBED_END.encode(),
        b"<!doctype html>" + b" " * input_size_limits.DOCUMENT.bytes,
    ],
)
def test_any_other_page_is_refused(page: bytes) -> None:
    with pytest.raises(NotADocument):
        from_json(page)


def test_commands_read_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here.html", tmp_path / "there.html"
    write(full_run(), here)
    write(full_run(driver_version="550.1"), there)
    assert read_document(here) == read(here)
    converted = gpuwatch("report", str(here), "-o", str(tmp_path / "x.md"))
    assert converted.code == 0, converted.err
    assert (tmp_path / "x.md").read_text().startswith("#")
    assert gpuwatch("compare", str(here), str(there), "--json").code == 0
    changed = gpuwatch("diff", str(here), str(there), "--json")
    assert (changed.code, "550.1" in changed.out) == (3, True)
    (tmp_path / "bad.html").write_text("<!doctype html><p>")
    refused = gpuwatch("report", str(tmp_path / "bad.html"))
    assert (refused.code, refused.err.count("\n")) == (2, 1)

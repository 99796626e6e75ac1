"""Links in terminal output (OSC 8): on a terminal that may show them, and nowhere else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gpuwatch.cli.output import linked_file_name, with_links
from gpuwatch.core.formatting.path_text import file_url
from gpuwatch.core.formatting.terminal_support import links_allowed
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.explain.diagnosis.reference.cause_pages import page_path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_terminal_with_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_HYPERLINK"):
        monkeypatch.delenv(name, raising=False)


def test_a_cause_id_links_to_its_page_and_the_text_stays() -> None:
    text = "▲ memory.fragmented (gpuwatch cause memory.fragmented), not memory.fragmentedly or /memory.fragmented"
    shown = with_links(text, Terminal())
    page = page_path("memory.fragmented")
    assert page is not None
    assert shown.count(f"\x1b]8;;{file_url(page)}\x1b\\memory.fragmented\x1b]8;;\x1b\\") == 2
    assert shown.replace(f"\x1b]8;;{file_url(page)}\x1b\\", "").replace("\x1b]8;;\x1b\\", "") == text


def test_every_cause_with_a_page_is_linked() -> None:
    for cause in CAUSES:
        if "." in cause:
            assert "\x1b]8;;file://" in with_links(f"{cause}.", Terminal()), cause


@pytest.mark.parametrize(
    "variables", [{"TERM": "dumb"}, {"TERM": ""}, {"TERM": "linux"}, {"NO_COLOR": "1"}, {"FORCE_HYPERLINK": "0"}]
)
def test_no_links_where_they_are_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert with_links("memory.fragmented", Terminal()) == "memory.fragmented"
    assert linked_file_name(Path("/tmp/a.html"), Terminal()) == "/tmp/a.html"


def test_no_links_in_a_file_or_a_pipe(tmp_path: Path) -> None:
    assert with_links("memory.fragmented", io.StringIO()) == "memory.fragmented"
    assert linked_file_name(tmp_path / "a.html", io.StringIO()) == str(tmp_path / "a.html")
    assert not links_allowed({"TERM": "xterm"}, terminal=False)


def test_a_file_is_linked_with_its_host_and_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = linked_file_name(Path("a b.html"), Terminal())
    assert shown.endswith("\x1b\\a b.html\x1b]8;;\x1b\\")
    assert f"{tmp_path}/a%20b.html\x1b\\" in shown
    assert not shown.startswith("\x1b]8;;file:///"), "with the host"

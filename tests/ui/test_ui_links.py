"""Links on the dashboard (OSC 8): cause ids and reports, where the terminal may show them."""

from __future__ import annotations

import pytest

from gpuwatch.core.formatting.path_text import file_url
from gpuwatch.explain.diagnosis.reference.cause_pages import page_path
from gpuwatch.ui.drawing.text_styles import link_style, style_and_url
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press


@pytest.mark.parametrize("refused", [False, True])
async def test_a_cause_is_a_link_to_its_page(stage: Stage, monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    monkeypatch.setenv("TERM", "dumb" if refused else "xterm-256color")
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "5")
        page = page_path(machines.HELD.id)
        assert page is not None
        evidence = stage.app.tab.evidence  # type: ignore[attr-defined]
        for pane in (stage.app.tab.finding_list, evidence):  # type: ignore[attr-defined]
            links = {
                segment.style.link: segment.text
                for strip in (pane.render_line(y) for y in range(pane.size.height))
                for segment in strip
                if segment.style and segment.style.link
            }
            assert links == ({} if refused else {file_url(page): machines.HELD.id})
        assert machines.HELD.id in evidence.plain
        await pilot.press("c")
        assert stage.app.clipboard == machines.HELD.action, "no escape sequences in what is copied"


def test_an_ink_keeps_its_name_and_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert style_and_url(link_style("file://a/b c", "ok")) == ("ok", "file://a/b c")
    assert style_and_url("ok") == ("ok", "")
    monkeypatch.setenv("NO_COLOR", "1")
    assert link_style("file://a/b", "ok") == "ok"

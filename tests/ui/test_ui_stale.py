"""What is old is dimmed, and can still be read in every theme."""

from __future__ import annotations

import pytest
from textual.color import Color

from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.ui.drawing.textual_themes import known_themes
from gpuwatch.ui.widgets.painted_pane import MIN_READABLE_CONTRAST, contrast
from tests.ui import machines
from tests.ui.conftest import Stage


async def test_old_values_can_be_read_in_every_theme(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        stage.feed.state = FeedStatus(state="not-answering", age_seconds=9.0, waiting_seconds=8.0)
        stage.app._last_sample_at = float("-inf")
        for theme in known_themes():
            stage.app.theme = theme
            await pilot.pause()
            stage.app._tick()
            await pilot.pause()
            pane = stage.app.overview.gpus
            rich, back = pane.rich_style_of("strong"), pane.background_colors[1]
            assert rich.color is not None, theme
            if stage.app.available_themes[theme].ansi:
                continue
            assert rich.bgcolor is not None
            ratio = contrast(Color.from_rich_color(rich.color), Color.from_rich_color(rich.bgcolor))
            assert ratio >= MIN_READABLE_CONTRAST, theme
            assert ratio < contrast(Color.parse(stage.app.theme_variables["foreground"]), back), f"{theme}: dimmed"


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast(Color(0, 0, 0), Color(255, 255, 255)) == pytest.approx(21)
    assert contrast(Color(119, 119, 119), Color(255, 255, 255)) == pytest.approx(4.48, abs=0.01)

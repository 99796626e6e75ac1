"""Waiting for what the dashboard shows, on a machine of any load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot

from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.ui.conftest import Stage

_PATIENCE = 120.0


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Until a condition holds; it fails after two minutes."""
    end = time.monotonic() + _PATIENCE
    await pilot.pause()
    while not holds():
        assert time.monotonic() < end, "it did not come"
        await pilot.pause(0.01)


async def settle(pilot: Pilot[Any]) -> None:
    """What follows from a key or a sample, and from that."""
    for _ in range(3):
        await pilot.pause()


def plain(stage: Stage) -> str:
    """The text of all panes on screen."""
    return "\n".join(pane.plain for pane in stage.app.screen.query(PaintedPane) if pane.display)

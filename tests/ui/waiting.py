"""Waiting for what the dashboard shows, on a machine of any load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from textual.app import App
from textual.pilot import Pilot

from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.waiting import source_of, wait_for_async

if TYPE_CHECKING:
    from tests.ui.conftest import Stage


async def until(pilot: Pilot[Any], holds: Callable[[], object], seconds: float = 120.0) -> None:
    """Until a condition holds; after ``seconds`` it fails, and says what is on screen."""
    await pilot.pause()

    def what() -> str:
        return "\n".join([source_of(holds), *drawn_lines(pilot.app)])

    await wait_for_async(holds, what, seconds, pause=lambda: pilot.pause(0.01))


def drawn_lines(app: App[Any]) -> list[str]:
    """What is written to the terminal, line by line."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


async def settle(pilot: Pilot[Any]) -> None:
    """What follows from a key or a sample, and from that; details of a process, which a thread reads."""
    await pilot.pause()
    await pilot.pause()
    while getattr(pilot.app.screen, "reading", False):
        await pilot.pause(0.01)
    await pilot.pause()


@asynccontextmanager
async def opened(app: App[Any], size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[Any]]:
    """An app on a terminal of this size, once it has drawn what there is."""
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        yield pilot


async def press(pilot: Pilot[Any], *keys: str) -> None:
    """Presses keys, and waits for what follows."""
    await pilot.press(*keys)
    await settle(pilot)


def plain(stage: Stage) -> str:
    """The text of all panes on screen."""
    return "\n".join(pane.plain for pane in stage.app.screen.query(PaintedPane) if pane.display)

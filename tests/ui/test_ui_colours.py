"""Terminals with sixteen colours, and those that cannot move the cursor."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.formatting.terminal import cannot_draw, has_few_colors
from gpuwatch.session.session import Session
from gpuwatch.sim.machine import SimMachine
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.drawing import theme
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import Loaded
from gpuwatch.ui.widgets.paint import Painted
from tests.terminal import Terminal
from tests.ui import machines
from tests.ui.feed import FakeFeed


@pytest.mark.parametrize(
    ("environment", "few"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "linux"}, True),
        ({"TERM": "screen", "COLORTERM": ""}, True),
        ({"TERM": "xterm-16color"}, True),
        ({}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-kitty"}, False),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, False),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "TEXTUAL_COLOR_SYSTEM": "truecolor"}, False),
    ],
)
def test_who_has_sixteen_colours(environment: dict[str, str], few: bool) -> None:
    assert has_few_colors(environment) is few


@pytest.mark.parametrize(("term", "unable"), [("dumb", True), ("unknown", True), ("xterm", False), ("", False)])
def test_who_can_be_drawn_on(term: str, unable: bool) -> None:
    assert bool(cannot_draw({"TERM": term})) is unable


def app_with(chosen: str) -> GpuwatchApp:
    loaded = Loaded(preferences=Preferences(theme=chosen), path=Path("/nowhere/gpuwatch.toml"))
    return GpuwatchApp(Session(FakeFeed()), settings=loaded, few_colors=True)


@pytest.mark.parametrize("chosen", ["gpuwatch", "gpuwatch-light", "nord"])
async def test_sixteen_stand_in_for_the_chosen_theme_which_stays_chosen(chosen: str) -> None:
    app = app_with(chosen)
    assert app.theme == theme.SIXTEEN
    async with app.run_test(size=(120, 40)) as pilot:
        feed = app.session.feed
        assert isinstance(feed, FakeFeed)
        feed.push(machines.broken())
        await pilot.pause()
        assert app.gathered().theme == chosen
        pane = app.screen.query(Painted).first()
        number = {ink: pane.ink(ink).color.number for ink in ("error", "warning", "ok", "memory", "accent")}
        assert number == {"error": 1, "warning": 3, "ok": 2, "memory": 5, "accent": 6}
        assert pane.ink("dim").dim
        app.theme = "nord"
        assert app.gathered().theme == "nord", "who chooses another one now means it"


def test_a_theme_of_sixteen_colours_that_was_chosen_is_left_alone() -> None:
    assert app_with("ansi-light").theme == "ansi-light"
    assert theme.is_known(theme.SIXTEEN)
    assert theme.SIXTEEN in theme.known_themes()


def test_red_yellow_and_green_on_a_terminal_of_sixteen(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = {k: v for k, v in sim_machine("2x8GiB").environment(os.environ).items() if k != "COLORTERM"}
    terminal = Terminal(["env", "TERM=xterm", sys.executable, "-m", "gpuwatch"], environment, 120, 40)
    try:
        assert terminal.drain(20, lambda output: b"quit" in output and b"SIMULATED" in output) is not None
        terminal.drain(0.5)
        used = {int(one) for ink in re.findall(rb"\x1b\[([0-9;]+)m", terminal.output) for one in ink.split(b";")}
        assert {32, 33, 36} <= used, "green, yellow, cyan"
        assert not used & {38, 48}, "nothing that it does not have"
        terminal.keys("q")
    finally:
        assert terminal.close() == 0


def test_a_dumb_terminal_is_refused_in_one_line(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("1x8GiB").environment(os.environ)
    terminal = Terminal(["env", "TERM=dumb", sys.executable, "-m", "gpuwatch"], environment, 120, 40)
    terminal.drain(10, lambda output: b"\n" in output)
    assert terminal.close() == 2
    output = terminal.output.decode()
    assert output.count("\n") == 1
    assert "TERM is dumb" in output
    assert "gpuwatch snapshot" in output
    assert "\x1b" not in output

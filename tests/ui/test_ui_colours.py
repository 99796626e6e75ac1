"""What colours mean in every theme; terminals with sixteen colours, and those that cannot move the cursor."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import pytest
from textual.color import Color

from gpuwatch.core.formatting.terminal_support import has_few_colors, why_cannot_draw
from gpuwatch.session.session import Session
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.drawing import textual_themes
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.panes.machine_lines import top_line
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings
from gpuwatch.ui.tables.gpu_fields import GRAPHS
from gpuwatch.ui.tables.gpu_loads import DEFAULT_THRESHOLDS, NORMAL, load_level
from gpuwatch.ui.widgets.painted_pane import MIN_READABLE_CONTRAST, PaintedPane, contrast
from tests.every import every
from tests.terminal import Terminal
from tests.ui import machines
from tests.ui.feed import FakeFeed
from tests.ui.test_ui_first import view_of

ALARMS = ("warning", "error")
QUANTITIES = ("success", "secondary", "primary")
"""Utilization, memory, power."""
APART = 15.0
"""Distance in CIELAB below which two colours are taken for one; 2.3 is just noticeable side by side."""


@every(
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
    ]
)
def test_who_has_sixteen_colours(environment: dict[str, str], few: bool) -> None:
    assert has_few_colors(environment) is few


@pytest.mark.parametrize(("term", "unable"), [("dumb", True), ("unknown", True), ("xterm", False), ("", False)])
def test_who_can_be_drawn_on(term: str, unable: bool) -> None:
    assert bool(why_cannot_draw({"TERM": term})) is unable


def app_with(chosen: str) -> GpuwatchApp:
    loaded = LoadedSettings(preferences=Preferences(theme=chosen), path=Path("/nowhere/gpuwatch.toml"))
    return GpuwatchApp(Session(FakeFeed()), settings=loaded, few_colors=True)


@pytest.mark.parametrize("chosen", ["gpuwatch", "gpuwatch-light", "nord"])
async def test_sixteen_stand_in_for_the_chosen_theme_which_stays_chosen(chosen: str) -> None:
    app = app_with(chosen)
    assert app.theme == textual_themes.SIXTEEN_COLORS
    async with app.run_test(size=(120, 40)) as pilot:
        feed = app.session.feed
        assert isinstance(feed, FakeFeed)
        feed.push(machines.broken())
        await pilot.pause()
        assert app.current_preferences().theme == chosen
        pane = app.screen.query(PaintedPane).first()
        number = {
            style: pane.rich_style_of(style).color.number for style in ("error", "warning", "ok", "memory", "accent")
        }
        assert number == {"error": 1, "warning": 3, "ok": 2, "memory": 5, "accent": 6}
        assert pane.rich_style_of("dim").dim
        app.theme = "nord"
        assert app.current_preferences().theme == "nord", "who chooses another one now means it"


def test_a_theme_of_sixteen_colours_that_was_chosen_is_left_alone() -> None:
    assert app_with("ansi-light").theme == "ansi-light"
    assert textual_themes.is_theme(textual_themes.SIXTEEN_COLORS)
    assert textual_themes.SIXTEEN_COLORS in textual_themes.known_themes()


def test_green_and_cyan_on_a_terminal_of_sixteen(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = {k: v for k, v in sim_machine("2x8GiB").environment(os.environ).items() if k != "COLORTERM"}
    terminal = Terminal(["env", "TERM=xterm", sys.executable, "-m", "gpuwatch"], environment, 120, 40)
    try:
        assert terminal.drain(20, lambda output: b"quit" in output and b"SIMULATED" in output) is not None
        terminal.drain(0.5)
        used = {int(one) for style in re.findall(rb"\x1b\[([0-9;]+)m", terminal.output) for one in style.split(b";")}
        assert {32, 36} <= used, "green, cyan"
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


def _lab(color: Color) -> tuple[float, float, float]:
    """CIELAB, in which equal distances look alike."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized
    )
    parts = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089,
    )
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in parts)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_in_every_theme_alarms_stand_apart_quantities_differ_and_all_can_be_read() -> None:
    app = app_with("gpuwatch")
    unreadable, alike = [], []
    for name, found in app.available_themes.items():
        if found.ansi:  # the terminal's own colours
            continue
        hues = found.to_color_system().generate()
        colors = {one: Color.parse(hues[one]) for one in (*ALARMS, *QUANTITIES, "accent", "foreground")}
        for one, color in colors.items():
            grounds = ("background", "panel") if one == "foreground" else ("background",)
            unreadable += [
                (name, one) for ground in grounds if contrast(color, Color.parse(hues[ground])) < MIN_READABLE_CONTRAST
            ]
        apart = [*combinations(QUANTITIES, 2), ALARMS, *product(ALARMS, (*QUANTITIES, "accent"))]
        alike += [(name, *pair) for pair in apart if math.dist(*(_lab(colors[one]) for one in pair)) < APART]
    assert (unreadable, alike) == ([], [])


def test_no_graph_has_the_style_of_a_state() -> None:
    styles = {field.graph.style for field in GRAPHS.values()}
    assert not styles & {"warning", "error", "high", "full", "accent"}


def test_full_use_and_simulation_are_no_alarm() -> None:
    full = machines.device(0, busy=100, readings={"memory.used_bytes": 139 * machines.GIB, "power.draw_watts": 699.0})
    at = DEFAULT_THRESHOLDS
    assert {load_level("utilization", full, at), load_level("memory", full, at), load_level("power", full, at)} == {
        NORMAL
    }
    builder = LineBuilder(120)
    top_line(builder, view_of(machines.simulated()), "overview")
    assert [style for text, style in builder.spans if "SIMULATED" in text] == ["badge-neutral"]

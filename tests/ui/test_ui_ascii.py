"""ASCII mode: no cell of any screen holds anything else, and nothing moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.formatting.terminal_support import why_only_ascii
from gpuwatch.ui.drawing.glyphs import ASCII_REPLACEMENTS, ascii_key_name, to_ascii
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings, default_path
from gpuwatch.ui.settings.tabs import TABS
from tests.every import every
from tests.ui.pictures import app_with, made_up_probe_runs
from tests.ui.probe_bench import Bench
from tests.ui.waiting import drawn_lines, press, settle


def widths(lines: list[str]) -> list[int]:
    return [width_of(line) for line in lines]


@pytest.mark.parametrize(
    ("machine", "size"),
    [
        *((machine, (120, 40)) for machine in ("pair", "no_driver", "broken")),
        ("hostile", (80, 24)),
        ("sixteen", (200, 60)),
    ],
)
async def test_every_tab_is_ascii(machine: str, size: tuple[int, int], tmp_path: Any) -> None:
    settings = LoadedSettings(default_path(), Preferences(ascii=True))
    app, feed = app_with(machine, probe_runs=made_up_probe_runs(tmp_path), settings=settings)
    async with app.run_test(size=size) as pilot:
        feed.push()
        for number in range(1, len(TABS) + 1):
            await press(pilot, str(number))
            lines = drawn_lines(pilot.app)
            assert len(lines) == size[1]
            for line in lines:
                assert line.isascii(), line
                assert len(line) == size[0]


async def test_every_sheet_is_ascii(tmp_path: Any) -> None:
    settings = LoadedSettings(default_path(), Preferences(ascii=True))
    app, feed = app_with("pair", probe_runs=made_up_probe_runs(tmp_path), settings=settings)
    filters = (("slash", *"user:é"), ("slash", *"mem>lots"))
    others = ("question_mark", "c", "s", "i", "f", "K", "ctrl+p", "P", "shift+tab c", "4 enter", "4 p", "4 e")
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push()
        await settle(pilot)
        at_first = drawn_lines(pilot.app)
        for keys in (*filters, *(keys.split() for keys in others)):
            for key in keys:
                await press(pilot, key)
            shown = drawn_lines(pilot.app)
            text = "".join(shown)
            assert text.isascii(), (keys, [char for char in text if not char.isascii()])
            assert shown != at_first, keys
            await press(pilot, "escape", "escape", "1", "escape")


async def test_switched_in_the_app_and_back_every_cell_stays_in_its_place(tmp_path: Any) -> None:
    app, feed = app_with("pair", probe_runs=Bench(tmp_path).probe_runs)
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push()
        await settle(pilot)
        before = drawn_lines(pilot.app)
        assert not "".join(before).isascii()
        app.action_toggle_ascii()
        await settle(pilot)
        after = drawn_lines(pilot.app)
        assert "".join(after).isascii()
        # The footer names keys in words; every other line is the same, sign by sign.
        assert [to_ascii(line) for line in before[:-1]] == after[:-1]
        assert app.current_preferences().ascii is True
        app.action_toggle_ascii()
        await settle(pilot)
        assert drawn_lines(pilot.app) == before


async def test_tabs_that_were_looked_at_before_are_ascii_when_they_return(tmp_path: Any) -> None:
    app, feed = app_with("pair", probe_runs=made_up_probe_runs(tmp_path))
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push()
        for number in (*range(1, len(TABS) + 1), 1):
            await press(pilot, str(number))
        app.action_toggle_ascii()
        for number in range(len(TABS), 0, -1):
            await press(pilot, str(number))
            assert "".join(drawn_lines(pilot.app)).isascii(), TABS[number - 1].id


async def test_a_terminal_that_needs_it_gets_it_and_it_is_not_saved(tmp_path: Any) -> None:
    app, feed = app_with("pair", probe_runs=Bench(tmp_path).probe_runs, ascii_only=True)
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push()
        await settle(pilot)
        assert "".join(drawn_lines(pilot.app)).isascii()
        assert app.current_preferences().ascii is None


def test_a_sign_has_the_width_of_what_stands_for_it() -> None:
    for sign, plain in ASCII_REPLACEMENTS.items():
        assert plain.isascii()
        assert width_of(sign) == len(plain), sign


def test_bars_graphs_and_numbers_can_be_read() -> None:
    assert to_ascii("GPU ▕███████▌  ▏ 97 %") == "GPU |#######=  | 97 %"
    assert to_ascii("⣀⣤⣶⣿ ⢀⡀") == ".:+# .."
    assert to_ascii("╭─ 0 · H200 ─╮") == "+- 0 - H200 -+"
    assert to_ascii("▲ 1 warning ✖ lost – 0→1 …") == "! 1 warning x lost - 0>1 ~"
    assert to_ascii("café 漢字") == "caf? ????"


def test_keys_are_spelled() -> None:
    assert [ascii_key_name(key) for key in ("↵", "⇧Tab", "↑ k", "space", "← →")] == [
        "Enter",
        "S-Tab",
        "Up k",
        "space",
        "Left Right",
    ]


@pytest.mark.thorough
@given(st.text())
def test_any_text_becomes_ascii_of_its_width(text: str) -> None:
    plain = to_ascii(text)
    assert plain.isascii()
    if text.isprintable():
        assert len(plain) == width_of(text)


@pytest.mark.parametrize(
    ("term", "encoding", "needed"),
    [
        ("xterm-256color", "utf-8", False),
        ("xterm-256color", "UTF-8", False),
        ("tmux-256color", "utf-8", False),
        ("linux", "utf-8", True),
        ("vt220", "utf-8", True),
        ("xterm-256color", "iso8859-1", True),
        ("xterm-256color", "ascii", True),
        ("xterm-256color", "no-such-codec", True),
        ("", "utf-8", False),
    ],
)
def test_when_it_is_chosen_by_itself(term: str, encoding: str, needed: bool) -> None:
    assert bool(why_only_ascii({"TERM": term}, encoding)) is needed


@every(
    [
        ({}, False),
        ({"LANG": "C.UTF-8"}, False),
        ({"LANG": "de_DE.UTF-8"}, False),
        ({"LANG": "de_DE.utf8@euro"}, False),
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "C", "LANG": "de_DE.UTF-8"}, True),
        ({"LC_CTYPE": "en_US.UTF-8", "LANG": "C"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False),
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
        ({"LC_ALL": "de_DE.ISO-8859-1"}, True),
        ({"LC_ALL": "de_DE.no-such-codec"}, True),
    ]
)
def test_the_locale_that_is_asked_for_decides_though_python_writes_utf8(asked: dict[str, str], needed: bool) -> None:
    assert bool(why_only_ascii({"TERM": "xterm-256color", **asked}, "utf-8")) is needed


def test_term_says_nothing_of_a_file() -> None:
    assert why_only_ascii({"TERM": "linux"}, "utf-8")
    assert not why_only_ascii({"TERM": "linux"}, "utf-8", terminal=False)

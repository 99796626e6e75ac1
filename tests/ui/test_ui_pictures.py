"""Pictures of the canonical machines. ``pytest tests/ui --snapshot-update`` after looking at them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpuwatch.ui.lab import Lab
from gpuwatch.ui.preferences import Loaded, Preferences, default_path, load
from gpuwatch.ui.theme import PALETTES
from tests.ui.pictures import app_with, arrived, lab_with_runs

SIZES = [(80, 24), (120, 40), (200, 60)]
MACHINES = ["pair", "one", "eight200", "sixteen", "no_driver", "simulated", "broken", "hostile"]


def compare(
    snap_compare: Callable[..., bool],
    machine: str,
    size: tuple[int, int],
    *keys: str,
    lab: Lab | None = None,
    **options: Any,
) -> bool:
    app, feed = app_with(machine, lab=lab, **options)

    async def before(pilot: Pilot[Any]) -> None:
        feed.push()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await arrived(pilot)

    return snap_compare(app, terminal_size=size, run_before=before)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("machine", MACHINES)
def test_machine(snap_compare: Callable[..., bool], machine: str, size: tuple[int, int]) -> None:
    assert compare(snap_compare, machine, size)


@pytest.mark.parametrize("machine", ["one", "eight200", "sixteen", "forty"])
def test_large(snap_compare: Callable[..., bool], machine: str) -> None:
    assert compare(snap_compare, machine, (250, 80))


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("machine", ["pair", "forty"])
def test_ascii(snap_compare: Callable[..., bool], machine: str, size: tuple[int, int]) -> None:
    assert compare(snap_compare, machine, size, settings=Loaded(default_path(), Preferences(ascii=True)))


@pytest.mark.parametrize("theme", [palette.name for palette in PALETTES[1:]])
def test_theme(snap_compare: Callable[..., bool], theme: str) -> None:
    assert compare(snap_compare, "pair", (120, 40), settings=Loaded(default_path(), Preferences(theme=theme)))


def test_broken_settings(snap_compare: Callable[..., bool]) -> None:
    path = default_path()
    path.write_text('colums = ["pid"]\n[processes]\nsort = "memroy"\n')
    assert compare(snap_compare, "pair", (120, 40), settings=load(path))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("columns", ("c", "down", "down", "space")),
        ("wrong-filter", ("slash", *"torch mem>l")),
        ("help", ("question_mark",)),
        ("sort", ("s",)),
        ("missing", ("down", "down", "down", "i")),
        ("findings", ("f",)),
        ("filter", ("slash", *"torch")),
        ("paused", ("P",)),
        ("gpus", ("shift+tab", "shift+tab", "right")),
        ("signal", ("k",)),
        ("tagged", ("space", "space", "k")),
        ("tree", ("t",)),
        ("users", ("u",)),
        ("back", ("left_curly_bracket",)),
    ],
    ids=[
        "columns",
        "wrong-filter",
        "help",
        "sort",
        "missing",
        "findings",
        "filter",
        "paused",
        "gpus",
        "signal",
        "tagged",
        "tree",
        "users",
        "back",
    ],
)
def test_state(snap_compare: Callable[..., bool], name: str, keys: tuple[str, ...]) -> None:
    assert compare(snap_compare, "pair", (120, 40), *keys)


@pytest.mark.parametrize("size", SIZES[:2], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(
    ("name", "machine", "keys"),
    [
        ("gpu", "pair", ("2",)),
        ("gpu-broken", "broken", ("2", "right", "right")),
        ("process", "pair", ("enter",)),
        ("process-denied", "pair", ("down", "enter", "down")),
        ("process-hostile", "hostile", ("enter", "e")),
        ("probes", "pair", ("4", "down")),
        ("probes-running", "pair", ("4",)),
        ("probes-new", "pair", ("4",)),
        ("run", "pair", ("4", "down", "enter")),
        ("parameters", "pair", ("4", "p")),
        ("findings", "pair", ("5",)),
        ("nothing-wrong", "one", ("5",)),
        ("events", "lively", ("6",)),
        ("events-none", "pair", ("6",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tab(
    snap_compare: Callable[..., bool],
    tmp_path: Path,
    name: str,
    machine: str,
    keys: tuple[str, ...],
    size: tuple[int, int],
) -> None:
    new = name == "probes-new"
    lab = lab_with_runs(tmp_path, live=name == "probes-running")
    if new:
        lab.runs, lab.chosen, lab.interpreter = {}, set(), None
    assert compare(snap_compare, machine, size, *keys, lab=lab)


def test_starting(snap_compare: Callable[..., bool]) -> None:
    app, feed = app_with("pair", ticks=1)
    feed.drain()
    assert snap_compare(app, terminal_size=(120, 40))


def test_tiny(snap_compare: Callable[..., bool]) -> None:
    assert compare(snap_compare, "pair", (20, 5))

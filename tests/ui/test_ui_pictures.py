"""Pictures of the canonical machines. ``pytest tests/ui --snapshot-update`` after looking at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.session.background_probes import ProbeRuns
from gpuwatch.ui.screens import help_sheet
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings, default_path
from gpuwatch.ui.tables import process_columns, reading_groups
from gpuwatch.ui.tables.process_filter import FILTER_WORDS
from tests.ui import machines
from tests.ui.pictures import app_with, made_up_probe_runs
from tests.ui.waiting import press

MACHINES = [
    *(("pair", size) for size in ((80, 24), (120, 40), (200, 60))),
    *((name, (120, 40)) for name in ("eight200", "no_driver", "simulated", "broken")),
    ("hostile", (80, 24)),
    ("sixteen", (200, 60)),
    ("forty", (250, 80)),
]
"""One picture of what is drawn in its own way; other sizes are lines of text in test_ui_lines.py and elsewhere."""


@pytest.fixture(autouse=True)
def _lists_that_may_grow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A metric that these machines do not have, or a column that is not shown by default, changes no picture."""
    device = machines.device(0)
    metrics = tuple(spec for spec in METRICS if spec.id in device.readings or spec.id in device.missing)
    monkeypatch.setattr(reading_groups, "METRICS", metrics)
    monkeypatch.setattr(
        process_columns, "COLUMNS", tuple(each for each in process_columns.COLUMNS if each.shown_by_default)
    )
    monkeypatch.setattr(help_sheet, "FILTER_WORDS", [(word, f"what {word} matches") for word, _ in FILTER_WORDS])
    reading_groups.metrics_by_group.cache_clear()
    yield
    reading_groups.metrics_by_group.cache_clear()


def compare(
    snap_compare: Callable[..., bool],
    machine: str,
    size: tuple[int, int],
    *keys: str,
    probe_runs: ProbeRuns | None = None,
    **options: Any,
) -> bool:
    app, feed = app_with(machine, probe_runs=probe_runs, **options)

    async def before(pilot: Pilot[Any]) -> None:
        feed.push()
        await pilot.pause()
        for key in keys:
            await press(pilot, key)

    return snap_compare(app, terminal_size=size, run_before=before)


def size_of(value: object) -> str | None:
    return f"{value[0]}x{value[1]}" if isinstance(value, tuple) and len(value) == 2 else None


@pytest.mark.parametrize(("machine", "size"), MACHINES, ids=size_of)
def test_machine(snap_compare: Callable[..., bool], machine: str, size: tuple[int, int]) -> None:
    assert compare(snap_compare, machine, size)


@pytest.mark.parametrize(("machine", "size"), [("pair", (120, 40)), ("forty", (80, 24))], ids=size_of)
def test_ascii(snap_compare: Callable[..., bool], machine: str, size: tuple[int, int]) -> None:
    assert compare(snap_compare, machine, size, settings=LoadedSettings(default_path(), Preferences(ascii=True)))


def test_theme(snap_compare: Callable[..., bool]) -> None:
    assert compare(
        snap_compare, "pair", (120, 40), settings=LoadedSettings(default_path(), Preferences(theme="gpuwatch-light"))
    )


STATES = {
    "columns": ("c", "down", "down", "space"),
    "help": ("question_mark",),
    "missing": ("down", "down", "down", "i"),
    "gpus": ("shift+tab", "shift+tab", "right"),
    "signal": ("K",),
    "tree": ("t",),
    "back": ("left_curly_bracket",),
}


@pytest.mark.parametrize("name", STATES)
def test_state(snap_compare: Callable[..., bool], name: str) -> None:
    assert compare(snap_compare, "pair", (120, 40), *STATES[name])


TABS = {
    "gpu": ("pair", ("2",), (120, 40)),
    "gpu-broken": ("broken", ("2", "right", "right"), (80, 24)),
    "process": ("pair", ("enter",), (120, 40)),
    "process-hostile": ("hostile", ("enter", "e"), (80, 24)),
    "probes": ("pair", ("4", "down"), (120, 40)),
    "probes-running": ("pair", ("4",), (80, 24)),
    "run": ("pair", ("4", "down", "enter"), (120, 40)),
    "preflight": ("pair", ("4", "down", "x"), (120, 40)),
    "findings": ("pair", ("5",), (120, 40)),
    "events": ("lively", ("6",), (120, 40)),
}


@pytest.mark.parametrize("name", TABS)
def test_tab(snap_compare: Callable[..., bool], tmp_path: Path, name: str) -> None:
    machine, keys, size = TABS[name]
    probe_runs = made_up_probe_runs(tmp_path, live=name == "probes-running")
    assert compare(snap_compare, machine, size, *keys, probe_runs=probe_runs)


def test_starting(snap_compare: Callable[..., bool]) -> None:
    app, feed = app_with("pair", ticks=1)
    feed.drain()
    assert snap_compare(app, terminal_size=(120, 40))

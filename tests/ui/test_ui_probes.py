"""The Probes tab under the hand of a user, on probes that are made up; and real ones that must die."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import FrameworkMissing, Interpreter
from gpuwatch.experiment.probing.probe_runner import ProbeRunner
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.session.background_probes import ProbeRuns
from gpuwatch.share.reports.runs_side_by_side import compare
from gpuwatch.ui.details.probe_descriptions import current_activity
from gpuwatch.ui.screens.probe_sheets import ParametersSheet, PreflightSheet
from gpuwatch.ui.screens.probes import ProbesScreen
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.widgets.probe_details import probe_bar_lines
from gpuwatch.ui.widgets.probe_table import ConfigRow, EarlierRunRow, GroupRow, fit_cell, place_columns
from tests.terminal import family
from tests.ui import machines, waiting
from tests.ui.conftest import Stage
from tests.ui.probe_bench import Bench, FakeCollector, run_of
from tests.ui.waiting import plain, press, settle
from tests.waiting import wait_for

MakeStage = Callable[..., Stage]


async def until(pilot: Pilot[None], holds: Callable[[], bool], seconds: float = 60.0) -> None:
    await waiting.until(pilot, holds, seconds)
    await settle(pilot)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "runs")


@pytest.fixture
def stage(bench: Bench) -> Stage:
    return Stage(probe_runs=bench.probe_runs)


async def open_probes(stage: Stage, pilot: Pilot[None]) -> ProbesScreen:
    await stage.show(pilot, machines.pair())
    await press(pilot, "4")
    return stage.screen(ProbesScreen)


def put_cursor(screen: ProbesScreen, config: str) -> None:
    rows = screen.table.items
    number = next(n for n, row in enumerate(rows) if isinstance(row, ConfigRow) and row.script.name == config)
    screen.table.put_cursor(number)
    screen.table.redraw()


async def test_choosing_one_a_group_and_all(stage: Stage, bench: Bench) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        memory = {script.name for script in bench.probe_runs.scripts.values() if script.group == "memory"}
        await pilot.press("space")
        assert bench.probe_runs.selected == memory, "a group's heading chooses its group"
        assert isinstance(screen.table.item_under_cursor, GroupRow), "the cursor stays, so that space again undoes it"
        await pilot.press("space")
        assert not bench.probe_runs.selected
        put_cursor(screen, "growth")
        await pilot.press("space")
        assert bench.probe_runs.selected == {"growth"}
        await settle(pilot)
        assert "1 selected" in plain(stage)
        await pilot.press("a")
        assert bench.probe_runs.selected == set(bench.probe_runs.scripts)
        await pilot.press("a")
        assert not bench.probe_runs.selected


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_runs_fill_the_table(stage: Stage, bench: Bench, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        screen = await open_probes(stage, pilot)
        await pilot.press("space", "x", "y")
        await until(pilot, lambda: bench.probe_runs.live is None and len(bench.probe_runs.runs) > 3)
        names = [script.name for script in bench.probe_runs.scripts.values() if script.group == "memory"]
        assert bench.runners[0].ran == names
        assert bench.runners[0].closed
        assert bench.collector.stopped == 1
        screen.table.move("home")
        text = screen.table.plain
        assert f"{len(names)} of {len(names)} ran" in text
        for part in ("STEPS/S", "VERDICT", "▲ ok · unknown", "293 ±0"):
            assert part in text
        if size[0] >= 120:
            for head in ("CONFIG", "ASKED", "GRANTED", "NVML", "MAP"):
                assert head in text
            assert "137.9 GiB" in text
            assert "★" in text, "the best of a column is marked"
            assert screen.bars.display
            assert "from 0 to 137.9 GiB" in screen.bars.plain
            assert "▕█" in screen.bars.plain
            assert "of GPU memory" in screen.conclusion.plain or "instead of" in screen.conclusion.plain
        else:
            assert not screen.bars.display
        assert screen.conclusion.display
        assert all(len(line) <= size[0] for line in plain(stage).splitlines())
        assert len(bench.probe_runs.store.latest()) == len(names), "runs are kept"


async def test_progress_events_and_memory_are_live(stage: Stage, bench: Bench) -> None:
    holder = machines.process(0, gpu=0, pid=4711, readings={"gpu_memory_bytes": 5 * machines.GIB})
    bench.collector.snapshot = machines.snapshot(machines.pair().devices, (holder,))
    bench.gate = threading.Event()
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        await pilot.press("a", "x", "y")
        await until(pilot, lambda: bench.probe_runs.live is not None and bool(bench.probe_runs.live.process_bytes))
        await until(pilot, lambda: "process 5.0 GiB" in plain(stage))
        text = plain(stage)
        assert f"0 of {len(bench.probe_runs.scripts)} done · default" in text
        assert "▸ measuring: 40 steps" in text
        assert "measuring: 20 steps" not in text, "progress takes one line"
        assert "queued" in text
        assert "0–139.8 GiB" in text
        # The dashboard goes on: another tab, and back.
        await press(pilot, "1", "4", "down")
        assert stage.app.screen is screen
        bench.gate.set()
        await until(pilot, lambda: bench.probe_runs.live is None)
        assert len(bench.probe_runs.runs) == len(bench.probe_runs.scripts)


@pytest.mark.parametrize("key", ["escape", "x"])
async def test_a_batch_can_be_stopped(stage: Stage, bench: Bench, key: str) -> None:
    bench.gate = threading.Event()
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await open_probes(stage, pilot)
        await pilot.press("a", "x", "y")
        await until(pilot, lambda: bool(bench.runners and bench.runners[0].ran))
        await pilot.press(key)
        await until(pilot, lambda: bench.probe_runs.live is None)
        assert len(bench.runners[0].ran) == 1
        assert bench.runners[0].closed
        assert bench.collector.stopped == 1
        assert "the running probe was ended" in plain(stage)
        bench.gate.set()
        await pilot.press("x", "y")
        await until(
            pilot, lambda: bench.probe_runs.live is None and len(bench.probe_runs.runs) == len(bench.probe_runs.scripts)
        )


async def test_nothing_runs_before_the_users_of_the_gpu_are_shown(stage: Stage, bench: Bench) -> None:
    holder = machines.process(0, gpu=0, pid=4711, readings={"gpu_memory_bytes": 5 * machines.GIB})
    machine = machines.snapshot(tuple(machines.device(number, busy=0) for number in range(3)), (holder,))
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        await stage.show(pilot, machine)
        put_cursor(screen, "growth")
        for keys in (("x", "enter"), ("x", "escape"), ("x", "n"), ("enter", "escape")):
            await press(pilot, *keys)
            assert not bench.runners, keys
        await press(pilot, "x")
        assert "GPU 0 is not used: it is busy" in plain(stage)
        assert "no compute process" in plain(stage)
        await pilot.press("down", "enter")
        await until(pilot, lambda: "growth" in bench.probe_runs.runs and bench.probe_runs.live is None)
        assert bench.runners[0].options.visible_uuids == (machines.uuid(1), machines.uuid(2))
        put_cursor(screen, "visible-env")
        await press(pilot, "x")
        text = plain(stage)
        for part in ("visible-env selects its GPUs itself", "4711", "holding 5.0 GiB", "at risk"):
            assert part in text
        assert len(bench.runners) == 1


async def test_the_table_marks_scattered_steps_as_the_reports_do(stage: Stage, bench: Bench) -> None:
    def scattered(script: ProbeScript, number: int = 0, **changes: Any) -> Any:
        run = run_of(script, number)
        assert run.throughput is not None
        slow = msgspec.structs.replace(run.throughput, p90_step_seconds=2 * run.throughput.median_step_seconds)
        return msgspec.structs.replace(run, throughput=slow) if script.name == "growth" else run

    bench.make = scattered  # type: ignore[assignment]
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        await pilot.press("space", "x", "y")
        await until(pilot, lambda: bench.probe_runs.live is None and len(bench.probe_runs.runs) > 3)
        screen.table.move("home")
        lines = screen.table.plain.splitlines()
        assert "▲ ▲ ok" in " ".join(next(line for line in lines if " growth " in line).split())
        assert "0 ▲ ok" in " ".join(next(line for line in lines if " default " in line).split())
        put_cursor(screen, "growth")
        await press(pilot, "down", "up")
        assert "uncertain by more than 5 %" in plain(stage)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_a_probe_is_found_by_its_name_and_run(stage: Stage, bench: Bench, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        screen = await open_probes(stage, pilot)
        assert screen.filter_bar is None
        total = len(bench.probe_runs.scripts)
        await press(pilot, "slash", *"growth")
        assert stage.app.tab is screen
        assert 0 < screen.matches[0] < screen.matches[1] == total
        await press(pilot, "enter")
        assert screen.framed or re.search(r"/growth \d+ of \d+ \(Esc\)", screen.keys.plain)
        await pilot.press("x", "y")
        await until(pilot, lambda: bench.probe_runs.runs and bench.probe_runs.live is None)
        assert set(bench.probe_runs.runs) == {"growth"}
        await press(pilot, "escape")
        assert screen.matches == (total, total)
        await press(pilot, "slash", *"zzzz")
        assert "no match; Esc clears it" in plain(stage)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
async def test_selected_runs_are_compared_side_by_side(stage: Stage, bench: Bench, size: tuple[int, int]) -> None:
    for name in ("growth", "default", "limit"):
        bench.probe_runs.runs[name] = run_of(bench.probe_runs.scripts[name])
    async with stage.app.run_test(size=size) as pilot:
        screen = await open_probes(stage, pilot)
        for chosen in (None, "growth"):
            if chosen is not None:
                put_cursor(screen, chosen)
                await press(pilot, "space")
            assert "c compare 3" in screen.keys.plain
            await press(pilot, "c")
            assert len(screen.comparison().runs) == 3
            assert screen.details.plain.count("Δ ") == len(screen.comparison().differences) > 0
            await press(pilot, "c")
            assert "Δ" not in screen.details.plain
        put_cursor(screen, "fraction")
        await press(pilot, "space", "c")
        assert "fraction has not run yet; x" in screen.details.plain
        assert not screen.with_earlier
        bench.probe_runs.selected.remove("fraction")
        put_cursor(screen, "limit")
        await press(pilot, "space")
        assert "c compare 2" in screen.keys.plain
        await press(pilot, "c")
        assert [row.script.name for row in screen.table.items if isinstance(row, ConfigRow)] == ["growth", "limit"]
        assert len(screen.comparison().runs) == 2
        assert "c show all" in screen.keys.plain
        await press(pilot, "c")
        assert len(screen.comparison().runs) == 3
        bench.probe_runs.selected.clear()
        for runs, said in ((("growth",), "only growth has run; select two with space"), ((), "nothing has run yet")):
            bench.probe_runs.runs = {name: bench.probe_runs.runs[name] for name in runs}
            await press(pilot, "c")
            assert said in screen.details.plain


def test_what_the_verdict_leaves_goes_to_cut_columns() -> None:
    before = {placed.id: placed.width for placed in place_columns(150)}
    wide = {placed.id: placed.width for placed in place_columns(150, wants=(("verdict", 20), ("asked", 40)))}
    assert wide["asked"] > before["asked"]
    assert wide["verdict"] >= 20
    assert sum(wide.values()) == sum(before.values())
    assert place_columns(150, wants=(("verdict", 90), ("asked", 40))) == place_columns(150), "the verdict needs them"


async def test_enter_folds_a_group(stage: Stage, bench: Bench) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        every = len(screen.table.items)
        await press(pilot, "enter")
        memory = sum(script.group == "memory" for script in bench.probe_runs.scripts.values())
        assert len(screen.table.items) == every - memory
        assert isinstance(screen.table.item_under_cursor, GroupRow)
        await press(pilot, "enter")
        assert len(screen.table.items) == every
        assert not bench.runners


async def test_enter_opens_a_run_and_the_settings_of_what_has_none(stage: Stage, bench: Bench) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        put_cursor(screen, "soft-missing")
        await press(pilot, "enter")
        assert "import tensorflow as tf" in plain(stage)
        assert not bench.runners
        await pilot.press("escape", "x", "y")
        await until(pilot, lambda: "soft-missing" in bench.probe_runs.runs and bench.probe_runs.live is None)
        assert bench.runners[0].options.always_fresh, "one alone gains nothing from a template"
        bench.probe_runs.runs["soft-missing"] = run_of(bench.probe_runs.scripts["soft-missing"])
        screen.draw(stage.app.session.view())
        await press(pilot, "enter")
        sheet = stage.screen(LinesSheet)
        text = "\n".join("".join(t for t, _ in line) for line in sheet.pane.content)
        for part in ("Device map", "Fallbacks", "GPU:7", "placement.device-missing", "End of the log", "gpu_device.cc"):
            assert part in text
        await press(pilot, "e")
        code = stage.screen(LinesSheet)
        assert "import tensorflow as tf" in "\n".join("".join(t for t, _ in line) for line in code.pane.content)
        await pilot.press("c", "escape")
        assert "import tensorflow as tf" in stage.app.clipboard


async def test_reports_are_written_where_it_says(
    stage: Stage, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with stage.app.run_test(size=(200, 50)) as pilot:
        screen = await open_probes(stage, pilot)
        await press(pilot, "o")
        assert "no runs to report yet" in plain(stage)
        put_cursor(screen, "growth")
        await pilot.press("x", "y")
        await until(pilot, lambda: "growth" in bench.probe_runs.runs and bench.probe_runs.live is None)
        await press(pilot, "o")
        (written,) = tmp_path.glob("gpuwatch-probes-*.html")
        assert str(written) in plain(stage)
        assert "growth" in written.read_text()
        await press(pilot, "enter")
        await press(pilot, "o")
        assert len(list(tmp_path.glob("gpuwatch-growth-*.html"))) == 1
        monkeypatch.chdir("/proc")
        await press(pilot, "o")
        assert "cannot write" in plain(stage)


async def test_earlier_runs_stand_below_and_are_part_of_the_comparison(stage: Stage, bench: Bench) -> None:
    script = bench.probe_runs.scripts["growth"]
    bench.probe_runs.store.save(run_of(script, -7200))
    bench.probe_runs.store.save(msgspec.structs.replace(run_of(script, -60), config="gone\x1b[2J"))
    (bench.probe_runs.store.folder / "20990101T000000.0-bad.json").write_text("{")
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        await until(pilot, lambda: len(bench.probe_runs.earlier) == 2)
        assert "2 earlier: c" in plain(stage)
        await press(pilot, "c")
        assert "to compare" not in plain(stage)
        assert "└ 2.0 h ago" in plain(stage)
        assert len(screen.comparison().runs) == 2
        rows = screen.table.items
        assert sum(isinstance(row, EarlierRunRow) for row in rows) == 2
        assert isinstance(rows[-2], GroupRow)
        screen.table.put_cursor(len(rows) - 1)
        await press(pilot, "enter")
        assert isinstance(stage.app.screen, LinesSheet)
        assert "\x1b" not in plain(stage)


async def test_one_earlier_run_is_shown_with_what_is_missing_to_compare(stage: Stage, bench: Bench) -> None:
    last = list(bench.probe_runs.scripts)[-1]
    bench.probe_runs.store.save(run_of(bench.probe_runs.scripts[last], -7200))
    async with stage.app.run_test(size=(80, 24)) as pilot:
        screen = await open_probes(stage, pilot)
        await until(pilot, lambda: len(bench.probe_runs.earlier) == 1)
        await press(pilot, "c")
        assert "└ 2.0 h ago" in screen.table.plain, "it is scrolled into view"
        assert f"only {last} has run; " in screen.details.plain
        await press(pilot, "c")
        assert not screen.with_earlier


async def test_no_framework_is_one_clear_line(stage: Stage, bench: Bench) -> None:
    def none(framework: str, asked: str | None) -> Interpreter:
        raise FrameworkMissing("TensorFlow is not installed in /usr/bin/python", hint="pip install tensorflow")

    bench.probe_runs.choose_interpreter = none
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await open_probes(stage, pilot)
        await pilot.press("x", "y")
        await until(pilot, lambda: bench.probe_runs.live is None)
        text = plain(stage)
        assert "installed in /usr/bin/python" in text
        assert "→ pip install tensorflow" in text
        assert "p sets the interpreter" in text
        assert bench.collector.stopped == bench.collector.started


async def test_parameters_are_checked_and_reach_the_runner(stage: Stage, bench: Bench) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        screen = await open_probes(stage, pilot)
        await press(pilot, "p")
        modal = stage.screen(ParametersSheet)
        wrong = {"workload": "mlp", "seconds": "x", "gpu": "1", "fraction": "0.3", "visible": " 1,0 ", "virtual": "2.5"}
        for name, value in wrong.items():
            modal.query_one(f"#{name}", Input).value = value
        await press(pilot, "enter")
        assert stage.app.screen is modal
        assert "seconds: 'x' is not a number" in plain(stage)
        modal.query_one("#seconds", Input).value = "0.2"
        modal.query_one("#gpu", Input).value = "9"
        await press(pilot, "enter")
        assert "'2.5' is not a whole number" in plain(stage)
        modal.query_one("#virtual", Input).value = "17"
        await press(pilot, "enter")
        assert "must be between 1 and 16" in plain(stage)
        modal.query_one("#virtual", Input).value = "4"
        await press(pilot, "enter")
        assert "there is no GPU 9; here: 0, 1" in plain(stage)
        modal.query_one("#gpu", Input).value = "1"
        await press(pilot, "enter")
        assert stage.app.screen is screen
        assert "GPU 1 NVIDIA H200 · mlp · 0.2 s each · fraction 0.3 · visible 1,0 · 4 virtual" in plain(stage)
        await pilot.press("x", "y")
        await until(pilot, lambda: bool(bench.runners) and bench.probe_runs.live is None)
        options = bench.runners[0].options
        assert options.visible_uuids == (machines.uuid(1),)
        assert options.config_options == {"workload": "mlp", "fraction": 0.3, "visible": "1,0", "virtual": 4}
        assert options.seconds == 0.2


def one_used() -> Snapshot:
    """Three idle GPUs, a program on the first."""
    holder = machines.process(0, gpu=0, pid=4711, readings={"gpu_memory_bytes": 5 * machines.GIB})
    free = {"memory.used_bytes": 0}
    return machines.snapshot(tuple(machines.device(number, busy=0, readings=free) for number in range(3)), (holder,))


def typed(stage: Stage, keys: str, *last: str) -> None:
    """All keys come before the first one is handled."""
    for key in (*keys, *last):
        stage.app.post_message(events.Key(key, key if len(key) == 1 else None))


async def test_p_on_a_gpu_asks_which_probe_to_run_there(stage: Stage, bench: Bench) -> None:
    async with stage.opened(one_used()) as pilot:
        stage.app.overview.gpus.focus()
        await settle(pilot)
        await press(pilot, "p")
        screen = stage.screen(ProbesScreen)
        assert "GPU 0 NVIDIA H200" in plain(stage)
        field = screen.query_one("#filter", Input)
        assert field.placeholder == "type a name · ↵ runs it on GPU 0 (in use: asks first) · Esc: the list"
        await press(pilot, "enter")
        assert screen.filter_bar is not None, "nobody has said which"
        await press(pilot, *"growth")
        assert "↵ runs growth  Esc list" in plain(stage)
        await press(pilot, "enter")
        assert isinstance(stage.app.screen, PreflightSheet)
        await press(pilot, "escape", "p")
        assert isinstance(stage.app.screen, ParametersSheet), "in the list it is what it was"
        assert not bench.runners


async def test_a_probe_typed_in_one_burst_runs_at_once_where_nobody_is(
    stage: Stage, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted: list[str] = []
    for name in ("action_diagnostic", "action_save_settings", "action_help", "action_options"):
        monkeypatch.setattr(ProbesScreen, name, lambda self, name=name: acted.append(name))
    async with stage.opened(one_used(), size=(80, 24)) as pilot:
        for keys in ("pgrowth", "plimit"):
            typed(stage, keys, "enter")
            await until(pilot, lambda name=keys[1:]: name in bench.probe_runs.runs and bench.probe_runs.live is None)
            screen = stage.screen(ProbesScreen)
            assert (screen.filter_bar, screen.filter, screen.found_name) == (None, None, keys[1:])
            assert bench.runners[-1].options.visible_uuids == (machines.uuid(1),)
            await pilot.press("1")
            await settle(pilot)
        typed(stage, "pgrow", "down", "escape")
        await settle(pilot)
        screen = stage.screen(ProbesScreen)
        assert screen.filter_bar is None
        await press(pilot, "home", "1", "p", "down", "down")
        second = list(bench.probe_runs.scripts)[1]
        assert screen.found_name == second, "arrows choose one of the list, not its headings"
        await pilot.press("enter")
        await until(pilot, lambda: second in bench.probe_runs.runs and bench.probe_runs.live is None)
        assert not acted
        await press(pilot, *"rw")
        assert "w again saves the settings; / finds a probe by its name" in screen.keys.plain
        assert not acted, "where no field is open, letters are keys, but a name that is typed there writes no files"
        await pilot.press(*"rr", *"ww")
        assert acted == ["action_diagnostic", "action_save_settings"]


async def test_a_stale_machine_is_not_called_free(stage: Stage, bench: Bench) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.push(one_used())
        stage.feed.state = FeedStatus(state="not-answering", age_seconds=60.0)
        stage.now += 60
        stage.app._wake()
        await settle(pilot)
        typed(stage, "pgrowth", "enter")
        await until(pilot, lambda: isinstance(stage.app.screen, PreflightSheet))
        assert not bench.runners


async def test_simulated_gpus_are_called_so(stage: Stage, bench: Bench) -> None:
    bench.make = lambda script, number=0: run_of(script, number, simulated=True)  # type: ignore[assignment]
    async with stage.opened(machines.simulated()) as pilot:
        await press(pilot, "4")
        assert "speeds are the CPU's" in plain(stage)
        assert " SIMULATED " in plain(stage)
        await pilot.press("down", "x", "y")
        await until(pilot, lambda: "default" in bench.probe_runs.runs and bench.probe_runs.live is None)
        await press(pilot, "enter")
        assert "SIMULATED" in plain(stage)


async def test_hostile_runs_are_shown_harmlessly(stage: Stage, bench: Bench) -> None:
    bad = "\x1b[2J[bold]x[/bold]\u202eevil\nline"

    def hostile(script: ProbeScript, number: int = 0, **changes: Any) -> Any:
        return run_of(script, number, verdict="error", verdict_reason=bad, log_tail=(bad,), title=bad)

    bench.make = hostile  # type: ignore[assignment]
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await open_probes(stage, pilot)
        await pilot.press("down", "x", "y")
        await until(pilot, lambda: "default" in bench.probe_runs.runs and bench.probe_runs.live is None)
        for key in ("", "enter"):
            if key:
                await press(pilot, key)
            text = plain(stage)
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert "[bold]x[/bold]" in text


def test_columns_fold_and_long_cells_say_what_matters() -> None:
    for width in range(20, 260):
        columns = place_columns(width)
        assert {"config", "steps_per_second", "verdict"} <= {placed.id for placed in columns}
        assert all(a.start + a.width < b.start for a, b in itertools.pairwise(columns))
    assert fit_cell("GPU:0→0, GPU:1→1", 9) == "0→0 1→1"
    assert fit_cell("CUDA_VISIBLE_DEVICES=-1,0", 13) == "…DEVICES=-1,0"
    assert fit_cell("CUDA_VISIBLE_DEVICES=-1,0", 12) == "…=-1,0"
    assert fit_cell("CUDA_VISIBLE_DEVICES=-1", 19) == "…VISIBLE_DEVICES=-1"
    assert fit_cell("GPU:7→GPU:0", 9) == "7→GPU:0"
    assert fit_cell("789 MiB + 137.9 GiB", 12) == "789M+137.9G"
    assert fit_cell("memory_limit 1024 MiB", 14) == "limit 1024 MiB"
    assert fit_cell(", ".join(f"GPU:{n}→{n}" for n in range(8)), 9) == "0-7→0-7"
    assert fit_cell("GPU:0→1, GPU:1→0, GPU:2→2", 9) == "0→1 1→0…"
    assert fit_cell("virtual 2, memory_limit 1024 MiB", 20) == "virtual 2, limit…"


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("CUDA_VISIBLE_DEVICES=-1", "CUDA_VISIBLE_DEVICES=-1"),
        ("TF_FORCE_GPU_ALLOW_GROWTH=true", "…GPU_ALLOW_GROWTH=true"),
        ("TF_FORCE_GPU_ALLOW_GROWTH=true, memory_limit 1024 MiB", "…GROWTH, limit 1024M"),
        ("memory_limit 1024 MiB, memory growth", "limit 1024 MiB, growth"),
        ("per_process_gpu_memory_fraction 0.4", "fraction 0.4"),
        ("memory growth /physical_device:GPU:0 yes, /physical_device:GPU:1 no", "growth GPU:0 yes, 1 no"),
        ("CUDA_DEVICE_ORDER=PCI_BUS_ID, CUDA_VISIBLE_DEVICES=1,0", "…VISIBLE_DEVICES=1,0"),
    ],
)
def test_no_setting_is_cut_to_nonsense_at_120_columns(asked: str, shown: str) -> None:
    room = next(placed.width for placed in place_columns(118) if placed.id == "asked")
    assert fit_cell(asked, room) == shown


def test_every_name_of_the_catalogue_is_whole_at_120_columns(bench: Bench) -> None:
    for width in (80, 118):
        room = next(placed.width for placed in place_columns(width) if placed.id == "config")
        assert all(fit_cell(name, room) == name for name in bench.probe_runs.scripts)
    verdict = next(placed.width for placed in place_columns(118, moved=False) if placed.id == "verdict")
    assert fit_cell("ok · inconsistent (expected error)", verdict - 2) == "ok · inconsistent"


def test_where_a_run_fell_back_is_shown_at_120_columns_in_whole_words() -> None:
    columns = {placed.id: placed.width for placed in place_columns(118)}
    assert {"asked", "on_gpu_percent", "fell_back"} <= columns.keys()
    assert "device_map" not in columns, "it makes room"
    assert "fell_back" not in {placed.id for placed in place_columns(118, moved=False)}, "nothing is in it"
    room = columns["fell_back"]
    for told, shown in (
        ("GPU:7→GPU:0", "7→GPU:0"),
        ("everything ran on the CPU", "all→CPU"),
        ("not observed", "not seen"),
        ("GPU:0→CPU:0", "0→CPU:0"),
    ):
        assert fit_cell(told, room) == shown
    room = columns["verdict"]
    assert fit_cell("✖ oom · limit-too-small", room) == "✖ oom · limit…"
    assert fit_cell("▲ fallback · device-missing", room) == "▲ fallback"


def test_bars_have_one_axis_and_speeds_only_where_comparable(bench: Bench) -> None:
    scripts = bench.probe_runs.scripts
    runs = [run_of(scripts[name]) for name in ("default", "growth", "cpu-only")]
    lines = ["".join(text for text, _ in line.spans) for line in probe_bar_lines(compare(runs), 118, 8)]
    assert "from 0 to 137.9 GiB" in lines[0]
    assert "steps/s" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["default", "growth"], "no bar of memory without a GPU"
    filled = [line.count("█") for line in lines[1:]]
    assert filled[0] > filled[1]
    simulated = [msgspec.structs.replace(run, simulated=True) for run in runs]
    assert "steps/s" not in "".join(
        text for line in probe_bar_lines(compare(simulated), 118, 8) for text, _ in line.spans
    )
    assert probe_bar_lines(compare(runs[:1]), 118, 8) == []
    assert probe_bar_lines(compare(runs), 40, 8) == []
    many = [run_of(script) for script in scripts.values()]
    last = next(n for n, run in reversed(list(enumerate(many))) if run.device_map)
    shown = probe_bar_lines(compare(many), 118, 6, last)
    assert len(shown) == 6
    assert many[last].config in "".join(text for line in shown for text, _ in line.spans), "the chosen run is in view"


@given(
    st.lists(st.tuples(st.integers(0, 99999), st.sampled_from(["MiB", "GiB"])), min_size=1, max_size=5),
    st.integers(6, 40),
)
def test_no_number_is_cut_in_the_middle(sizes: list[tuple[int, str]], width: int) -> None:
    short = fit_cell(" + ".join(f"{amount} {unit}" for amount, unit in sizes), width)
    assert len(short) <= width
    assert [int(number) for number in re.findall(r"\d+", short)] == [amount for amount, _ in sizes][
        : len(re.findall(r"\d+", short))
    ]


# Real processes

STUBBORN = '''
"""A probe that ignores requests to end, and has a child that does too."""
CONFIG = {}
import json, os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
event = {"t": 0.0, "kind": "start", "data": {"pid": os.getpid(), "options": {}}}
os.write(int(os.environ["GPUWATCH_EVENT_FD"]), (json.dumps(event) + "\\n").encode())
time.sleep(600)
'''


def real_probe_runs(tmp_path: Path) -> ProbeRuns:
    path = tmp_path / "stubborn.py"
    path.write_text(STUBBORN)
    bench = Bench(tmp_path / "runs")
    script = msgspec.structs.replace(bench.probe_runs.scripts["default"], path=path)
    probe_runs = bench.probe_runs
    probe_runs.make_runner = ProbeRunner
    probe_runs.choose_interpreter = lambda framework, asked: Interpreter(sys.executable, framework)
    probe_runs.make_feed = lambda: FakeCollector(machines.pair())  # type: ignore[assignment, return-value]
    probe_runs._scripts = {"default": script}
    return probe_runs


def descendants(before: set[int]) -> set[int]:
    return set(family(os.getpid())) - before


@pytest.mark.parametrize("how", ["escape", "q", "ctrl+c"])
async def test_a_stopped_or_abandoned_run_leaves_no_process(make_stage: MakeStage, tmp_path: Path, how: str) -> None:
    probe_runs = real_probe_runs(tmp_path)
    stage = make_stage(probe_runs=probe_runs)
    before = set(family(os.getpid()))
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await open_probes(stage, pilot)
        await pilot.press("a", "x", "y")
        await until(pilot, lambda: probe_runs.live is not None and "started, pid" in current_activity(probe_runs.live))
        await until(pilot, lambda: len(descendants(before)) == 2)
        started = descendants(before)
        await pilot.press(how)
        if how == "escape":
            await until(pilot, lambda: probe_runs.live is None, 5)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), seconds=5)


async def test_a_click_on_a_probe_draws_what_is_below_of_it(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(160, 40)) as pilot:
        await press(pilot, "4")
        screen = stage.screen(ProbesScreen)
        place = next(place for place, row in enumerate(screen.table.items) if isinstance(row, ConfigRow))
        assert isinstance(row := screen.table.items[place], ConfigRow)
        before = screen.details.plain
        await pilot.click(screen.table, offset=(10, place + 2))
        await settle(pilot)
        assert screen.table.item_under_cursor is row
        assert screen.details.plain != before
        assert row.script.name in screen.details.plain

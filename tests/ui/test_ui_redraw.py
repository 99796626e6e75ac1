"""What a sample costs: nothing that did not change is drawn again."""

from __future__ import annotations

import datetime

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpuwatch.formatting.units import duration
from gpuwatch.model.snapshot import Process, Snapshot
from gpuwatch.monitor.wire import Calm, Quiet, aged
from gpuwatch.ui.filtering import parse
from gpuwatch.ui.widgets.paint import Line, Painted, difference
from tests.ui import machines
from tests.ui.conftest import Stage


def counts(stage: Stage) -> dict[str, int]:
    return {pane.id or "": pane.lines_painted for pane in stage.app.overview.query(Painted)}


def drawn_since(stage: Stage, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in counts(stage).items() if count != before[name]}


def same_again(snapshot: Snapshot, **changes: object) -> Snapshot:
    """An equal snapshot that is another object, as a feed gives it."""
    fields = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    return Snapshot(**(fields | changes))  # type: ignore[arg-type]


async def ready(stage: Stage, pilot: Pilot[None], snapshot: Snapshot) -> None:
    stage.push(snapshot)
    for _ in range(3):
        await pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_an_unchanged_snapshot_draws_nothing(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        still = machines.many(8, 200)
        await ready(stage, pilot, still)
        before = counts(stage)
        for _ in range(3):
            stage.feed.push(same_again(still))
            await pilot.pause()
            await pilot.pause()
        assert drawn_since(stage, before) == {}
        assert stage.app.history.snapshots == 4


async def test_only_the_row_that_changed_is_drawn(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.many(8, 200)
        await ready(stage, pilot, still)
        table = stage.app.overview.processes
        row = table._rows[3]
        processes = tuple(
            replace(p, readings={**p.readings, "cpu_percent": 55.5}) if p is row else p for p in still.processes
        )
        before = counts(stage)
        stage.feed.push(same_again(still, processes=processes))
        await pilot.pause()
        await pilot.pause()
        assert drawn_since(stage, before) == {"processes": 1}


async def test_only_the_gpu_that_changed_is_drawn(stage: Stage) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        still = machines.many(8, 20)
        await ready(stage, pilot, still)
        devices = tuple(
            replace(d, readings={**d.readings, "temperature.gpu_celsius": 77}) if d.index == 3 else d
            for d in still.devices
        )
        before = counts(stage)
        stage.feed.push(same_again(still, devices=devices))
        await pilot.pause()
        await pilot.pause()
        assert drawn_since(stage, before) == {"gpus": 1}


async def test_the_cursor_draws_two_rows(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await ready(stage, pilot, machines.many(8, 200))
        before = counts(stage)
        await pilot.press("down")
        await pilot.pause()
        assert drawn_since(stage, before) == {"processes": 2}


async def test_the_second_hand_draws_the_top_line_only(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await ready(stage, pilot, machines.pair())
        before = counts(stage)
        stage.now += 2
        stage.app._last_data = float("-inf")
        stage.app._tick()
        await pilot.pause()
        await pilot.pause()
        assert drawn_since(stage, before) == {"top": 1}


def test_difference_is_the_cells_between_the_first_and_the_last_change() -> None:
    old = Line((("abc", "text"), ("12", "strong"), ("xyz", "dim")))
    new = Line((("abc", "text"), ("34", "strong"), ("xyz", "dim")))
    assert difference(old, new) == (3, 5)
    assert difference(old, Line((*new.spans, ("!", "text")))) == (3, 9)
    assert difference(old, old._replace(wash="cursor")) is None


async def test_while_only_time_passes_run_times_are_drawn_and_all_else_stays(stage: Stage) -> None:
    """What comes marked as quiet is drawn by another way, and must look as if it had not been."""
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.many(8, 200)
        await ready(stage, pilot, still)
        for seconds in (1, 2):
            taken = still.taken_at + datetime.timedelta(seconds=seconds)
            snapshot = aged(same_again(still, taken_at=taken))
            stage.push(Quiet(**{name: getattr(snapshot, name) for name in snapshot.__struct_fields__}))
            await pilot.pause()
            await pilot.pause()
        table = stage.app.overview.processes
        quiet = table.plain
        stage.app.overview.processes._view = None
        stage.push(same_again(snapshot))
        await pilot.pause()
        await pilot.pause()
        assert table.plain == quiet
        row = next(row for row in table._rows if isinstance(row, Process))
        assert duration(snapshot.taken_at.timestamp() - (row.create_time or 0)) in quiet
        assert stage.app.history.snapshots == 4


async def test_rows_as_they_were_before_are_shown_with_the_run_times_of_now(stage: Stage) -> None:
    """A feed may leave the ageing of rows to who shows them: no way of drawing may forget it."""
    async with stage.app.run_test(size=(160, 40)) as pilot:
        still = aged(machines.many(8, 200))
        await ready(stage, pilot, still)
        table = stage.app.overview.processes
        taken = still.taken_at + datetime.timedelta(seconds=100)
        quiet = same_again(still, taken_at=taken)
        stage.push(Quiet(**{name: getattr(quiet, name) for name in quiet.__struct_fields__}))
        await pilot.pause()
        row = next(row for row in table._rows if isinstance(row, Process))
        assert row in still.processes
        ran = duration(taken.timestamp() - (row.create_time or 0))
        assert duration(row.number("run_seconds")) != ran
        assert ran in table.plain.split("\n")[table._head_row + 1]
        shown = table.plain
        table._redraw()
        assert table.plain == shown
        await pilot.press("down", "up")
        assert ran in table.plain.split("\n")[table._head_row + 1]
        stage.app.overview.show(stage.app.overview._view or stage.app.view())
        assert table.plain.replace("▶", " ") == shown.replace("▶", " ")
        table.set_filter(parse(f"time>{int(taken.timestamp() - (row.create_time or 0)) - 50}"))
        assert row.pid in {one.pid for one in table._rows if isinstance(one, Process)}, "also just after a calm second"
        whole = stage.app.snapshot
        assert whole is not None
        assert whole.processes == aged(quiet).processes
        assert stage.app.view().snapshot is whole


async def test_memory_that_nobody_explains_is_told_while_processes_stay(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.pair()
        await ready(stage, pilot, still)
        devices = (
            machines.device(0, readings={"memory.unexplained_bytes": 7 * 2**30}),
            *still.devices[1:],
        )
        snapshot = same_again(still, devices=devices)
        stage.push(Calm(**{name: getattr(snapshot, name) for name in snapshot.__struct_fields__}))
        await pilot.pause()
        await pilot.pause()
        assert "unexplained" in stage.app.overview.processes.plain
        assert "7.0 GiB" in stage.app.overview.processes.plain

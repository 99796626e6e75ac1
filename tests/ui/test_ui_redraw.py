"""What a sample costs: nothing that did not change is drawn again."""

from __future__ import annotations

import datetime

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import IDLE_SINCE, MigInstance, Process, Snapshot
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, time_column_text
from gpuwatch.ui.tables.process_filter import parse_process_filter
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.ui import machines
from tests.ui.conftest import Stage


def counts(stage: Stage) -> dict[str, int]:
    return {pane.id or "": pane.lines_painted for pane in stage.app.overview.query(PaintedPane)}


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
        assert stage.app.session.history.sample_count == 4


async def test_only_the_row_that_changed_is_drawn(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.many(8, 200)
        await ready(stage, pilot, still)
        table = stage.app.overview.processes
        row = table.items[3]
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
        stage.app._last_sample_at = float("-inf")
        stage.app._tick()
        await pilot.pause()
        await pilot.pause()
        assert drawn_since(stage, before) == {"top": 1}


async def test_while_only_time_passes_run_times_are_drawn_and_all_else_stays(stage: Stage) -> None:
    """They are drawn by another way than a changed row, and must look as if they had not been."""
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.many(8, 200)
        idle_since = int(still.taken_at.timestamp()) - 58  # "<1m", which is dim; then "1m"
        rows = tuple(replace(row, readings=row.readings | {IDLE_SINCE: idle_since}) for row in still.processes)
        still = same_again(still, processes=rows)
        await ready(stage, pilot, still)
        table = stage.app.overview.processes
        before = counts(stage)
        for seconds in (1, 2):
            later = same_again(still, taken_at=still.taken_at + datetime.timedelta(seconds=seconds))
            stage.push(later)
            await pilot.pause()
            await pilot.pause()
        assert set(drawn_since(stage, before)) <= {"top", "host", "processes"}
        shown = table.lines
        assert ("  1m", "text") in shown[-2].spans
        table.redraw()
        assert table.lines == shown
        shown = table.plain
        row = next(row for row in table.items if isinstance(row, Process))
        assert time_column_text(COLUMN_BY_ID["time"], row, later.taken_at.timestamp()) in shown
        assert stage.app.session.history.sample_count == 3


async def test_no_way_of_drawing_forgets_the_clock(stage: Stage) -> None:
    async with stage.app.run_test(size=(160, 40)) as pilot:
        still = machines.many(8, 200)
        await ready(stage, pilot, still)
        table = stage.app.overview.processes
        later = same_again(still, taken_at=still.taken_at + datetime.timedelta(seconds=100))
        stage.push(later)
        await pilot.pause()
        row = next(row for row in table.items if isinstance(row, Process))
        seconds = row.run_seconds(later.taken_at.timestamp())
        ran = time_column_text(COLUMN_BY_ID["time"], row, later.taken_at.timestamp())
        assert ran != time_column_text(COLUMN_BY_ID["time"], row, still.taken_at.timestamp())
        assert ran in table.plain.split("\n")[int(table.framed) + 1]
        shown = table.plain
        table.redraw()
        assert table.plain == shown
        await pilot.press("down", "up")
        assert ran in table.plain.split("\n")[int(table.framed) + 1]
        stage.app.overview.show(stage.app.overview._view or stage.app.session.live_view())
        assert table.plain.replace("▶", " ") == shown.replace("▶", " ")
        table.set_filter(parse_process_filter(f"time>{int(seconds or 0) - 50}"))
        assert row.pid in {one.pid for one in table.items if isinstance(one, Process)}
        table.set_filter(parse_process_filter(f"time>{int(seconds or 0) + 50}"))
        assert row.pid not in {one.pid for one in table.items if isinstance(one, Process)}
        stage.push(same_again(still, taken_at=still.taken_at + datetime.timedelta(seconds=200)))
        await pilot.pause()
        assert row.pid in {one.pid for one in table.items if isinstance(one, Process)}, "it has run for long enough now"


async def test_new_unexplained_memory_is_shown_while_processes_stay(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.pair()
        await ready(stage, pilot, still)
        devices = (
            machines.device(0, readings={"memory.unexplained_bytes": 7 * 2**30}),
            *still.devices[1:],
        )
        snapshot = same_again(still, devices=devices)
        stage.push(snapshot)
        await pilot.pause()
        await pilot.pause()
        assert "unexplained" in stage.app.overview.processes.plain
        assert "7.8 GiB" in stage.app.overview.processes.plain


async def test_mig_instances_get_their_room_while_processes_stay(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        still = machines.snapshot((machines.device(0), machines.device(1)), (machines.process(0),))
        await ready(stage, pilot, still)
        overview = stage.app.overview
        assert "TEMP " in overview.gpus.plain.splitlines()[6], "a caption of a second row of graphs"
        parts = tuple(
            MigInstance(id=f"{n}/0", index=n, uuid=f"MIG-{n}", gpu_instance=n, compute_instance=0, profile="1g.10gb")
            for n in range(7)
        )
        stage.push(same_again(still, devices=(machines.device(0, mig_instances=parts), still.devices[1])))
        for _ in range(3):
            await pilot.pause()
        assert overview.gpus.plain.count("1g.10gb") == 7
        assert "TEMP " not in overview.gpus.plain.splitlines()[6]

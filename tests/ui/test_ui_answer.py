"""The line at the top of the Overview: what is free, who holds memory idle, what is wrong."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from msgspec.structs import replace
from textual.widgets import Input

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device, Reservation, Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session import free_gpus
from gpuwatch.session.view import KnownSince, View, most_important_first
from gpuwatch.share.metric_families import PROCESS_IDLE
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.panes.overview_summary import draw_summary, idle_text
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, time_column_text
from tests.diagnosis.watching import BEGIN, gpu, program
from tests.diagnosis.watching import sample as watching_sample
from tests.every import every
from tests.exporter.machines import OPTIONS, one
from tests.exporter.machines import found as exported_series
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press

GIB = machines.GIB
WELL = Finding(id="healthy", severity="info", certainty="fact", title="well")
LOST = Finding(
    id="hardware.fault", severity="error", certainty="fact", title="GPU 0 lost", device_uuid=machines.uuid(0)
)


def idle(index: int, **readings: Any) -> Device:
    """A GPU that nobody uses."""
    return machines.device(index, busy=0, readings={"memory.used_bytes": 0, **readings})


def said(snapshot: Snapshot, *findings: Finding, width: int = 120, **changes: Any) -> str:
    """The line."""
    view = View(
        snapshot,
        History(),
        FeedStatus("ok", 0.0),
        snapshot.taken_at.timestamp(),
        1.0,
        findings=findings or (WELL,),
        errors_and_warnings=most_important_first(findings),
        **changes,
    )
    builder = LineBuilder(width)
    places = draw_summary(builder, view)
    line = "".join(text for text, _ in builder.spans)
    assert all(0 <= start < end <= width for start, end, _ in places)
    assert [part.id for *_, part in places] == [
        one for one in ("free", "idle", "wrong") if one in line.lower().replace("note: ", "wrong")
    ]
    return line.strip()


def reserved(index: int, **changes: Any) -> Reservation:
    return Reservation(uuid=machines.uuid(index), pid=4711, user="alice", **changes)


def test_the_free_gpus_with_the_memory_that_a_program_gets() -> None:
    four = tuple(idle(index) for index in range(4))
    assert said(machines.snapshot(four)) == "Free: 0-3 (139.2 GiB each)"
    small = idle(5, **{"memory.total_bytes": 24 * GIB})
    assert said(machines.snapshot((*four[:2], small))).endswith(" each), 5 (23.4 GiB)")
    long = replace(LOST, device_uuid=machines.uuid(7), title="GPU 7 lost: " + "x" * 40)
    assert said(machines.snapshot(four[:2]), long, width=80).startswith("Free: 0, 1 · "), "no number that is longer"
    apart = tuple(idle(index) for index in range(0, 30, 3))
    assert said(machines.snapshot(apart), long, width=80).startswith("Free: 10 GPUs · ")
    job = machines.process(0, gpu=2, readings={"gpu_memory_bytes": 3 * GIB})
    assert said(machines.snapshot(four, (job,))) == "Free: 0, 1, 3 (139.2 GiB each)"


def test_a_gpu_is_free_only_if_nothing_known_says_otherwise() -> None:
    one, busy = idle(0), machines.device(1, busy=80, readings={"memory.used_bytes": 39 * GIB})
    taken = "Free: no GPU (most 139.2 GiB on 0)"
    assert said(machines.snapshot((one, busy), reservations=(reserved(0),))) == taken
    beyond = machines.snapshot((one, busy), reservations=(reserved(0, counts=False),))
    assert said(beyond) == "Free: 0 (139.2 GiB)", "beyond its user's limit, as pick has it"
    assert said(machines.snapshot((one, busy)), owners={machines.uuid(0): "used by alice"}) == taken
    assert said(machines.snapshot((replace(one, state="lost"), busy))).startswith("Free: no")
    assert said(machines.snapshot((one, busy)), LOST).startswith(f"{taken} · ✖ Wrong: GPU 0 lost ")
    silent = replace(LOST, id="driver.bad-state", device_uuid=None, title="The driver does not answer")
    assert said(machines.snapshot((one, busy)), silent).startswith("Free: – · ✖ Wrong: The driver"), "it was free"
    unread = dict.fromkeys(("memory.free_bytes", "memory.used_bytes"), machines.NOT_SUPPORTED)
    assert said(machines.snapshot((machines.device(0, missing=unread),))) == "Free: –"


def test_the_idle_holder_is_named_once_and_with_its_time() -> None:
    shot = machines.pair()
    line = said(shot, machines.HELD, LOST)
    assert "14 min · ✖ Wrong: GPU 0 lost" in line
    assert "holds 130.4 GiB and" not in line
    two = replace(machines.HELD, pid=51877, device_uuid=machines.uuid(0))
    assert "on 1, 14 min (+1)" in said(shot, machines.HELD, two)
    since = shot.taken_at.timestamp() - 1559
    rows = tuple(replace(row, readings={**row.readings, "idle_since": since}) for row in shot.processes)
    assert "on 1, 25 min" in said(replace(shot, processes=rows), machines.HELD), "as the column IDLE says"
    over = replace(machines.HELD, until=shot.taken_at)
    assert "Idle" not in said(shot, over)
    gone = replace(machines.HELD, pid=4)
    assert "Wrong: GPU 1: alice's train" in said(shot, gone), "its row is not there to go to"


@pytest.mark.parametrize(
    ("watched_minutes", "text"), [(None, "at least since"), (10, "since"), (4, "at least since"), (2, "at least since")]
)
def test_since_when_it_is_idle_is_at_least_so_unless_an_earlier_sample_was_seen(
    watched_minutes: int | None, text: str
) -> None:
    """None: nobody knows since when samples are taken."""
    shot = machines.pair()
    at = shot.taken_at.timestamp()
    row = replace(shot.processes[0], readings={"idle_since": int(at - 240)})
    first = None if watched_minutes is None else at - 60 * watched_minutes
    busy, unknown = replace(row, readings={"idle_since": 0}), replace(row, readings={})
    shot = replace(shot, processes=(row, busy, unknown))
    view = View(shot, History(), FeedStatus("ok", 0.0), at, 1.0, since=KnownSince(first=first))
    began = clock_text(at - 240)[:-3]
    assert [idle_text(view, one) for one in shot.processes] == [f"4 min, {text} {began}", "", ""]
    assert idle_text(view, replace(row)) == "", "a row of an earlier sample: it has exited"


@pytest.mark.parametrize("idle_minutes", [None, 0, 7])
def test_everybody_says_the_same_of_an_idle_process(idle_minutes: int | None) -> None:
    """Finding, answer, column, exporter and pick; None: it computes."""
    since = 0 if idle_minutes is None else int(BEGIN.timestamp()) - 60 * idle_minutes
    row = program(7, held=20.0, sm=40.0 if idle_minutes is None else None)
    row.readings["idle_since"] = since
    watch = ConditionEngine()
    shots = [watching_sample(second, [gpu(busy=60.0 if idle_minutes is None else 0.0)], [row]) for second in range(8)]
    for shot in shots:
        watch.observe(shot)
    last = shots[-1].taken_at.timestamp()
    held = [found for found in watch.findings if found.id == "idle.memory-held"]
    line = said(shots[-1], *watch.findings)
    column = time_column_text(COLUMN_BY_ID["idle"], row, last)
    exported = one(exported_series(shots[-1], OPTIONS._replace(processes=1)), PROCESS_IDLE)
    picked = free_gpus.pick_gpus(shots[-1], free_gpus.Requirements(1, idle=True), {}, {}, watch.findings)
    assert exported == since
    assert not picked.chosen, "whoever is on it may go on at any time"
    if idle_minutes is None:
        assert (held, "Idle: " in line, column) == ([], False, "busy")
    elif not idle_minutes:
        assert (held, "Idle: " in line, column) == ([], False, "<1m"), "not for long enough"
    else:
        assert held[0].since is not None
        assert held[0].since.timestamp() == since
        assert any("for 7 min" in evidence for evidence in held[0].evidence)
        assert (held[0].severity, column) == ("warning", "7m")
        assert "holds 20.0 GiB on 0, 7 min" in line


def test_what_is_wrong_comes_before_what_should_be_known() -> None:
    shot = machines.snapshot((idle(0), idle(1)))
    note = Finding(id="throttle.thermal", severity="info", certainty="fact", title="GPU 1 was throttled (thermal)")
    assert "Note: GPU 1 was throttled" in said(shot, note)
    assert "✖ Wrong: GPU 0 lost" in said(shot, note, LOST)
    power = replace(note, id="throttle.power")
    assert "Note" not in said(shot, power), "a busy GPU is at its power limit"
    hot = idle(1, **{"clocks.event_reasons": "hw-thermal"})
    assert "▲ Wrong: GPU 1 throttled" in said(machines.snapshot((idle(0), hot)))
    problem = machines.Problem(source="processes", reason="x", detail="/proc is hidden", hint="ask")
    assert "Wrong: /proc is hidden  → ask" in said(machines.snapshot((idle(0),), problems=(problem,)))


@every(range(60, 200, 7))
def test_a_narrow_line_keeps_what_is_wrong_and_says_the_rest_shorter(width: int) -> None:
    line = said(machines.pair(), machines.HELD, LOST, width=width)
    assert "Free: no" in line
    assert "Idle: alice 48121" in line
    assert "✖ Wrong: GPU 0 lost" in line


def test_what_is_shortened_leaves_its_room_to_the_rest() -> None:
    """Of a long cause the first clause is shown; the cells of the others are the idle holder's and the advice's."""
    long = replace(LOST, title="GPU 0 throttled (thermal) while its core is cool: " + "its memory or " * 5 + "a sensor")
    line = said(machines.pair(), machines.HELD, replace(long, action="Look."), width=144)
    assert "holds 130.4 GiB on 1, 14 min · ✖ Wrong: GPU 0 throttled (thermal) while its core is cool  → Look." in line
    assert line.endswith("[f] why")
    whole = said(machines.pair(), machines.HELD, long, width=240)
    assert long.title in whole


async def test_each_part_leads_to_what_it_is_about(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        overview = stage.app.overview
        shot = machines.pair()
        await stage.show(pilot, replace(shot, devices=(*shot.devices, idle(2)), findings=(machines.HELD, LOST)))
        line = overview.summary.plain
        await pilot.click("#summary", offset=(line.index("Idle"), 0))
        assert overview.focused_pane == "processes"
        assert overview.processes.item_under_cursor.pid == 48121  # type: ignore[union-attr]
        await pilot.click("#summary", offset=(line.index("Free"), 0))
        assert overview.focused_pane == "gpus"
        assert overview.gpus.selected.index == 2  # type: ignore[union-attr]
        overview.summary.focus()
        await pilot.press("right", "enter")
        assert overview.focused_pane == "processes"
        overview.summary.focus()
        await press(pilot, "right", "enter")
        assert isinstance(stage.app.screen, LinesSheet)


async def test_a_key_goes_through_the_idle_holders_which_are_marked_from_the_first_minute(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        shot, table = machines.pair(), stage.app.overview.processes
        young = replace(machines.HELD, pid=51877, device_uuid=machines.uuid(0), severity="info")
        await stage.show(pilot, shot)
        await pilot.press("down", "I")
        assert table.item_under_cursor.pid == 48121  # type: ignore[union-attr]
        await stage.show(pilot, replace(machines.pair(1), findings=(machines.HELD, young)))
        rows = {
            pid: next(line for line in table.plain.splitlines() if pid in line) for pid in ("48121", "51877", "1999")
        }
        assert [row[2] for row in rows.values()] == ["▲", "●", " "]
        await pilot.press("I")
        assert table.item_under_cursor.pid == 51877  # type: ignore[union-attr]
        began = clock_text(machines.HELD.since.timestamp())[:-3]  # type: ignore[union-attr]
        said = f"idle holder 2 of 2: 14 min, at least since {began}; bob 51877, "
        assert said in stage.app.overview.keys.plain, "it began before the first sample"
        await stage.show(pilot, replace(machines.pair(2), findings=()))
        assert "▲" not in table.plain
        await pilot.press("I")
        assert "idle cannot be read" in stage.app.overview.keys.plain
        working = [replace(row, readings=row.readings | {"idle_since": 0}) for row in machines.pair(3).processes]
        await stage.show(pilot, replace(machines.pair(3), findings=(), processes=tuple(working)))
        await pilot.press("I")
        assert "no process holds memory idle" in stage.app.overview.keys.plain


@pytest.mark.parametrize(("pane", "keys", "gpu"), [("processes", "I", 0), ("summary", "", 0), ("gpus", "l", 1)])
async def test_one_key_probes_a_gpu_from_each_pane(stage: Stage, pane: str, keys: str, gpu: int) -> None:
    async with stage.opened(replace(machines.pair(), findings=(machines.HELD,)), size=(80, 24)) as pilot:
        stage.app.overview.query_one(f"#{pane}").focus()
        await press(pilot, *keys, "p")
        assert stage.app.screen.TAB == "probes"  # type: ignore[attr-defined]
        assert stage.app.probe_runs.parameters.gpu == machines.uuid(gpu)
        assert f" on GPU {gpu} (in use" in stage.app.screen.query_one("#filter", Input).placeholder


@pytest.mark.parametrize("severity", ["info", "warning"])
async def test_f_shows_all_that_the_line_names(stage: Stage, severity: str) -> None:
    held = replace(machines.HELD, severity=severity)
    async with stage.opened(replace(machines.pair(), findings=(held,))) as pilot:
        assert "Idle: alice 48121" in stage.app.overview.summary.plain
        await press(pilot, "f")
        assert held.title in stage.app.screen.pane.plain  # type: ignore[attr-defined]


async def test_it_is_the_second_line_at_every_size(stage: Stage) -> None:
    for size in ((60, 12), (80, 24), (120, 40), (200, 60)):
        stage = Stage()
        async with stage.opened(
            machines.snapshot((idle(0), idle(1)), tick=1), machines.snapshot((idle(0), idle(1)), tick=2), size=size
        ):
            assert stage.app.overview.summary.region.y == 1
            assert stage.app.overview.summary.plain.startswith(" Free: 0, 1 (139.2 GiB each)")


def test_times_are_those_of_the_moment_on_screen() -> None:
    shot = machines.pair()
    later = replace(shot, taken_at=shot.taken_at + datetime.timedelta(minutes=3))
    assert ", 17 min" in said(later, machines.HELD)

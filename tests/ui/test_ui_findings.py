"""Findings that somebody watched: since when, past, the page about a cause, and that all is well."""

from __future__ import annotations

import datetime
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from gpuwatch.core.formatting.grouped_findings import grouped_findings
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.explain.diagnosis.reference.cause_pages import page
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session.view import View
from gpuwatch.share.reports.snapshot_report import snapshot_content
from gpuwatch.ui.details.finding_lines import page_lines
from gpuwatch.ui.panes.process_table_lines import with_latest_events
from gpuwatch.ui.screens.findings import CauseSheet, EvidenceSheet, FindingsScreen
from tests.every import every
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.fixed_findings import FixedFindings
from tests.ui.probe_bench import Bench
from tests.ui.waiting import press, settle, until

SIZES = [(80, 24), (120, 40), (200, 60)]


def at(minutes: float) -> datetime.datetime:
    return machines.NOON - datetime.timedelta(minutes=minutes)


HOT = Finding(
    id="throttle.thermal",
    severity="warning",
    certainty="fact",
    title="GPU 0 throttled (thermal)",
    evidence=("since 11:52:31, for 12 min", "SM clock 1200 MHz meanwhile, 1900 MHz under load: 700 MHz lost"),
    action="Improve the cooling.",
    device_uuid=machines.uuid(0),
    since=at(12),
)
LINK = Finding(
    id="pcie.degraded",
    severity="warning",
    certainty="fact",
    title="GPU 1's PCIe link runs below what it can",
    device_uuid=machines.uuid(1),
    since=at(30),
    until=at(20),
)
WELL = Finding(
    id="healthy",
    severity="info",
    certainty="likely",
    title="No problems found",
    evidence=("2 GPUs and 3 processes", "looked for: heat"),
    since=at(12),
)


@asynccontextmanager
async def listed(
    make_stage: Callable[..., Stage], *findings: Finding, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[Stage, Pilot[None], FindingsScreen]]:
    stage = make_stage(conditions=FixedFindings(*findings))
    async with stage.opened(machines.snapshot(machines.pair().devices), size=size) as pilot:
        await press(pilot, "5")
        assert isinstance(stage.app.screen, FindingsScreen)
        yield stage, pilot, stage.app.screen


@pytest.mark.parametrize("size", SIZES)
async def test_what_holds_comes_first_and_what_is_past_last(
    make_stage: Callable[..., Stage], size: tuple[int, int]
) -> None:
    stage = make_stage(conditions=FixedFindings(HOT, LINK))
    async with stage.opened(machines.snapshot(machines.pair().devices), size=size) as pilot:
        assert "▲ 1 warning" in stage.app.overview.top_line.plain
        assert "GPU 0 throttled" in stage.app.overview.summary.plain
        await press(pilot, "5")
        screen = stage.screen(FindingsScreen)
        first, second = [line for line in screen.finding_list.plain.splitlines() if "GPU" in line]
        assert "throttled (thermal)" in first
        assert "○" in second
        assert "PCIe link" in second
        if size[0] >= 120:
            assert "since 11:52:31" in first
            assert "past: 11:34:31 to 11:44:31" in second
        assert "700 MHz lost" in screen.evidence.plain


async def test_from_the_symptom_to_the_cause_it_takes_two_keys(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(conditions=FixedFindings(HOT))
    async with stage.opened(machines.snapshot(machines.pair().devices)) as pilot:
        await press(pilot, "f")
        assert isinstance(stage.app.screen, EvidenceSheet)
        await press(pilot, "p")
        sheet = stage.screen(CauseSheet)
        assert "Common mistakes" in sheet.pane.plain
        await press(pilot, "escape", "escape", "5", "p")
        assert isinstance(stage.app.screen, CauseSheet)


@pytest.mark.parametrize("keys", ["f", ["5", "enter"]], ids=["all", "one"])
async def test_an_open_sheet_tells_what_is_known_now(stage: Stage, keys: Sequence[str]) -> None:
    async with stage.opened(msgspec.structs.replace(machines.pair(), findings=(machines.HELD,))) as pilot:
        await press(pilot, *keys)
        sheet = stage.screen(EvidenceSheet)
        assert "idle for 14 min" in sheet.pane.plain
        evidence = (*machines.HELD.evidence, *(f"line {number}" for number in range(4)))
        later = msgspec.structs.replace(machines.HELD, title="idle for 99 min", evidence=evidence, action="ask alice")
        stage.push(msgspec.structs.replace(machines.pair(2), findings=(later,)))
        await until(pilot, lambda: "idle for 99 min" in sheet.pane.plain and "→ ask alice" in sheet.pane.plain)
        assert stage.app.screen is sheet
        await pilot.press("c")
        assert stage.app.clipboard == "ask alice"
        stage.push(msgspec.structs.replace(machines.pair(4), findings=()))
        gone = "No problems found" if keys == "f" else "idle for 99 min"
        await until(pilot, lambda: gone in sheet.pane.plain)


async def test_healthy_is_shown_with_what_was_checked(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(conditions=FixedFindings(WELL, LINK))
    async with stage.opened(machines.snapshot(machines.pair().devices)) as pilot:
        assert "● all well for 12 min" in stage.app.overview.top_line.plain
        await press(pilot, "5")
        screen = stage.screen(FindingsScreen)
        first, second = [line for line in screen.finding_list.plain.splitlines() if "●" in line or "○" in line]
        assert "No problems found" in first
        assert "2 GPUs and 3 processes" in first
        assert "pcie.degraded" in second
        assert "looked for: heat" in screen.evidence.plain
        await press(pilot, "1", "f")
        sheet = stage.screen(EvidenceSheet)
        assert "looked for: heat" in sheet.pane.plain


@every(CAUSES)
def test_a_page_loses_nothing_but_its_marks(cause: str) -> None:
    shown = "".join(text for line in page_lines(page(cause)) for text, _ in line)
    for word in page(cause).replace("](", "] (").split():
        plain = word.strip("`*|[]()#-.,:;\"'")
        if plain and not plain.startswith("```") and not plain.endswith(".md") and len(plain) > 6 and plain.isalpha():
            assert plain in shown, plain


@pytest.mark.parametrize(("keys", "size"), [(("5",), (80, 24)), (("5", "p"), (120, 40))], ids=["watched", "page"])
def test_picture(
    make_stage: Callable[..., Stage],
    snap_compare: Callable[..., bool],
    keys: tuple[str, ...],
    size: tuple[int, int],
) -> None:
    stage = make_stage(conditions=FixedFindings(HOT, LINK))

    async def before(pilot: Pilot[None]) -> None:
        await stage.show(pilot, machines.snapshot(machines.pair().devices))
        await press(pilot, *keys)

    assert snap_compare(stage.app, terminal_size=size, run_before=before)


NOTE = Finding(id="pcie.degraded", severity="info", certainty="fact", title="GPU 1 has fewer lanes", since=at(2))
ENDED = Finding(id="unknown", severity="warning", certainty="fact", title="the collector ended by itself", since=at(1))


async def test_nothing_is_offered_for_what_is_well(make_stage: Callable[..., Stage]) -> None:
    async with listed(make_stage, WELL, NOTE) as (_, pilot, screen):
        assert "1 note below" in screen.finding_list.plain
        assert "wrong ─" not in screen.finding_list.plain, "a note is not counted"
        assert "c copy" not in screen.keys.plain
        assert "p cause page" not in screen.keys.plain
        await press(pilot, "down")
        assert "p cause page" in screen.keys.plain
        assert "c copy" not in screen.keys.plain, "this note asks for nothing"


async def test_what_has_no_page_says_so_nowhere(make_stage: Callable[..., Stage]) -> None:
    async with listed(make_stage, ENDED) as (stage, pilot, screen):
        assert "unknown" not in screen.finding_list.plain + screen.evidence.plain
        await press(pilot, "p")
        assert stage.app.screen is screen


async def test_a_driver_that_is_silent_and_its_replaced_reader_are_one_finding(
    make_stage: Callable[..., Stage],
) -> None:
    stage = make_stage(conditions=FixedFindings(WELL))
    async with stage.opened(machines.snapshot(machines.pair().devices)) as pilot:
        stage.feed.state = FeedStatus("not-answering", 20.0, 19.0, 1, "the collector did not answer and was replaced")
        stage.app._tick()
        await press(pilot, "5")
        screen = stage.screen(FindingsScreen)
        assert "1 wrong" in screen.finding_list.plain
        assert "The driver does not answer" in screen.finding_list.plain
        assert "it was replaced once so far" in screen.evidence.plain
        assert [one.kind for one in stage.app.session.timeline.events()] == ["collector.replaced", "silence.began"]
        stage.feed.state = FeedStatus("ok", 0.0, 0.0, 1)
        stage.push(machines.snapshot(machines.pair().devices, tick=30))
        stage.app._tick()
        await settle(pilot)
        assert "does not answer" not in screen.finding_list.plain
        assert "No problems found" in screen.finding_list.plain


async def test_a_wide_terminal_shows_the_page_of_the_cause_beside_the_list(make_stage: Callable[..., Stage]) -> None:
    async with listed(make_stage, HOT, LINK, size=(200, 60)) as (_, pilot, screen):
        assert "cause throttle.thermal" in screen.page.plain
        assert "How it is recognized" in screen.page.plain
        await press(pilot, "down")
        assert "gpuwatch cause pcie.degraded" in screen.page.plain
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert not screen.page.display
        assert screen.finding_list.size.width == 120
        await pilot.resize_terminal(50, 10)
        await settle(pilot)
        assert not screen.finding_list.region.area


async def test_the_room_beside_a_healthy_machine_says_what_is_looked_for(make_stage: Callable[..., Stage]) -> None:
    async with listed(make_stage, WELL, size=(200, 60)) as (_, _, screen):
        assert "Thermal throttling" in screen.page.plain


async def test_the_page_of_the_cause_follows_the_evidence_on_a_narrower_terminal(
    make_stage: Callable[..., Stage],
) -> None:
    stage = make_stage(conditions=FixedFindings(HOT, LINK))
    async with stage.opened(machines.snapshot(machines.pair().devices)) as pilot:
        await press(pilot, "5")
        screen = stage.app.screen
        for finding in (HOT, LINK):
            assert f"Cause page  gpuwatch cause {finding.id}" in screen.evidence.plain
            assert screen.evidence.plain.index(finding.action) < screen.evidence.plain.index("What it is")
            await press(pilot, "down")


def hot_gpus(*indices: int) -> tuple[Finding, ...]:
    """Findings that differ in the GPU and the last line of evidence."""
    return tuple(
        msgspec.structs.replace(
            HOT,
            title=f"GPU {index} throttled (thermal)",
            evidence=("the driver's reasons: sw-thermal", f"core {90 + index % 2} °C"),
            device_uuid=machines.uuid(index),
            since=at(12 + index),
        )
        for index in indices
    )


async def test_equal_findings_of_several_gpus_are_one_row(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(conditions=FixedFindings(*hot_gpus(2, 0, 1, 3), LINK))
    async with stage.opened(machines.many(4, 0), size=(120, 40)) as pilot:
        assert "GPU 0-3 throttled (thermal)" in stage.app.overview.summary.plain
        assert "1 of" not in stage.app.overview.summary.plain
        assert "4 warnings" in stage.app.overview.top_line.plain, "each of them counts"
        await press(pilot, "5")
        screen = stage.screen(FindingsScreen)
        assert len(screen.finding_list.items) == 2
        assert "GPU 0-3 throttled (thermal)" in screen.finding_list.plain
        assert "since 11:49:31" in screen.finding_list.plain, "the oldest"
        evidence = screen.evidence.plain
        assert "· the driver's reasons: sw-thermal" in evidence
        assert "· GPU 0, 2: core 90 °C" in evidence
        assert "· GPU 1, 3: core 91 °C" in evidence


def test_findings_with_other_advice_or_of_other_times_stay_apart() -> None:
    devices = [machines.device(index) for index in range(4)]
    first, second, third = hot_gpus(0, 1, 2)
    other = msgspec.structs.replace(second, action="Replace the card.")
    assert grouped_findings((first, other, WELL), devices) == [first, other, WELL]
    assert [found.title for found in grouped_findings((first, other, third), devices)] == [
        "GPU 0, 2 throttled (thermal)",
        "GPU 1 throttled (thermal)",
    ]
    past = [msgspec.structs.replace(found, until=at(5)) for found in (first, second)]
    titles = [found.title for found in grouped_findings((first, second, *past, *past), devices)]
    assert titles == ["GPU 0-1 throttled (thermal)"] * 3, "now, and two earlier times"
    by_number = [
        msgspec.structs.replace(found, action=f"nvidia-smi -i {n} -q") for n, found in enumerate((first, second))
    ]
    assert grouped_findings(by_number, devices)[0].action == "nvidia-smi -i 0,1 -q"
    lost = [
        msgspec.structs.replace(found, title=f"GPU {n} has fallen off the bus")
        for n, found in enumerate((first, second))
    ]
    assert grouped_findings(lost, devices)[0].title == "GPUs 0-1 have fallen off the bus"
    assert grouped_findings(lost[:1], devices)[0].title == "GPU 0 has fallen off the bus"


def test_equal_events_of_several_gpus_at_one_moment_are_one_line() -> None:
    shot = machines.many(4, 0)
    now = shot.taken_at.timestamp()
    lost = {"kind": "gpu.lost", "severity": "error"}
    events = [
        MachineEvent(at=now - 20, text="GPU 3 has fallen off the bus", device_uuid=machines.uuid(3), **lost),
        *(
            event
            for n in range(3)
            for event in (
                MachineEvent(at=now - 9, text=f"GPU {n} has fallen off the bus", device_uuid=machines.uuid(n), **lost),
                MachineEvent(at=now - 9, kind="clock", text=f"GPU {n}: clock 1.{n} GHz", device_uuid=machines.uuid(n)),
                MachineEvent(at=now - 9, kind="process.exited", text=f"python exited on GPU {n}", pid=7 + n),
            )
        ),
    ]
    view = View(shot, History(), FeedStatus("ok", 0.0), now, 1.0, events=events)
    drawn = ["".join(text for text, _ in line.spans).rstrip() for line in with_latest_events([], view, 80, 20)]
    told = [re.split(r"  . ", line)[-1] for line in drawn if "GPU" in line]
    assert told == [
        *("python exited on GPU 2", "GPU 2: clock 1.2 GHz", "GPU 1: clock 1.1 GHz", "GPU 0: clock 1.0 GHz"),
        *("GPUs 0-2 have fallen off the bus", "python exited on GPU 1", "python exited on GPU 0"),
        "GPU 3 has fallen off the bus",
    ]


def test_the_text_of_a_snapshot_names_them_once_and_its_json_each() -> None:
    snapshot = msgspec.structs.replace(machines.many(4, 0), findings=hot_gpus(0, 1, 2, 3))
    (found,) = snapshot_content(snapshot).findings
    assert found.title == "GPU 0-3 throttled (thermal)"
    assert to_json(snapshot).count("throttle.thermal") == 4


async def test_p_takes_a_free_gpu_without_a_finding(make_stage: Callable[..., Stage], tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    stage = make_stage(conditions=FixedFindings(*hot_gpus(0, 1)), probe_runs=bench.probe_runs)
    empty = {"memory.used_bytes": 0}
    idle = machines.snapshot(tuple(machines.device(index, busy=0, readings=empty) for index in range(4)))
    async with stage.opened(idle) as pilot:
        assert "Free: 0-3" in stage.app.overview.summary.plain
        await press(pilot, "p")
        assert bench.probe_runs.parameters.gpu == machines.uuid(2)

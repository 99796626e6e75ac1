"""What the dashboard says of the machine never contradicts what it shows."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Problem, Snapshot
from gpuwatch.fleet.fleet_summary import summarize_fleet
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session.view import View, most_important_first
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.ui.details.finding_lines import all_finding_lines
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.panes.host_list_lines import problem_line
from gpuwatch.ui.panes.verdict import verdict
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.test_ui_dashboard import everything
from tests.ui.waiting import press, settle

MISMATCH = Problem(
    source="nvml",
    reason="driver.mismatch",
    detail="the driver's library does not match its kernel module",
    hint="reboot, or reload what is simulated",
)


HOT = {"clocks__event_reasons": "sw-thermal", "clocks__sm_mhz": 1400, "temperature__gpu_celsius": 88}


@pytest.fixture
def judged() -> Stage:
    return Stage()


def calm(tick: int, **changes: object) -> Snapshot:
    """Two GPUs, nothing wrong with them."""
    shot = machines.pair(tick)
    devices = []
    for device in shot.devices:
        readings = {name: value for name, value in device.readings.items() if name.partition(".")[0] not in _TROUBLE}
        readings["clocks.event_reasons"] = "none"
        devices.append(msgspec.structs.replace(device, readings=readings, state="ok", state_detail=""))
    plain = msgspec.structs.replace(shot, devices=tuple(devices), problems=(), findings=(), processes=(), bystanders=())
    return msgspec.structs.replace(plain, **changes)


_TROUBLE = {"ecc", "remapped_rows", "retired_pages", "health", "pcie"}


def with_device(tick: int, number: int, *, state: str = "ok", **readings: object) -> Snapshot:
    """:func:`calm` but for one device."""
    shot = calm(tick)
    devices = list(shot.devices)
    values = {**devices[number].readings, **{name.replace("__", "."): value for name, value in readings.items()}}
    devices[number] = msgspec.structs.replace(devices[number], state=state, readings=values)
    return msgspec.structs.replace(shot, devices=tuple(devices))


def badge(stage: Stage) -> tuple[str, str]:
    return verdict(stage.app.session.view())


def falls_silent(stage: Stage, seconds: float = 9.0, blame: str = "") -> None:
    """The feed's state as the app's clock shows it, without a sample."""
    stage.now += seconds
    stage.feed.state = FeedStatus("not-answering", seconds + 1, seconds, collector_fault=blame)
    stage.app._last_sample_at = float("-inf")
    stage.app._tick()


async def test_the_badge_tells_of_now_while_the_display_stands_still(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(*(calm(tick) for tick in range(5)))
        await settle(pilot)
        assert "● all well" in judged.app.overview.top_line.plain
        await pilot.press("P")
        judged.push(with_device(5, 1, state="lost"))
        await settle(pilot)
        line = judged.app.overview.top_line.plain
        assert "✖ 1 error" in line
        assert "all well" not in line
        await press(pilot, "P")
        await pilot.press("P")
        judged.push(calm(6))
        await settle(pilot)
        line = judged.app.overview.top_line.plain
        assert "all well" not in line, "what is looked at is not well, though what is now is"
        assert "then ✖ 1 error" in line


async def test_a_driver_that_does_not_answer_is_a_finding(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(*(calm(tick) for tick in range(60)))
        await settle(pilot)
        await press(pilot, "5")
        screen = judged.app.tab
        assert "No problems found" in screen.finding_list.plain
        falls_silent(judged)
        await settle(pilot)
        assert "Nothing wrong" not in screen.finding_list.plain
        assert "✖ The driver does not answer" in screen.finding_list.plain
        assert "no sample since" in screen.evidence.plain
        assert "→ If this persists" in screen.evidence.plain
        assert badge(judged)[1] != "ok"
        judged.push(calm(71))
        await settle(pilot)
        assert "does not answer" not in screen.finding_list.plain
        assert badge(judged) == ("● all well", "ok"), "for how long begins anew"


async def test_time_in_which_all_was_well_begins_anew_after_trouble(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        for tick in range(0, 200, 10):
            judged.push(calm(tick))
            await settle(pilot)
        assert badge(judged) == ("● all well for 3 min", "ok")
        falls_silent(judged)
        judged.push(calm(205))
        await settle(pilot)
        assert badge(judged) == ("● all well", "ok")
        for tick in range(210, 330, 10):
            judged.push(calm(tick))
            await settle(pilot)
        assert badge(judged) == ("● all well for 2 min", "ok")


async def test_throttling_is_shown_at_once_everywhere_and_becomes_a_finding_if_it_lasts(judged: Stage) -> None:
    braked = {"clocks__event_reasons": "hw-slowdown+hw-power-brake"}
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(*(calm(tick) for tick in range(30)))
        await settle(pilot)
        judged.push(with_device(30, 0, **braked))
        await settle(pilot)
        assert not judged.app.session.errors_and_warnings
        assert badge(judged) == ("▲ throttled", "warning")
        assert "▲ throttled (power brake)" in judged.app.overview.gpus.plain
        await press(pilot, "2")
        assert "▲ throttled (power brake)" in everything(judged)
        assert "see 5" not in everything(judged), "there is no finding yet"
        await pilot.press("1")
        judged.push(calm(31))
        await settle(pilot)
        assert badge(judged) == ("● all well", "ok"), "it only flashed"
        judged.push(*(with_device(tick, 0, **braked) for tick in range(32, 45)))
        await settle(pilot)
        assert badge(judged) == ("▲ 1 warning", "badge-warning")
        assert judged.app.overview.gpus.plain.count("throttled") == 1


async def test_the_mark_of_a_throttled_gpu_stands_in_its_line(judged: Stage) -> None:
    async with judged.app.run_test(size=(80, 24)) as pilot:
        judged.push(*(calm(tick) for tick in range(30)))
        judged.push(with_device(30, 0, clocks__event_reasons="hw-slowdown"))
        await press(pilot, "L")
        lines = judged.app.overview.gpus.plain.splitlines()
        assert "▲" in next(line for line in lines if " 0 " in line)


async def test_what_a_card_calls_slowed_is_no_machine_on_which_all_is_well(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(*(calm(tick) for tick in range(30)))
        await settle(pilot)
        judged.push(with_device(30, 0, **HOT))
        await settle(pilot)
        assert "▲ throttled" in everything(judged)
        assert badge(judged) == ("▲ 1 warning", "badge-warning")
        assert "GPU 0 throttled (thermal)" in judged.app.overview.summary.plain
        judged.push(*(with_device(tick, 0, **HOT) for tick in range(31, 60)))
        await settle(pilot)
        assert badge(judged) == ("▲ 1 warning", "badge-warning"), "the lasting finding takes its place"
        for tick in range(60, 120, 10):
            judged.push(calm(tick))
            await settle(pilot)
        assert badge(judged)[1] == "ok"


@pytest.mark.parametrize(
    ("changes", "words", "glyph", "severity"),
    [
        (HOT, "throttled (thermal)", "▲", "warning"),
        ({"ecc__uncorrected": 3}, "uncorrected ECC errors: 3 since the last reset", "▲", "warning"),
        ({"remapped_rows__failure": "yes"}, "memory could not be remapped", "✖", "error"),
    ],
)
async def test_a_condition_has_one_wording_and_one_severity_in_card_event_finding_and_badge(
    judged: Stage, changes: dict[str, object], words: str, glyph: str, severity: str
) -> None:
    async with judged.app.run_test(size=(200, 60)) as pilot:
        if "ecc__uncorrected" not in changes:  # a counter that grows while somebody watches is another condition
            judged.push(*(calm(tick) for tick in range(30)))
            await settle(pilot)
        judged.push(with_device(30, 0, **changes))
        await settle(pilot)
        (found,) = judged.app.session.view().errors_and_warnings
        event = judged.app.session.timeline.events()[-1]
        assert (found.title, event.text) == (f"GPU 0 {words}",) * 2
        assert (found.severity, event.severity, event.cause) == (severity, severity, found.id)
        assert badge(judged) == (f"{glyph} 1 {severity}", f"badge-{severity}")
        assert f"{glyph} {words}" in judged.app.overview.gpus.plain
        assert words in judged.app.overview.summary.plain
        assert words not in judged.app.overview.top_line.plain, "it is on this screen already"


async def test_a_collector_that_was_stopped_is_not_blamed_on_the_driver(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(calm(0))
        await settle(pilot)
        falls_silent(judged, blame="was stopped")
        await settle(pilot)
        line = judged.app.overview.top_line.plain
        assert "collector stopped" in line
        assert "driver not" not in line
        judged.push(calm(20))
        await settle(pilot)
        texts = [one.text for one in judged.app.session.timeline.events()]
        assert any("the driver, was stopped" in text for text in texts)
        assert any(text.startswith("Samples arrive again") for text in texts)
        assert not any("driver answers again" in text for text in texts)


async def test_a_device_that_is_back_is_not_red(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(*(calm(tick) for tick in range(5)), with_device(5, 1, state="lost"))
        await settle(pilot)
        assert badge(judged)[0] == "✖ 1 error"
        judged.push(calm(6))
        await settle(pilot)
        assert badge(judged) == ("● all well", "ok")
        assert "Wrong" not in judged.app.overview.summary.plain


async def test_a_mismatch_is_shown_once_and_older_data_are_not_shown_as_current(judged: Stage) -> None:
    async with judged.app.run_test(size=(120, 40)) as pilot:
        judged.push(*(with_device(tick, 0, **HOT) for tick in range(30)))
        await settle(pilot)
        assert badge(judged)[0] == "▲ 1 warning"
        gone = calm(30, driver=None, devices=(), problems=(MISMATCH,), simulated=True)
        judged.push(gone)
        await settle(pilot)
        text = everything(judged)
        assert "cannot be queried" in text
        assert "Reboot, or reload" in judged.app.overview.summary.plain, "the simulation's own way out"
        assert "--sim" not in text
        await press(pilot, "5")
        current = [line for line in judged.app.tab.finding_list.plain.splitlines() if "○" not in line]
        assert "because it is hot" not in "\n".join(current)
        assert sum("library" in line for line in current) == 1
        judged.push(calm(31))
        await settle(pilot)
        assert "✖" not in judged.app.tab.finding_list.plain
        assert badge(judged)[1] != "badge-error"


async def test_nothing_says_that_nothing_was_found_beside_a_badge_that_is_not_green(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.broken())
        await press(pilot, "5")
        assert badge(stage)[0].startswith("✖")
        assert "Nothing wrong" not in stage.app.tab.finding_list.plain


async def test_what_is_wrong_with_a_filter_stays_until_its_text_changes(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("slash", *"mem>1GiB usr:x")
        for tick in (1, 2, 3):
            await settle(pilot)
            bar = stage.app.overview.filter_bar
            assert bar is not None
            assert "no field" in bar._note.plain, "samples do not take it away"
            stage.push(machines.pair(tick))
        for key in ("enter", "down"):
            await pilot.press(key)
            assert stage.app.overview.filter_bar is bar, "what means nothing is not accepted"
        assert "no field" in bar._note.plain
        await press(pilot, *["backspace"] * 6)
        assert "no field" not in bar._note.plain
        await pilot.press("enter")
        assert stage.app.overview.filter_bar is None


@pytest.mark.parametrize(
    ("status", "changes", "expected"),
    [
        (FeedStatus("stopped", 3.0, detail="the recording ends here"), {}, ""),
        (FeedStatus("ok", 0.0), {"state": "lost", "state_detail": "fell off the bus"}, "✖ 1 error"),
    ],
)
def test_the_top_line_is_not_green_above_an_error(status: FeedStatus, changes: dict[str, str], expected: str) -> None:
    shot = calm(0)
    lame = msgspec.structs.replace(shot.devices[0], **changes)
    shot = msgspec.structs.replace(shot, devices=(lame, *shot.devices[1:]))
    at = shot.taken_at.timestamp()
    lost = Finding(id="hardware.fault", severity="error", certainty="fact", title="lost", device_uuid=lame.uuid)
    well = Finding(id="healthy", severity="info", certainty="fact", title="well", since=shot.taken_at)
    found = (lost,) if changes else (well,)
    view = View(shot, History(), status, at, 1.0, findings=found, errors_and_warnings=most_important_first(found))
    assert verdict(view)[0] == expected


def test_what_cannot_be_read_is_not_called_well_anywhere() -> None:
    """In the list of hosts, and where a machine's findings are listed."""
    failed = dict.fromkeys(("memory.used_bytes", "utilization.gpu_percent"), Missing("failed", code=999))
    for missing, well in (({}, True), (failed, False)):
        device = machines.device(0, busy=0, readings={"memory.used_bytes": 0}, missing=missing)
        shot = machines.snapshot((device,))
        builder = LineBuilder(120)
        hosts = (HostView(name="a", snapshot=shot),)
        problem_line(builder, summarize_fleet(Fleet(taken_at=0.0, source="x", hosts=hosts)))
        line = "".join(text for text, _ in builder.spans)
        assert ("●" in line) is well
        assert ("too little is known" in line) is not well
        view = View(shot, History(), FeedStatus("ok", 0.0), shot.taken_at.timestamp(), 1.0)
        assert (content_of(shot).state == "ok") is well, "a sample of a recording"
        told = str(all_finding_lines(view))
        assert ("No problems found" in told) is well
        assert ("Not judged" in told) is not well

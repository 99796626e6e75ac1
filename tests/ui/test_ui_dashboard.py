"""The first screen under the hand of a user."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from msgspec import structs
from textual import events

from gpuwatch.core.model.driver_advice import TRY_SIMULATED_GPUS, missing_driver_action
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Process
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.ui.app import make_tab
from gpuwatch.ui.screens.gpu import GpuScreen
from gpuwatch.ui.screens.help_sheet import HelpGroup, help_groups, help_lines
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.settings.actions import ACTIONS, tab_actions
from gpuwatch.ui.settings.tabs import TABS, Tab
from gpuwatch.ui.tables.device_notes import attention_mark
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.fixed_findings import FixedFindings
from tests.ui.waiting import opened, press, settle, until


def shown_pids(stage: Stage) -> list[int]:
    return [row.pid for row in stage.app.overview.processes.items if isinstance(row, Process)]


def everything(stage: Stage) -> str:
    overview = stage.app.overview
    panes = (overview.top_line, overview.host, overview.gpus, overview.summary, overview.processes, overview.keys)
    return "\n".join(pane.plain for pane in (*panes, overview.timeline) if pane is not None and pane.display)


def chosen_pid(stage: Stage) -> int:
    row = stage.app.overview.processes.item_under_cursor
    assert isinstance(row, Process)
    return row.pid


async def test_first_frame_comes_before_the_first_sample(stage: Stage) -> None:
    async with stage.opened() as pilot:
        text = everything(stage)
        assert "◌ starting" in text
        assert "querying the driver for GPUs" in text
        assert stage.feed.started == 1
        await stage.show(pilot, machines.pair())
        assert "starting" not in everything(stage)
        assert "NVIDIA H200" in everything(stage)
    assert stage.feed.stopped == 1


async def test_every_sample_is_kept_and_only_the_last_is_drawn(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=30):
        assert stage.app.session.history.sample_count == 30
        assert stage.app.session.snapshot is not None
        assert stage.app.session.snapshot.taken_at == machines.pair(29).taken_at


async def test_numbers_of_the_sketch_are_on_screen(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=50):
        text = everything(stage)
        for part in ("node07", "580.159", "CUDA 13.0", "▲ 1 warning"):
            assert part in text
        for part in ("131.2/139.8 GiB", "/700 W", "34 °C", "P0", "PCIe 5×16", "120s", "0000:1b:00.0"):
            assert part in text
        assert "holds 130.4 GiB on 1, 14 min" in text
        for part in ("tensorflow 2.21", "GPU:0→1", "cuda:0→0", "– (denied)", "unexplained", "0.8 GiB"):
            assert part in text


@pytest.mark.parametrize(
    ("size", "told"), [((200, 60), True), ((160, 45), True), ((120, 40), True), ((80, 24), True), ((80, 12), False)]
)
async def test_a_table_of_few_processes_ends_with_the_latest_events(
    make_stage: Callable[..., Stage], size: tuple[int, int], told: bool
) -> None:
    stage = make_stage(conditions=ConditionEngine())
    async with stage.app.run_test(size=size) as pilot:
        stage.past(machines.lively, 200)
        table = stage.app.overview.processes
        await until(pilot, lambda: "2210" in table.plain)
        told_of = [one.text for one in stage.app.session.events]
        assert told_of
        assert ("LATEST EVENTS" in table.plain) is told
        assert (told_of[-1][:40] in table.plain) is told
        await pilot.press("end")
        await pilot.click(table, offset=(10, table.size.height - 3))
        assert isinstance(table.item_under_cursor, Process), "no event is a row"


async def test_cursor_follows_its_process_when_rows_are_sorted_anew(stage: Stage) -> None:
    async with stage.opened(machines.many(2, 10)) as pilot:
        await pilot.press("down", "down", "j")
        pid = chosen_pid(stage)
        stage.app.overview.processes.sort_by("pid")
        assert chosen_pid(stage) == pid
        for tick in range(1, 12):
            await stage.show(pilot, machines.many(2, 10, tick=tick))
            assert chosen_pid(stage) == pid


@pytest.mark.parametrize(("keys", "number"), [("down", 1), ("up", 0)])
async def test_no_other_process_is_selected_when_the_selected_one_ends(stage: Stage, keys: str, number: int) -> None:
    async with stage.opened(machines.many(1, 4)) as pilot:
        table = stage.app.overview.processes
        await pilot.press("down")
        gone = chosen_pid(stage)
        left = tuple(p for p in machines.many(1, 4).processes if p.pid != gone)
        for tick in (1, 2):
            await stage.show(pilot, machines.snapshot(machines.many(1).devices, left, tick=tick))
        assert table.item_under_cursor is None
        assert "▶" not in table.plain
        await press(pilot, "f9")
        assert stage.app.screen is stage.app.overview
        assert "nothing is selected" in stage.app.overview.keys.plain
        await pilot.press(keys)
        assert table.item_under_cursor is table.items[number], "the row that has taken its place, or the one above"


async def test_a_reused_pid_is_another_process(stage: Stage) -> None:
    async with stage.opened(machines.many(1, 6)) as pilot:
        await pilot.press("down")
        row = stage.app.overview.processes.item_under_cursor
        assert isinstance(row, Process)
        processes = [p for p in machines.many(1, 6).processes if p.pid != row.pid]
        again = machines.process(5, gpu=0, pid=row.pid, create_time=9e9, readings={"gpu_memory_bytes": 1})
        await stage.show(pilot, machines.snapshot(machines.many(1).devices, (*processes, again)))
        assert stage.app.overview.processes.item_under_cursor is not again


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_visible_rows_are_counted(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(machines.many(2, 200), size=size) as pilot:
        room = stage.app.overview.processes.room
        assert f"1–{room} of 200" in everything(stage)
        await press(pilot, "end")
        assert f"{201 - room}–200 of 200" in everything(stage)
        await stage.show(pilot, machines.many(2, 3, tick=1))
        assert " of 3" not in everything(stage), "all of them are seen"


async def test_sort_by_key_menu_and_click_on_a_head(stage: Stage) -> None:
    async with stage.opened(machines.many(2, 10)) as pilot:
        memory = [p.readings["gpu_memory_bytes"] for p in stage.app.overview.processes.items if isinstance(p, Process)]
        assert memory == sorted(memory, reverse=True)  # type: ignore[type-var]
        await press(pilot, "s", "home", "down", "enter")
        assert shown_pids(stage) == sorted(shown_pids(stage), reverse=True)
        await pilot.press("S")
        assert shown_pids(stage) == sorted(shown_pids(stage))
        table = stage.app.overview.processes
        assert "↑PID" in table.plain.splitlines()[1]
        head = next(placed for placed in table._columns if placed.column.id == "user")
        await pilot.click(table, offset=(head.start + 2, 1))
        await settle(pilot)
        assert table.sort_column == "user"
        users = [row.user for row in table.items if isinstance(row, Process)]
        assert users == sorted(users, key=str)


async def test_click_selects_a_row_and_the_wheel_leaves_it_alone(stage: Stage) -> None:
    async with stage.opened(machines.many(2, 40), size=(80, 24)) as pilot:
        table = stage.app.overview.processes
        await pilot.click(table, offset=(10, 3))
        pid = chosen_pid(stage)
        assert table.items[2].key == table._cursor_key
        table.post_message(_wheel(table))
        await settle(pilot)
        assert table.top == 3
        assert chosen_pid(stage) == pid
        await stage.show(pilot, machines.many(2, 40, tick=1))
        assert table.top == 3, "a new sample must not scroll back"


def _wheel(table: object) -> object:
    return events.MouseScrollDown(table, 5, 5, 0, 1, 0, False, False, False)  # type: ignore[arg-type]


async def test_filter_is_live_counts_and_is_cleared_by_escape(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "slash", *"alice")
        assert shown_pids(stage) == [48121]
        assert "1 of 3" in everything(stage)
        await press(pilot, "enter")
        assert shown_pids(stage) == [48121]
        await stage.show(pilot, machines.pair(1))
        assert shown_pids(stage) == [48121], "a filter stays while data come"
        await pilot.press("escape")
        assert len(shown_pids(stage)) == 3
        await press(pilot, "slash", *"nobody")
        assert "in 3 processes; Esc" in everything(stage)
        await press(pilot, "escape")
        assert len(shown_pids(stage)) == 3
        assert stage.app.overview.keys.display


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (120, 40)])
async def test_a_filter_that_hides_rows_is_seen_at_every_size(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(machines.many(2, 60), size=size) as pilot:
        await press(pilot, "slash", *"torch", "enter")
        text = everything(stage)
        assert f"{len(shown_pids(stage))} of 60" in text
        assert "torch" in text.replace("torch 2.11", "")
        if size == (80, 24):
            keys = stage.app.overview.keys.plain
            assert all(key in keys for key in ("s sort", "K signal", "p probe")), "they work on"
            assert "/ filter" not in keys, "the filter itself is named"
        assert "? help" in text
        assert "q quit" in text
        await pilot.press("escape")
        assert "/torch" not in everything(stage).replace("/ torch", "/torch")


async def test_a_filter_typed_faster_than_it_opens_loses_no_letter(stage: Stage) -> None:
    """All keys are in the queue before the first is handled, as from a paste or over a slow link."""
    async with stage.opened(machines.pair()) as pilot:
        for key in ("slash", *"bobq", "backspace"):
            stage.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(pilot)
        await settle(pilot)
        assert stage.app.is_running
        assert shown_pids(stage) == [51877]
        assert stage.app.overview.filter_bar is not None
        await pilot.click("#processes", offset=(10, 3))
        await settle(pilot)
        assert stage.app.overview.filter_bar is None, "a click elsewhere leaves the line"
        assert shown_pids(stage) == [51877], "and keeps the filter"


async def test_keys_typed_into_the_filter_do_not_act(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "slash", "q", "s", "space", "i")
        assert stage.app.is_running
        assert not stage.app.session.paused
        assert not isinstance(stage.app.screen, LinesSheet)


async def test_pause_freezes_the_display_and_not_the_history(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=10) as pilot:
        await press(pilot, "P")
        before = (stage.app.overview.gpus.plain, stage.app.overview.processes.plain)
        assert "PAUSED" in everything(stage)
        await stage.show(pilot, *(machines.many(2, 9, tick=tick) for tick in range(10, 40)))
        assert (stage.app.overview.gpus.plain, stage.app.overview.processes.plain) == before
        assert stage.app.session.history.sample_count == 40
        assert "30 s ago" in everything(stage)
        await pilot.resize_terminal(118, 40)
        await settle(pilot)
        assert shown_pids(stage) == [48121, 51877, 1999], "a resize must not thaw"
        await press(pilot, "P")
        assert "PAUSED" not in everything(stage)
        assert len(shown_pids(stage)) == 9


async def test_a_hung_driver_is_reported_once_and_old_data_are_dimmed(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        fresh = stage.app.overview.gpus.rich_style_of("strong")
        stage.feed.state = FeedStatus(state="not-answering", age_seconds=9.0, waiting_seconds=8.0)
        stage.app._last_sample_at = float("-inf")
        stage.app._tick()
        await settle(pilot)
        text = everything(stage)
        assert "no answer for 8 s" in text
        assert "data 9 s old" not in text, "the same a second time"
        assert "NVIDIA H200" in text, "what is known stays on screen"
        assert stage.app.overview.gpus.rich_style_of("strong") != fresh, "and is dimmed"
        await pilot.press("down")
        assert chosen_pid(stage) == 51877, "keys go on working"
        await stage.show(pilot, machines.pair(1))
        assert "not answering" not in everything(stage)
        assert stage.app.overview.gpus.rich_style_of("strong") == fresh


async def test_a_feed_that_stopped_says_why(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        stage.feed.state = FeedStatus(state="stopped", age_seconds=3.0, detail="the recording ends here")
        stage.app._last_sample_at = float("-inf")
        stage.app._tick()
        await settle(pilot)
        assert "the recording ends here" in everything(stage)


async def test_interval_keys(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("plus")
        assert stage.feed.interval == 0.5
        assert "0.5s" in stage.app.overview.top_line.plain
        await pilot.press("minus", "minus", *["minus"] * 10)
        assert stage.feed.interval == 10.0


@pytest.mark.parametrize("size", [(60, 12), (60, 15), (80, 24), (120, 40)])
async def test_without_a_driver_the_advice_stands_once_and_is_not_cut_to_nonsense(
    stage: Stage, size: tuple[int, int]
) -> None:
    advice = missing_driver_action(None)
    problem = structs.replace(machines.no_driver().problems[0], hint=advice + TRY_SIMULATED_GPUS)
    async with stage.app.run_test(size=size) as pilot:
        finding = Finding(
            id="driver.missing", severity="error", certainty="fact", title="No NVIDIA driver found", action=advice
        )
        await stage.show(pilot, structs.replace(machines.no_driver(), problems=(problem,), findings=(finding,)))
        overview = stage.app.overview
        assert not overview.summary.display, "the panel has it"
        lines = [line.strip("│ ") for line in overview.gpus.plain.splitlines()]
        assert "With simulated GPUs:  gpuwatch --sim 2x24GiB" in lines
        shown = " ".join(lines)
        assert " ".join(advice.split()[-3:]) in shown or " …" in shown
        stage.push(
            structs.replace(
                machines.no_driver(1), problems=(problem,), findings=(structs.replace(finding, action="Other advice."),)
            )
        )
        await settle(pilot)
        assert "Other advice." in overview.summary.plain


async def test_no_driver_says_why_and_what_helps(stage: Stage) -> None:
    async with stage.opened(machines.no_driver(), size=(80, 24)):
        text = everything(stage)
        assert "libnvidia-ml.so.1 could not" in text
        assert "Install the NVIDIA driver" in text
        assert "gpuwatch --sim 2x24GiB" in text
        assert "✖ 1 error" in text
        assert "no NVIDIA driver" in text
        assert "no GPU on this machine" not in text
        assert "GPU-MEM" not in text
        assert len(shown_pids(stage)) == 12


async def test_simulated_gpus_say_so_before_their_driver_answers(
    stage: Stage, make_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUWATCH_SIM_STATE", raising=False)
    async with stage.opened(size=(80, 24)):
        assert "SIMULATED" not in everything(stage)
    monkeypatch.setenv("GPUWATCH_SIM_STATE", "/nowhere/shared-2x24GiB.state")
    asked = make_stage()
    async with opened(asked.app, (80, 24)):
        assert " SIMULATED " in everything(asked)


async def test_a_gpu_that_is_lost_keeps_its_place(stage: Stage) -> None:
    for size in ((80, 24), (120, 40)):
        one = Stage()
        async with one.app.run_test(size=size) as pilot:
            one.push(machines.broken())
            await settle(pilot)
            text = everything(one)
            assert "off the bus (XID 79)" in text
            assert "✖ 1 error" in text


async def test_unknown_is_a_dash_and_never_zero(stage: Stage) -> None:
    async with stage.opened(machines.broken(), size=(80, 24)):
        shy = next(line for line in stage.app.overview.gpus.plain.splitlines() if "GT 1030" in line)
        assert "– %" in shy
        assert "–/–W" in shy
        assert " 0 %" not in shy


async def test_why_a_cell_is_empty(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "down", "down", "i")
        modal = stage.screen(LinesSheet)
        text = "\n".join("".join(t for t, _ in line) for line in modal.pane.content)
        assert "denied, NVML code 4" in text
        assert "nvmlDeviceGetProcessUtilization" in text
        assert "Fan speed" in text
        await pilot.press("escape")
        assert stage.app.screen is stage.app.overview


async def test_findings_open_by_key_and_their_action_is_copied(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "f")
        assert isinstance(stage.app.screen, LinesSheet)
        assert "SM 0 % since 11:50:12" in stage.app.screen.pane.plain
        await pilot.press("c")
        assert stage.app.clipboard == machines.HELD.action
        await pilot.press("escape")
        assert "holds 130.4 GiB on 1, 14 min" in stage.app.overview.summary.plain


async def test_a_problem_beside_working_gpus_has_its_line(stage: Stage) -> None:
    problem = machines.Problem(
        source="processes", reason="permission_denied", detail="/proc is hidden (hidepid=2)", hint="ask for the group"
    )
    async with stage.opened(machines.many(2, 4, problems=(problem,)), size=(80, 24)) as pilot:
        assert "/proc is hidden (hidepid=2)" in stage.app.overview.summary.plain
        assert "▲ 1 warning" in stage.app.overview.top_line.plain
        await stage.show(pilot, machines.many(2, 4))
        assert "Wrong" not in stage.app.overview.summary.plain
        assert "● all well" in stage.app.overview.top_line.plain


async def test_a_click_on_a_key_of_the_footer_does_what_the_key_does(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(180, 40)) as pilot:
        keys = stage.app.overview.keys
        for text, frozen in (("pause", True), ("back to now", False)):
            await pilot.click(keys, offset=(keys.plain.index(text), 0))
            await settle(pilot)
            assert stage.app.session.paused is frozen, text
        await pilot.click(keys, offset=(keys.plain.index("missing"), 0))
        await settle(pilot)
        assert isinstance(stage.app.screen, LinesSheet)


async def test_help_lists_every_action_of_every_tab_once(stage: Stage) -> None:
    async with stage.app.run_test(size=(200, 60)) as pilot:
        await press(pilot, "question_mark")
        modal = stage.screen(LinesSheet)
        text = "\n".join("".join(t for t, _ in line) for line in modal.pane.content)
        for action in (
            one for tab in TABS for one in tab_actions(tab.id) if one.help and not one.id.startswith("show_tab")
        ):
            assert action.help in text or f"{action.shown} " in text, action
            assert action.shown in text
        for tab in TABS:
            found = help_groups(tab.id)
            rows = [(group.title, *row) for group in found for row in group.rows]
            assert len(rows) == len(set(rows))
            assert len({group.title for group in found}) == len(found)


@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.id)
async def test_the_whole_help_fits_on_120x40_in_two_columns(stage: Stage, tab: Tab) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, str(TABS.index(tab) + 1), "question_mark")
        modal = stage.screen(LinesSheet)
        assert str(modal.pane.border_subtitle) == "Esc closes", "something is left below"
        shown = modal.pane.plain
        for group in help_groups(tab.id):
            assert group.title in shown
            assert group.rows[-1][1].split()[-1] in shown
        assert any(line[50:].strip() and line[:50].strip() for line in shown.split("\n"))


async def test_the_help_is_one_column_on_a_narrow_terminal(stage: Stage) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await press(pilot, "4", "question_mark")
        modal = stage.screen(LinesSheet)
        assert [one.title for one in help_groups("probes")][:2] == ["First", "4 Probes"], "then this tab"
        assert modal.pane.plain.startswith("First")
        assert [keys.split()[0] for keys, _ in help_groups("probes")[0].rows] == list("↵/sKufP;?q")
        assert "more below" in str(modal.pane.border_subtitle)


def test_a_group_is_split_only_where_that_is_needed() -> None:
    long = HelpGroup("Long", tuple((str(number), "entry") for number in range(20)))
    short = HelpGroup("Short", (("a", "one"),))
    lines = ["".join(text for text, _ in line) for line in help_lines([long, short], 120)]
    assert len(lines) == 21
    assert lines[0].split() == ["Long", "Short"]
    longer = HelpGroup("Long", tuple((str(number), "entry") for number in range(60)))
    lines = ["".join(text for text, _ in line) for line in help_lines([longer, short], 120)]
    assert len(lines) == 32
    assert lines[0].split() == ["Long", "Long"]


async def test_hostile_names_are_shown_and_never_obeyed(stage: Stage) -> None:
    async with stage.opened(machines.hostile(), size=(200, 60)) as pilot:
        text = everything(stage)
        assert "[bold red]not bold[/bold red] [@click=app.quit]press[/]" in text
        assert "\\x1b[2J" in text
        assert "\\u202e" in text
        assert "NVIDIA [red]H200[/red]\\x1b[31m" in text
        assert not any(ord(char) < 32 and char != "\n" for char in text)
        await press(pilot, "i")
        assert isinstance(stage.app.screen, LinesSheet)
        svg = stage.app.export_screenshot()
        assert "\x1b" not in svg


async def test_data_go_on_behind_a_sheet(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("question_mark")
        await stage.show(pilot, machines.many(3, 5, tick=9))
        await pilot.resize_terminal(100, 30)
        await settle(pilot)
        assert isinstance(stage.app.screen, LinesSheet)
        await press(pilot, "q")
        assert stage.app.screen is stage.app.overview, "q closes a sheet, and only that"
        assert machines.many(3).devices[2].pci_bus_id in everything(stage) or "  2 H200" in everything(stage)
        assert len(shown_pids(stage)) == 5
        assert stage.app.overview.processes.size.width == 100


async def test_tab_goes_round_the_panes_that_are_there(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        seen = []
        for _ in range(4):
            await pilot.press("tab")
            seen.append(stage.app.overview.focused_pane)
        assert seen == ["summary", "gpus", "processes", "summary"]
        assert "go there" in stage.app.overview.keys.plain
        assert stage.app.overview.summary.lines[0].highlighted
        await stage.show(pilot, machines.no_driver())
        for _ in range(3):
            await pilot.press("tab")
            assert stage.app.overview.focused_pane in ("processes", "summary"), "there are no GPUs"


async def test_simulated_gpus_are_marked(stage: Stage) -> None:
    async with stage.opened(machines.simulated(), size=(80, 24)):
        assert "SIMULATED" in stage.app.overview.top_line.plain


async def test_samples_are_judged_and_the_findings_are_ranked(make_stage: Callable[..., Stage]) -> None:
    worse = machines.Finding(id="hardware.fault", severity="error", certainty="fact", title="XID 79 on GPU 0")
    info = machines.Finding(id="healthy", severity="info", certainty="fact", title="fine")
    conditions = FixedFindings(info, worse)
    stage = make_stage(conditions=conditions)
    async with stage.opened(machines.pair()):
        assert len(conditions.judged) == 1
        assert "XID 79 on GPU 0" in stage.app.overview.summary.plain
        assert "Idle: alice" in stage.app.overview.summary.plain, "its finding is not told twice"
        assert "✖ 1 error" in stage.app.overview.top_line.plain


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit_stops_the_feed(stage: Stage, key: str) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        await press(pilot, key)
    assert stage.feed.stopped == 1
    assert (stage.app.return_code or 0) == 0


async def test_ctrl_c_leaves_a_sheet_and_the_filter_too(stage: Stage) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await pilot.press("question_mark")
        await press(pilot, "ctrl+c")
    assert stage.feed.stopped == 1


async def test_palette_has_the_actions(stage: Stage) -> None:
    async with stage.opened(machines.pair()):
        commands = list(stage.app.get_system_commands(stage.app.screen))
        titles = {command.title for command in commands}
        assert {a.name for a in tab_actions("overview") if a.name} <= titles
        pause = next(command for command in commands if command.title == "Pause or resume")
        await pause.callback()
        assert stage.app.session.paused


async def test_themes_redraw_everything(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        dark = stage.app.overview.gpus.rich_style_of("strong")
        for name in ("gpuwatch-light", "gpuwatch-contrast", "gpuwatch-color-blind", "ansi-dark"):
            stage.app.theme = name
            await settle(pilot)
            assert stage.app.overview.gpus.render_line(1).cell_length == 120
            assert stage.app.overview.processes.rich_style_of("cursor").reverse is (
                True if name == "ansi-dark" else None
            )
        stage.app.theme = "gpuwatch-light"
        await settle(pilot)
        assert stage.app.overview.gpus.rich_style_of("strong") != dark


def test_every_action_has_a_method_and_keys_are_not_taken_twice() -> None:
    for tab in TABS:
        screen = make_tab(tab.id)
        for action in tab_actions(tab.id):
            if not action.run:
                assert hasattr(screen, f"action_{action.id.partition('(')[0]}"), (tab.id, action.id)
    for pane, actions in ACTIONS.items():
        keys = [key for action in actions for key in action.keys.split(",")]
        assert len(keys) == len(set(keys)), pane


async def test_heads_stand_apart_whatever_is_sorted_by(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        table = stage.app.overview.processes
        for size in ((60, 15), (80, 24), (120, 40)):
            await pilot.resize_terminal(*size)
            await settle(pilot)
            for placed in table._columns:
                table.sort_by(placed.column.id, reverse=True)
                await settle(pilot)
                head = table.plain.split("\n")[1 if table.framed else 0].strip("│").replace(" →", "")
                named = head.replace("↓", "").split()
                assert named == [one.column.title for one in table._columns], (size, placed.column.id, head)


async def test_a_number_in_the_help_goes_to_that_tab(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "question_mark")
        await press(pilot, "2")
        assert stage.app.screen is stage.app.tab
        assert stage.app.tab.TAB == "gpu"


async def test_function_keys_are_those_of_htop(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "f4", *"alice", "enter")
        assert shown_pids(stage) == [48121]
        await press(pilot, "escape", "f5")
        assert stage.app.overview.processes.as_tree
        await press(pilot, "f9")
        assert stage.app.screen is not stage.app.overview
        await press(pilot, "escape", "f10")
    assert stage.feed.stopped == 1


async def test_an_error_has_its_own_glyph_on_the_card_and_in_the_line(stage: Stage) -> None:
    async with stage.opened(machines.broken()):
        errors = {
            finding.device_uuid
            for finding in stage.app.session.view().errors_and_warnings
            if finding.severity == "error"
        }
        assert errors
        text = stage.app.overview.gpus.plain
        assert text.count("✖") == len(errors)


def test_the_mark_of_a_line_is_as_bad_as_its_finding() -> None:
    well = machines.device(0)
    assert attention_mark(well, finding="error") == ("✖", "error")
    assert attention_mark(well, finding="warning") == ("▲", "warning")
    assert attention_mark(well, finding="")[0] == " "


async def test_a_filter_keeps_the_unit_of_memory(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        held = (40 * machines.GIB, 700 << 20)
        rows = [machines.process(n, pid=7000 + n, readings={"gpu_memory_bytes": held[n]}) for n in range(2)]
        await stage.show(pilot, machines.snapshot((machines.device(0),), tuple(rows)))
        table = stage.app.overview.processes
        (before,) = (line for line in table.plain.splitlines() if " 7001 " in line)
        await press(pilot, "slash", *"pid:7001", "enter")
        assert table.counts == (1, 2)
        (after,) = (line for line in table.plain.splitlines() if " 7001 " in line)
        assert re.findall(r"[\d.]+ [GM]iB", after) == re.findall(r"[\d.]+ [GM]iB", before) != []


async def test_keys_below_a_sheet_are_not_offered(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        keys = stage.app.overview.keys
        assert "K signal" in keys.plain
        await press(pilot, "s")
        assert not keys.plain.strip()
        await press(pilot, "escape")
        assert "K signal" in keys.plain


async def test_the_mark_of_the_selected_row_is_not_beside_a_sheet(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        table = stage.app.overview.processes
        await press(pilot, "down")
        assert "▶" in table.plain
        assert "u users" in stage.app.overview.keys.plain, "also while a row is selected"
        await press(pilot, "s")
        assert "▶" not in table.plain
        await press(pilot, "escape")
        assert "▶" in table.plain


async def test_a_list_that_is_drawn_while_the_app_closes_raises_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)):
        with monkeypatch.context() as closing:
            closing.setattr(type(stage.app), "screen_stack", property(lambda app: []))
            closing.setattr(type(stage.app), "screen", property(lambda app: app.screen_stack[-1]))
            stage.app.overview.processes.redraw()
            assert "▶" in stage.app.overview.processes.plain


async def test_keys_about_processes_are_not_offered_without_a_driver(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.app.session.own_machine = True
        await stage.show(pilot, machines.no_driver())
        assert "I idle" not in stage.app.overview.keys.plain
        assert "# GPU" not in stage.app.overview.keys.plain
        assert "K signal" in stage.app.overview.keys.plain, "programs are listed"
        assert "s simulated GPUs" in stage.app.overview.keys.plain
        assert "s sort" not in stage.app.overview.keys.plain, "that is not what the key does"
        for key, said in (("s", "starts again on simulated GPUs"), ("d", "gpuwatch doctor prints every check")):
            await press(pilot, key)
            assert said in stage.screen(LinesSheet).pane.plain
            await press(pilot, "escape")
            assert stage.app.screen is stage.app.overview, "nothing was left"
            assert not stage.app.next_command
        await press(pilot, "2")
        assert "K signal" not in stage.app.tab.keys.plain
        assert "# GPU" not in stage.app.tab.keys.plain
        assert "d doctor" in stage.app.overview.gpus.plain
        assert isinstance(stage.app.tab, GpuScreen)
        assert "1 Overview, then s simulated GPUs" in stage.app.tab.nothing.plain, "here neither is a key"


@pytest.mark.parametrize("driver", [True, False])
async def test_keys_about_processes_are_not_offered_where_there_are_none(stage: Stage, driver: bool) -> None:
    async with stage.opened(machines.snapshot((machines.device(busy=0),) if driver else ())) as pilot:
        for tab in "123":
            await press(pilot, tab)
            for key in ("K signal", "↵ open", "e env", "t tree"):
                assert key not in stage.app.tab.keys.plain, tab
            assert "? help" in stage.app.tab.keys.plain

"""Signals from the dashboard: the question, what is sent, and the message afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.ui.screens.choice_sheets import SortMenu
from gpuwatch.ui.screens.process_actions import ProcessRowsScreen
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.screens.signal_sheet import SignalSheet
from gpuwatch.ui.tables.process_columns import COLUMNS
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press, settle

Child = subprocess.Popen[bytes]


@pytest.fixture
def sleepers() -> Iterator[list[Child]]:
    begun = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    begun.sort(key=lambda one: one.pid)  # their numbers may begin again in between
    yield begun
    for one in begun:
        one.kill()
        one.wait()


def row(child: Child, number: int = 0, *, shift: float = 0.0, gpu: int = 0) -> Process:
    facts = ProcessTable().facts_of(child.pid, time.monotonic())
    assert facts is not None
    command = "python sleeper.py --for 60"
    return machines.process(number, gpu=gpu, pid=child.pid, create_time=facts.create_time + shift, command=command)


def machine(*rows: Process) -> Snapshot:
    return machines.snapshot((machines.device(0), machines.device(1)), rows)


def ended(child: Child) -> int:
    return child.wait(10)


def marked(sheet: LinesSheet[Any]) -> list[str]:
    """The selected line, recognized without colours."""
    return [line.rstrip()[:7] for line in sheet.pane.plain.split("\n") if "▶" in line]


async def test_the_sheet_names_the_process_and_enter_sends_nothing(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.opened(machine(row(sleepers[0]))) as pilot:
        await press(pilot, "K")
        sheet = stage.screen(SignalSheet)
        for part in (str(sleepers[0].pid), "alice", "python sleeper.py --for 60", "20", "INT", "TERM", "KILL"):
            assert part in sheet.pane.plain
        assert marked(sheet) == ["▶  Canc"]
        assert "Cancel  send nothing  Enter" in sheet.pane.plain
        assert "lets it clean up  y" in sheet.pane.plain
        assert str(sheet.pane.border_subtitle).startswith("↵ sends nothing")
        await pilot.press("down", "down")
        assert marked(sheet) == ["▶  TERM"]
        assert "y  Enter" in sheet.pane.plain
        assert str(sheet.pane.border_subtitle).startswith(f"↵ sends TERM to {sleepers[0].pid} sleeper.py")
        for keys, said in ((("escape",), ""), (("K", "n"), ""), (("K", "enter"), "nothing was sent")):
            await press(pilot, *keys)
            assert stage.app.screen is stage.app.overview
            assert said in stage.app.overview.keys.plain
        assert sleepers[0].poll() is None
        await press(pilot, "K", "y")
        assert ended(sleepers[0]) == -signal.SIGTERM
        assert f"● TERM delivered to {sleepers[0].pid}" in stage.app.overview.keys.plain
        assert "q quit" in stage.app.overview.keys.plain


@pytest.mark.parametrize(("keys", "number"), [(("up", "down"), signal.SIGINT), (("down",) * 5, signal.SIGKILL)])
async def test_arrows_choose_another_signal(
    stage: Stage, sleepers: list[Child], keys: tuple[str, ...], number: int
) -> None:
    async with stage.opened(machine(row(sleepers[0])), size=(80, 24)) as pilot:
        await press(pilot, "K", *keys, "enter")
        assert ended(sleepers[0]) in (-number, 1)


async def test_what_a_program_is_called_is_no_markup(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.opened(machine(msgspec.structs.replace(row(sleepers[0]), command="[red]x[/] \\"))) as pilot:
        await press(pilot, "K", "down")
        assert "[red]x[/] \\" in stage.app.screen.pane._border_subtitle.plain  # type: ignore[attr-defined]


async def test_the_chosen_column_of_the_menu_has_a_mark(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "s")
        menu = stage.screen(LinesSheet)
        assert marked(menu) == ["▶● GPU-"]
        await pilot.press("up")
        assert marked(menu) == ["▶  VISI"]
        assert " ● GPU-MEM" in menu.pane.plain


@pytest.mark.parametrize("size", [(120, 40), (60, 14)])
async def test_the_mark_of_the_menu_is_at_what_will_be_sorted_by(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(machines.pair(), size=size) as pilot:
        for number, column in list(enumerate(COLUMNS))[::6]:
            await press(pilot, "s", "home", *["down"] * number)
            menu = stage.screen(LinesSheet)
            assert marked(menu)[0].replace("●", " ").split()[1] == column.title[:4].split()[0], column.id
            await press(pilot, "enter")
            assert stage.app.overview.processes.sort_column == column.id


async def test_a_typed_name_goes_to_its_column(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        for column in COLUMNS:
            await pilot.press("s", *column.title.lower())
            menu = stage.app.screen
            assert isinstance(menu, SortMenu), column.id
            assert column.help in menu.pane.plain, "not cut"
            await press(pilot, "enter")
            assert stage.app.overview.processes.sort_column == column.id
            hidden = column.id not in stage.app.overview.processes.columns_on_screen
            assert ("which is not shown" in stage.app.overview.keys.plain) == hidden, column.id
        await press(pilot, "s", *"mem", "enter")
        assert stage.app.overview.processes.sort_column == "memory"
        await press(pilot, "s", *"gpu", "enter")
        shown = [row.device_index for row in stage.app.overview.processes.items if isinstance(row, Process)]
        assert shown == sorted(shown, key=lambda index: index or 0)


async def test_a_word_for_a_filter_is_no_keys_of_a_sheet(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        await press(pilot, "question_mark", "slash", *"fqw4")
        sheet = stage.screen(LinesSheet)
        assert "nothing to filter here" in sheet.pane._border_subtitle.plain  # type: ignore[union-attr]
        await press(pilot, "escape")
        assert stage.app.screen is stage.app.overview


async def test_tags_collect_processes_and_each_gets_it_once(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        on_both = (row(sleepers[0]), row(sleepers[0], gpu=1), row(sleepers[1], 1))
        await stage.show(pilot, machine(*on_both, machines.process(2, pid=2)))
        table = stage.app.overview.processes
        table.sort_by("pid", reverse=False)
        await settle(pilot)
        await press(pilot, "home", "down", "space")
        assert table.plain.count("✓") == 2, "a process on two GPUs is one process"
        assert ", 1 tagged" in table.plain
        await press(pilot, "down", "space")
        assert [one.pid for one in table.tagged] == [sleepers[0].pid, sleepers[0].pid, sleepers[1].pid]
        assert table.plain.count("✓") == 3
        assert "2 tagged" in table.plain
        assert "signal 2" in stage.app.overview.keys.plain
        await press(pilot, "K")
        assert isinstance(stage.app.screen, SignalSheet)
        assert "to 2 processes" in str(stage.app.screen.pane.border_title)
        await press(pilot, "y")
        assert [ended(one) for one in sleepers] == [-signal.SIGTERM] * 2
        assert "TERM delivered to 2 processes" in stage.app.overview.keys.plain


async def test_escape_takes_the_tags_away(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("space", "space", "escape")
        assert stage.app.overview.processes.tagged == []
        await pilot.press("home", "space")
        await stage.show(pilot, machines.many(2, 3, tick=5))
        await stage.show(pilot, machines.pair(6))
        assert stage.app.overview.processes.tagged == [], "who went and came again is not tagged"


async def test_a_reused_pid_is_refused_and_reported(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.opened(machine(row(sleepers[0], shift=-500.0))) as pilot:
        await press(pilot, "K", "y")
        message = f"✖ no TERM to {sleepers[0].pid}: this pid belongs to another process now"
        assert message in stage.app.overview.keys.plain
        assert sleepers[0].poll() is None


async def test_a_process_that_exited_meanwhile_is_reported(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.opened(machine(row(sleepers[0]))) as pilot:
        await pilot.press("K")
        sleepers[0].kill()
        sleepers[0].wait()
        await press(pilot, "y")
        assert f"✖ no TERM to {sleepers[0].pid}: it has already exited" in stage.app.overview.keys.plain


async def test_what_cannot_be_identified_is_not_offered(stage: Stage) -> None:
    async with stage.opened(machine(machines.denied_process())) as pilot:
        await press(pilot, "K")
        sheet = stage.screen(SignalSheet)
        assert "another PID namespace" in sheet.pane.plain
        assert "KILL" not in sheet.pane.plain
        await press(pilot, "down", "y")
        assert stage.app.screen is stage.app.overview
        assert "delivered" not in stage.app.overview.keys.plain


async def test_doubt_about_namespaces_is_shown(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        elsewhere = msgspec.structs.replace(machines.HELD, id="container.pid-namespace", severity="info")
        await stage.show(pilot, msgspec.structs.replace(machine(row(sleepers[0])), findings=(elsewhere,)))
        await press(pilot, "K")
        sheet = stage.screen(SignalSheet)
        assert "from another PID namespace" in sheet.pane.plain
        (chosen,) = (line for line in sheet.pane.lines if line.highlighted)
        assert "Cancel" in "".join(text for text, _ in chosen.spans)


async def test_memory_without_a_process_has_nobody_to_signal(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "end", "space", "K")
        assert stage.app.screen is stage.app.overview
        assert "nothing to signal" in stage.app.overview.keys.plain


@pytest.mark.parametrize("tab", ["1", "2"])
async def test_the_same_keys_again_end_no_other_process(stage: Stage, sleepers: list[Child], tab: str) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        first, second = row(sleepers[0]), row(sleepers[1], 1)
        await stage.show(pilot, machine(first, second))
        await press(pilot, tab)
        chosen = cast("ProcessRowsScreen", stage.app.tab).processes.item_under_cursor
        assert isinstance(chosen, Process)
        dead, alive = sleepers if chosen.pid == sleepers[0].pid else sleepers[::-1]
        await press(pilot, "K", "y")
        assert ended(dead) == -signal.SIGTERM
        await stage.show(pilot, machine(*(one for one in (first, second) if one.pid == alive.pid)))
        await press(pilot, "K", "y")
        assert stage.app.screen is stage.app.tab
        assert alive.poll() is None


async def test_read_only_sends_nothing_and_says_so(make_stage: Callable[..., Stage], sleepers: list[Child]) -> None:
    stage = make_stage(read_only=True)
    async with stage.opened(machine(row(sleepers[0])), size=(80, 24)) as pilot:
        await press(pilot, "K")
        assert stage.app.screen is stage.app.overview
        assert "--read-only" in stage.app.overview.keys.plain
        assert sleepers[0].poll() is None


async def test_signals_from_the_gpu_tab(stage: Stage, sleepers: list[Child]) -> None:
    async with stage.opened(machine(row(sleepers[0]))) as pilot:
        await press(pilot, "2", "tab", "K", "y")
        assert ended(sleepers[0]) == -signal.SIGTERM
        assert "delivered" in stage.app.tab.keys.plain


async def test_k_moves_up_and_says_once_where_the_signal_went(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        table = stage.app.overview.processes
        first = table.item_under_cursor
        await press(pilot, "j")
        assert table.item_under_cursor is not first
        await press(pilot, "k")
        assert table.item_under_cursor is first
        assert "K or F9 sends a signal" in stage.app.overview.keys.plain
        stage.app.overview.show_message("", "text", 0)
        await press(pilot, "j", "k")
        assert table.item_under_cursor is first
        assert "F9" not in stage.app.overview.keys.plain
        assert stage.app.screen is stage.app.overview


@pytest.mark.parametrize("size", [(60, 15), (60, 12), (80, 24), (120, 40)])
async def test_the_marked_signal_is_the_one_that_enter_sends(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(machines.pair(), size=size) as pilot:
        await press(pilot, "K")
        sheet = stage.app.screen.pane  # type: ignore[attr-defined]
        for keys, name in ((("down",), "INT"), (("down",), "TERM"), (("down",), "KILL"), (("up",), "TERM")):
            await press(pilot, *keys)
            (marked,) = (line for line in sheet.lines if line.highlighted)
            assert "".join(text for text, _ in marked.spans).split()[1] == name
            assert f"sends {name} to" in str(sheet.border_subtitle)
            y = sheet.lines.index(marked)
            assert sheet.choice_at(sheet.row_at(y) or 0) == sheet.choice
        assert all(name in sheet.plain for name in ("INT", "TERM", "KILL")), "all choices are in view"


async def test_above_the_first_choice_the_facts_scroll_into_view(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(60, 12)) as pilot:
        await press(pilot, "K")
        sheet = stage.app.screen.pane  # type: ignore[attr-defined]
        await press(pilot, *["up"] * 4)
        assert "user" in sheet.plain
        await press(pilot, "down")
        assert "KILL" in sheet.plain

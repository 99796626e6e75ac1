"""The overview at every size, with few and many GPUs and processes: nothing cut that matters, nothing wasted."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import Any

import pytest
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.drawing.line_builder import vertical_bar
from gpuwatch.ui.drawing.overview_layout import LAYOUT_CHOICES, MANY_GPUS, plan_layout
from gpuwatch.ui.drawing.text_width import width_of
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.feed import FakeFeed
from tests.ui.waiting import drawn_lines

SIZES = [(80, 24), (120, 40), (200, 60), (250, 80)]
LOADS = [(1, 0), (1, 200), (2, 5), (8, 0), (8, 200), (16, 5), (16, 200)]
"""GPUs and processes."""
_FRAMES = "╭╮╰╯│┃─"


@lru_cache(maxsize=512)
def machine(gpus: int, processes: int, tick: int = 0) -> Snapshot:
    finding = machines.HELD
    return machines.snapshot(
        tuple(machines.device(n, tick=tick) for n in range(gpus)),
        tuple(machines.process(n, gpu=n % gpus, tick=tick) for n in range(processes)),
        tick=tick,
        findings=(finding,),
    )


async def drawn(pilot: Pilot[Any], feed: FakeFeed) -> list[str]:
    feed.push()
    await pilot.pause()
    await pilot.pause()
    return drawn_lines(pilot.app)


def stage_of(gpus: int, processes: int, seconds: int = 130) -> tuple[GpuwatchApp, FakeFeed]:
    feed = FakeFeed()
    app = GpuwatchApp(Session(feed, clock=lambda: machines.NOON.timestamp() + 129))
    feed.state = FeedStatus(state="ok", age_seconds=0.0)  # of what is there already
    feed._pending = [machine(gpus, processes, tick) for tick in range(130 - seconds, 130)]
    return app, feed


def bare(lines: list[str]) -> int:
    """Lines on which nothing stands but frames."""
    return sum(not line.strip(_FRAMES + " ") for line in lines)


@pytest.mark.parametrize(("gpus", "processes"), LOADS)
async def test_nothing_is_cut_and_nothing_is_wasted(gpus: int, processes: int) -> None:
    app, feed = stage_of(gpus, processes)
    async with app.run_test(size=SIZES[0]) as pilot:
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            check_overview(await drawn(pilot, feed), machine(gpus, processes, 129), width, height)
            assert len(app.overview.gpus.lines) == app.overview.gpus.size.height


def check_overview(lines: list[str], last: Snapshot, width: int, height: int) -> None:
    gpus, processes = len(last.devices), len(last.processes)
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}
    text = "\n".join(lines)

    # Every GPU has its index, its utilisation, its memory and, where there is room, its power.
    for device in last.devices:
        used = f"{device.number('memory.used_bytes') / machines.GIB:.1f}"  # type: ignore[operator]
        busy = f"{device.number('utilization.gpu_percent'):.0f} %"
        mine = [line for line in lines if used in line]
        assert mine, f"GPU {device.index}: {used} of memory"
        assert re.search(rf"(^|[^\d.]){re.escape(busy)}", text), f"GPU {device.index}: {busy}"
    # The whole of it, never a part of a number: what stands behind the slash is the size of the card.
    assert set(re.findall(r"/ ?(\d+\.\d) ?G", text)) <= {"139.8", "128.0"}

    # Header, footer and the finding are there, and whole where the width allows it.
    assert lines[0].startswith(" gpuwatch " if width >= 100 else "[Overview]")
    assert re.search(r"\d\d:\d\d:\d\d +1s $", lines[0])
    assert "warning" in lines[0]
    assert "? help" in lines[-1]
    assert "q quit" in lines[-1]
    # Memory that grows, as it does on this machine now and then, is worse than memory that is held.
    held = r"(GPU \d+:? )?(alice's train.py \(48121\) holds 130\.4 GiB|memory is filling up)"
    assert re.match(rf" Free: .* · (Idle: alice 48121|▲ Wrong: ({held}).*\[f\]( why)? *$)", lines[1])

    # The processes that fit are there, from the largest on, each with all of its numbers.
    heads = [number for number, line in enumerate(lines) if "PID" in line and "COMMAND" in line]
    assert len(heads) == 1
    pids = {str(process.pid) for process in last.processes}
    rows = [line for line in lines[heads[0] + 1 :] if pids & set(line.split())]
    assert len(rows) >= min(processes, 5)
    for row in rows:
        assert re.search(r"\d\.\d ?G|\d ?M", row)
        assert re.search(r" \d+([ms]|h\d\dm|d\d\dh) ", row), "how long it has run"

    # No half of the screen is left empty.
    if gpus < MANY_GPUS or processes > MANY_GPUS:  # many GPUs are lines, and a few processes need few
        assert bare(lines) <= height / 2, f"{bare(lines)} of {height} lines are empty"


@pytest.mark.parametrize(
    ("size", "gpus"),
    [((80, 24), 17), ((80, 24), 120), ((120, 40), 40), ((200, 60), 17), ((200, 60), 120), ((250, 80), 40)],
)
async def test_more_gpus_than_fit_are_counted_and_can_be_reached(size: tuple[int, int], gpus: int) -> None:
    app, feed = stage_of(gpus, 5, seconds=3)
    async with app.run_test(size=size) as pilot:
        lines = await drawn(pilot, feed)
        pane = app.overview.gpus
        planned = pane._overview_layout
        hidden = 0
        if planned.scrolls:
            found = re.search(r"↓ (\d+) more below", "\n".join(lines))
            assert found is not None
            hidden = int(found[1])
        seen = {
            match[1]
            for line in lines
            for match in re.finditer(r"(?:^|[│ ▸╭─] *)(\d+) (?:H200|· NVIDIA|▕|[ ▁-█] *\d+ %)", line)
        }
        assert len(seen) == gpus - hidden, sorted(seen, key=int)
        assert "? help" in lines[-1]
        assert sum("PID" in line for line in lines) == 1
        pane.focus()
        await pilot.pause()
        across, down = (0, 1) if planned.gpus_as == "line" else (1, 0)
        await pilot.press("down" if down else "right")
        for _ in range(gpus - 2):
            pane.move(across, down)
        await pilot.pause()
        assert pane.cursor_uuid == machines.uuid(gpus - 1)
        shown = re.search(rf"(▸|╭─) ?{gpus - 1} ", pane.plain)
        assert shown is not None, "the cursor is in sight"
        if hidden:
            assert "more above" in pane.plain
            await pilot.press("home")
            assert "more above" not in pane.plain
            pane.turn_wheel(3)
            assert "more above" in pane.plain
            assert pane.cursor_uuid == machines.uuid(0), "scrolling leaves the cursor alone"


async def test_a_click_finds_the_gpu_that_is_under_it_also_after_scrolling(stage: Stage) -> None:
    async with stage.opened(machine(64, 0), size=(80, 24)) as pilot:
        pane = stage.app.overview.gpus
        pane.turn_wheel(5)
        await pilot.pause()
        for y in (0, 3, 7):
            for x in (3, 43):
                line = pane.plain.splitlines()[y]
                index = int(line[x - 1 :].split()[0].strip("▸ "))
                await pilot.click("#gpus", offset=(x, y))
                assert pane.cursor_uuid == machines.uuid(index)
        bottom = pane.size.height - 1
        before = pane.cursor_uuid
        await pilot.click("#gpus", offset=(3, bottom))
        assert pane.cursor_uuid == before, "the line that counts the others is no GPU"


def test_one_gpu_leaves_little_room_empty() -> None:
    fields = [(name, 16) for name in ("utilization", "memory", "power", "temperature", "clock", "pstate")]
    for width, height in ((200, 60), (250, 80)):
        planned = plan_layout(width, height, 1, processes=8, fields=fields)
        assert planned.graphs == 6
        assert 12 <= height - 4 - planned.gpu_height - 3 <= height * 0.3, "rows of the processes' frame"


async def test_the_layout_stands_still_while_processes_come_and_go(stage: Stage) -> None:
    async with stage.app.run_test(size=(200, 60)) as pilot:
        heights = []
        for tick, count in enumerate([12, 11, 3, 0, 12, 9]):
            stage.push(machine(2, count, tick))
            await pilot.pause()
            heights.append(stage.app.overview.gpus.size.height)
        assert len(set(heights)) == 1
        stage.push(machine(2, 60, 9))
        await pilot.pause()
        assert stage.app.overview.gpus.size.height < heights[0], "more processes get more room"


@pytest.mark.parametrize("gpus", [1, 2, 8, 16, 40, 200])
@pytest.mark.parametrize("size", [*SIZES, (60, 12), (100, 30), (60, 80), (250, 12)])
def test_the_parts_add_up(size: tuple[int, int], gpus: int) -> None:
    for processes in range(0, 90, 8):
        for fields, layout in itertools.product(((), (("", 27),) * 7, (("", 16),) * 60), LAYOUT_CHOICES):
            planned = plan_layout(*size, gpus, processes=processes, fields=fields, choice=layout)
            table = size[1] - 3 - planned.host - planned.gpu_height
            assert table >= (3 if size[1] >= 16 else 1), planned
            again = plan_layout(*size, gpus, findings=True, processes=processes, fields=fields, choice=layout)
            assert planned == again
            if planned.gpus_as == "card":
                rows = -(-gpus // planned.columns)
                assert planned.gpu_height == rows * planned.card_height
                assert planned.graph_rows == 1 or (planned.extra_graph_lines + 2) // planned.graph_rows >= 5
            elif not planned.scrolls:
                assert planned.gpu_height == -(-gpus // planned.columns) + planned.heading


@pytest.mark.parametrize(("size", "gpus"), [((60, 15), 8), ((80, 24), 16)])
async def test_a_small_terminal_tells_all_that_matters_of_each_gpu(
    stage: Stage, size: tuple[int, int], gpus: int
) -> None:
    async with stage.opened(machine(gpus, 5, 129), size=size):
        text = stage.app.overview.gpus.plain
        for device in machine(gpus, 5, 129).devices:
            number = device.number
            used = f"{(number('memory.used_bytes') or 0) / machines.GIB:.1f}"
            facts = (
                f"{used}/139.8G",
                f"{number('power.draw_watts'):.0f}",
                f"{number('temperature.gpu_celsius'):.0f}°C",
            )
            pattern = rf"\b{device.index} .*?{number('utilization.gpu_percent'):.0f} %.*?" + ".*?".join(
                re.escape(fact) for fact in facts
            )
            assert re.search(pattern, text), f"GPU {device.index}: {pattern}"
        assert stage.app.overview.processes.size.height >= 3, "processes can be reached"


@pytest.mark.parametrize("gpus", [1, 2, 6, 7, 8, 16])
async def test_the_lines_of_gpus_have_a_heading_on_the_smallest_terminal(stage: Stage, gpus: int) -> None:
    async with stage.opened(machine(gpus, 5, 129), size=(60, 15)):
        heading = stage.app.overview.gpus.plain.splitlines()[0]
        assert re.search("UTIL +MEMORY", heading)


async def test_a_mark_of_a_narrow_line_stands_before_its_number(stage: Stage) -> None:
    async with stage.opened(machine(16, 5, 129), size=(80, 24)):
        line = next(line for line in stage.app.overview.gpus.plain.splitlines() if "▲" in line)
        assert re.match(r" ▲ ?\d+ ", line[:40] if "▲" in line[:40] else line[40:])


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_card_says_who_holds_the_memory(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(past=machines.pair, seconds=3, size=size) as pilot:
        text = stage.app.overview.gpus.plain
        assert "bob 51877 · 0.6 Xorg 1999" in text
        assert re.search(r"HELD 130\.4 GiB alice 48121 · 0.8 unexplained", text)
        quiet = machines.snapshot((machines.device(0, busy=0, readings={"memory.unexplained_bytes": 0}),), tick=4)
        stage.push(quiet)
        await pilot.pause()
        assert "No processes · " in stage.app.overview.gpus.plain
        lack = {"memory.unexplained_bytes": machines.DENIED}
        stage.push(machines.snapshot((machines.device(0, busy=0, missing=lack),), tick=5))
        await pilot.pause()
        assert "– processes cannot be listed" in stage.app.overview.gpus.plain


def test_a_bar_in_one_cell_is_full_only_when_it_is() -> None:
    assert [vertical_bar(value) for value in (None, 0.0, 0.001, 0.5, 0.99, 1.0)] == [" ", " ", "▁", "▄", "▇", "█"]

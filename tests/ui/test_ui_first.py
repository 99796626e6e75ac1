"""The picture that is there before Textual: where it stands, its colors, and how it is left."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.color import Color as RichColor
from rich.color import ColorSystem

from gpuwatch.core.formatting.palettes import PALETTES
from gpuwatch.core.formatting.terminal_support import color_depth
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session.view import View
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.ui.drawing import text_styles
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings
from gpuwatch.ui.startup.first_frame import first_frame_lines
from tests.screen import Screen
from tests.terminal import Terminal, family, wait_until_ended
from tests.ui import machines
from tests.ui.conftest import Stage

ENTER, LEAVE, SHOWN = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


def ahead_of(snapshot: Snapshot) -> Snapshot:
    """The same before anybody looked at its processes."""
    return replace(
        snapshot,
        findings=(),
        processes=tuple(
            Process(
                pid=row.pid, create_time=None, user=None, command=None, type=row.type, device_uuid=None, readings={}
            )
            for row in snapshot.processes
        ),
    )


def view_of(snapshot: Snapshot) -> View:
    history = History()
    history.add(snapshot)
    at = snapshot.taken_at.timestamp()
    return View(snapshot=snapshot, history=history, status=FeedStatus("ok", 0.0), now=at, interval=1.0, graph_end=at)


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("make", [machines.pair, machines.simulated, lambda: machines.many(8, 200)])
async def test_everything_stands_where_textual_puts_it(
    stage: Stage, size: tuple[int, int], make: Callable[[], Snapshot]
) -> None:
    snapshot = replace(make(), findings=())
    lines = first_frame_lines(view_of(ahead_of(snapshot)), Preferences(), *size, ascii_only=False)
    painted = ["".join(text for text, _ in line.spans).rstrip() for line, _ in lines]
    assert len(painted) == size[1]
    async with stage.app.run_test(size=size) as pilot:
        stage.push(snapshot)
        for _ in range(4):
            await pilot.pause()
        overview = stage.app.overview
        for pane in (overview.top_line, overview.host, overview.gpus):
            if not pane.display:
                continue
            for y, line in enumerate(pane.plain.split("\n"), pane.region.y):
                if line.startswith("│ HELD"):  # the holders are shown once processes have been read
                    assert painted[y].startswith("│ HELD")
                else:
                    assert painted[y] == line.rstrip()
        table = overview.processes.plain.split("\n")[0].rstrip()
        assert painted[overview.processes.region.y][:20] == table[:20] or not table.startswith("╭")
        assert overview.keys.plain.startswith(painted[-1])


def cells(line: Line, width: int) -> list[tuple[str, str, bool]]:
    """Each cell's character, its style, and whether it is highlighted; of a blank only what it stands on."""
    found = []
    for text, style in (*line.spans, (" " * width, "text")):
        for char in text:
            ground = style in ("header", "sorted") or style.startswith("badge")
            under = style not in text_styles.NOT_HIGHLIGHTED and line.highlighted
            found += [(char, style if char != " " or ground else "", under)] + [("", "", under)] * (width_of(char) - 1)
    return found[:width]


BY_PID = Preferences(sort="pid", descending=False)
NOBODY = machines.snapshot((machines.device(0),))
UNEXPLAINED = machines.snapshot(
    (machines.device(0), machines.device(1, readings={"memory.unexplained_bytes": 9 * 2**30})),
    (machines.process(0), machines.denied_process()),
)


@pytest.mark.parametrize(
    ("made", "size", "chosen"),
    [
        (machines.pair(), (80, 24), Preferences()),
        (machines.pair(), (200, 60), BY_PID),
        (machines.simulated(), (120, 40), Preferences()),
        (machines.many(8, 200), (80, 24), BY_PID),
        (machines.many(8, 200), (120, 40), Preferences()),
        (machines.many(8, 200), (200, 60), Preferences()),
        (NOBODY, (80, 24), Preferences()),
        (NOBODY, (200, 60), BY_PID),
        (UNEXPLAINED, (80, 24), BY_PID),
        (UNEXPLAINED, (200, 60), Preferences()),
    ],
)
async def test_the_whole_picture_is_cell_by_cell_what_textual_draws_first(
    make_stage: Callable[..., Stage], made: Snapshot, size: tuple[int, int], chosen: Preferences
) -> None:
    snapshot = replace(made, findings=())
    picked = LoadedSettings(Path("settings.toml"), chosen)
    lines = first_frame_lines(view_of(snapshot), chosen, *size, ascii_only=False, with_processes=True)
    assert len(lines) == size[1]
    stage = make_stage(settings=picked)
    async with stage.app.run_test(size=size) as pilot:
        stage.push(snapshot)
        for _ in range(4):
            await pilot.pause()
        overview = stage.app.overview
        compared = 0
        for pane in (
            overview.top_line,
            overview.summary,
            overview.host,
            overview.gpus,
            overview.processes,
            overview.keys,
        ):
            if not pane.display:
                continue
            for y in range(pane.size.height):
                ours = lines[pane.region.y + y][0]
                theirs = pane.lines[y] if y < len(pane.lines) else Line(())
                assert cells(ours, size[0]) == cells(theirs, size[0]), (pane.id, y)
                compared += 1
        assert compared == size[1]


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
async def test_the_row_under_the_cursor_stands_on_what_textual_gives_it(
    make_stage: Callable[..., Stage], palette: text_styles.Palette
) -> None:
    stage = make_stage()
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.app.theme = palette.name
        stage.push(machines.pair())
        await pilot.pause()
        rich = stage.app.overview.processes.rich_style_of("cursor")
        assert rich.bgcolor is not None
        drawn, ours = rich.bgcolor.triplet, text_styles.highlight_color(palette, "background")
        assert drawn is not None
        assert max(abs(a - b) for a, b in zip(drawn, ours, strict=True)) <= 1
    highlighted = text_styles.escape_sequences(palette, "background", 24, highlighted=True)
    assert "48;2;{};{};{}m".format(*ours) in highlighted["memory"]
    assert highlighted["focused-border"] == text_styles.escape_sequences(palette, "background", 24)["focused-border"]


def test_there_is_no_picture_without_devices_or_room() -> None:
    for snapshot, size in ((machines.no_driver(), (120, 40)), (machines.pair(), (50, 10)), (machines.pair(), (20, 5))):
        assert first_frame_lines(view_of(ahead_of(snapshot)), Preferences(), *size, ascii_only=False) == []


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
async def test_the_styles_are_those_of_textual(make_stage: Callable[..., Stage], palette: text_styles.Palette) -> None:
    stage = make_stage()
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.app.theme = palette.name
        stage.push(machines.pair())
        await pilot.pause()
        for pane, ground in ((stage.app.overview.processes, "background"), (stage.app.overview.top_line, "surface")):
            for style in text_styles.STYLES:
                rich = pane.rich_style_of(style)
                over, under, bold = text_styles.style_colors(palette, style, ground)
                assert rich.color is not None
                assert rich.bgcolor is not None
                # Textual takes some colors through another space and back, which may cost one step of 255.
                for drawn, ours in ((rich.color.triplet, over), (rich.bgcolor.triplet, under)):
                    assert drawn is not None
                    assert max(abs(a - b) for a, b in zip(drawn, ours, strict=True)) <= 1, style
                assert bool(rich.bold) == bold, style


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_256_colors_are_chosen_as_rich_chooses_them(palette: text_styles.Palette) -> None:
    for ground in ("background", "surface"):
        for style, sequence in text_styles.escape_sequences(palette, ground, 8).items():
            over, under, _ = text_styles.style_colors(palette, style, ground)
            wanted = [RichColor.from_rgb(*color).downgrade(ColorSystem.EIGHT_BIT).number for color in (over, under)]
            assert f"38;5;{wanted[0]};48;5;{wanted[1]}m" in sequence


@pytest.mark.parametrize(
    ("environment", "depth"),
    [
        ({"TERM": "xterm-256color"}, 8),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, 24),
        ({"TERM": "linux"}, 0),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, 0),
        ({}, 0),
    ],
)
def test_colors_of_terminals(environment: dict[str, str], depth: int) -> None:
    assert color_depth(environment) == depth


# On a real terminal, with simulated GPUs

PROGRAM = """
import sys, time
from gpuwatch.cli import early_collector
from gpuwatch.ui.startup import first_frame as first
early_collector._FIRST_PICTURE_SECONDS = 20
real = first.FirstFrame.paint
def paint(self, snapshot, with_processes=False):
    loaded = [name for name in sys.modules if name.split(".")[0] in ("textual", "pynvml")]
    done = real(self, snapshot, with_processes=with_processes)
    with open(LOADED + "-whole" * with_processes, "w") as file:
        file.write(" ".join(["painted" if done else "not painted", *loaded]))
    time.sleep(PAUSE)
    return done
first.FirstFrame.paint = paint
from gpuwatch.cli.entry_point import main
sys.argv[:] = ["gpuwatch"]
main()
"""


def program(tmp_path: Path, machine: SimMachine, pause: float, columns: int = 120, rows: int = 40) -> Terminal:
    script = tmp_path / "program.py"
    script.write_text(f"LOADED, PAUSE = {str(tmp_path / 'loaded')!r}, {pause}{PROGRAM}")
    environment = machine.environment(os.environ) | {"PYTHONPATH": os.getcwd(), "XDG_STATE_HOME": str(tmp_path)}
    del environment["GPUWATCH_CONFIG_FILE"]
    environment["XDG_CONFIG_HOME"] = str(tmp_path)
    return Terminal([sys.executable, str(script)], environment, columns, rows)


def loaded(terminal: Terminal, tmp_path: Path, name: str = "loaded") -> str:
    """What was imported when the picture was painted; ``loaded-whole``: when the processes were in it."""
    until = time.monotonic() + 20
    while not (tmp_path / name).exists() or not (tmp_path / name).read_text():
        assert time.monotonic() < until, "no picture was painted"
        terminal.drain(0.05)
    return (tmp_path / name).read_text()


@pytest.fixture
def two_gpus(sim_machine: Callable[[str], SimMachine], sleeper: Callable[[], int]) -> SimMachine:
    machine = sim_machine("2x24GiB")
    machine.attach(sleeper(), 0, 2**30)
    return machine


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_textual_takes_over_without_moving_anything(
    two_gpus: SimMachine, tmp_path: Path, size: tuple[int, int]
) -> None:
    terminal = program(tmp_path, two_gpus, 0.5, *size)
    try:
        assert loaded(terminal, tmp_path) == "painted"
        terminal.drain(0.3)
        first = Screen(*size).feed(bytes(terminal.output)).rows
        assert "waiting for the first sample" in "".join(first)
        assert "pynvml" not in loaded(terminal, tmp_path, "loaded-whole")
        terminal.drain(0.3)
        whole = Screen(*size).feed(bytes(terminal.output)).rows
        assert "sleep 300" in "".join(whole)
        length = len(terminal.output)
        assert terminal.drain(20, lambda output: len(output) > length + 1000) is not None
        terminal.drain(1.0)
        last = Screen(*size).feed(bytes(terminal.output)).rows
        table = next(y for y, row in enumerate(whole) if "PID" in row)
        for y, row in enumerate(whole[table:], table):
            # Digits move with time: nothing else does.
            kept = [re.sub(r"[0-9. –]+", "", one) for one in (row, last[y])]
            assert kept[0] == kept[1], y
        captions = [y for y, row in enumerate(first) if "GPU " in row and "MEM " in row]
        assert captions
        for y in captions:
            kept = [re.sub(r"[0-9. –]+", "", one) for one in (first[y], last[y])]
            assert kept[0] == kept[1]
        assert last[0][:60] == first[0][:60]
        assert terminal.output.count(ENTER) == 1
        terminal.keys("q")
        assert terminal.close() == 0
        assert terminal.output.count(LEAVE) == 1
    finally:
        if terminal.pid in family(os.getpid()):
            terminal.close(0.1)


def test_keys_that_were_typed_too_early_are_not_lost_and_not_shown(two_gpus: SimMachine, tmp_path: Path) -> None:
    terminal = program(tmp_path, two_gpus, 1.0)
    loaded(terminal, tmp_path)
    terminal.keys("?")
    terminal.drain(0.5)
    assert not any("?" in row for row in Screen(120, 40).feed(bytes(terminal.output)).rows[:-1])
    assert terminal.drain(20, lambda output: b"Keys" in output) is not None, "the help did not open"
    terminal.keys("\x1b")
    terminal.drain(1.5)
    terminal.keys("q")
    assert terminal.close() == 0


@pytest.mark.parametrize(("how", "code"), [("ctrl+c", 130), ("terminate", 143)])
def test_an_end_before_textual_is_there(two_gpus: SimMachine, tmp_path: Path, how: str, code: int) -> None:
    terminal = program(tmp_path, two_gpus, 60)
    before = termios.tcgetattr(terminal._fd)
    loaded(terminal, tmp_path)
    collector = family(terminal.pid)[1:]
    assert collector
    assert termios.tcgetattr(terminal._fd) != before
    if how == "ctrl+c":
        terminal.keys("\x03")
    else:
        os.kill(terminal.pid, signal.SIGTERM)
    until = time.monotonic() + 10
    while LEAVE not in terminal.output:
        assert time.monotonic() < until
        terminal.drain(0.05)
    assert termios.tcgetattr(terminal._fd) == before
    assert terminal.close() == code
    assert terminal.output.count(ENTER) == terminal.output.count(LEAVE) == 1
    assert SHOWN in terminal.output
    assert b"Traceback" not in terminal.output
    for pid in collector:
        wait_until_ended(pid)


def test_a_driver_that_hangs_delays_nothing(two_gpus: SimMachine, tmp_path: Path) -> None:
    two_gpus.inject("nvmlInit*", delay_ms=30_000)
    two_gpus.inject("nvmlInitWithFlags", delay_ms=30_000)
    environment = two_gpus.environment(os.environ) | {"XDG_STATE_HOME": str(tmp_path)}
    terminal = Terminal([sys.executable, "-m", "gpuwatch"], environment, 120, 40)
    assert terminal.drain(20, lambda output: b"querying the driver" in output) is not None
    collector = family(terminal.pid)[1:]
    terminal.keys("q")
    assert terminal.close() == 0
    two_gpus.clear_faults()
    for pid in collector:
        wait_until_ended(pid)


def test_simulated_gpus_that_are_asked_for_are_painted_too(tmp_path: Path) -> None:
    """The collector is another interpreter then: the simulated library is found by its environment."""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "gpuwatch", "--interval", "0.5", "--sim", "2x8GiB"]
    terminal = Terminal(command, environment, 120, 40)
    assert terminal.drain(30, lambda output: b"waiting for the first sample" in output) is not None
    assert b"Simulated GPU 8GiB" in terminal.output
    assert terminal.drain(30, lambda output: b"no process uses a GPU" in output) is not None
    terminal.keys("q")
    assert terminal.close() == 0
    assert terminal.output.count(ENTER) == terminal.output.count(LEAVE) == 1

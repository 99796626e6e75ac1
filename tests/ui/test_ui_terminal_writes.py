"""Changed cells written directly to the terminal: little output, and the same screen as Textual draws.

Private names of Textual are hidden one by one: the dashboard must do without each of them.
"""

from __future__ import annotations

import ast
import datetime
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import textual.drivers.headless_driver
from msgspec.structs import replace
from textual.drivers.headless_driver import HeadlessDriver
from textual.pilot import Pilot
from textual.widgets import Static

import gpuwatch.ui
from gpuwatch.core.formatting.terminal_support import SYNC_START
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.widgets import textual_internals
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.screen import Screen
from tests.terminal import Terminal
from tests.ui import machines
from tests.ui.conftest import Stage

SIZE = (120, 40)
UI = Path(gpuwatch.ui.__file__).parent
REPLACED = {"_fatal_error", "_file"}
"""What gpuwatch replaces: in a version of Textual without them, ours are not used."""


@cache
def modules() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(UI.rglob("*.py"))}


def hidden_names() -> list[str]:
    """The names in the calls of ``private_attribute``."""
    calls = [
        node
        for path in UI.rglob("*.py")
        if "private_attribute(" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "private_attribute"
    ]
    return sorted({ast.literal_eval(call.args[1]) for call in calls})


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As in a version of Textual without these names; Textual itself keeps them."""
    real = textual_internals.private_attribute

    def private_attribute(owner: object, name: str, kind: type[object]) -> object | None:
        return None if name in names else real(owner, name, kind)

    for path in modules():
        module = sys.modules.get(".".join(("gpuwatch.ui", *path.relative_to(UI).with_suffix("").parts)))
        if module is not None and hasattr(module, "private_attribute"):
            monkeypatch.setattr(module, "private_attribute", private_attribute)


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Textual and gpuwatch write to the terminal of a pilot."""
    written: list[str] = []

    class Recorder(HeadlessDriver):
        @property
        def is_headless(self) -> bool:
            return False

        def write(self, data: str) -> None:
            written.append(data)

        def flush(self) -> None:
            """Nothing is buffered."""

    monkeypatch.setattr(textual.drivers.headless_driver, "HeadlessDriver", Recorder)
    return written


def busy(tick: int) -> Snapshot:
    """Processes and GPUs of which some numbers change with every sample."""
    still = machines.many(2, 12)
    processes = tuple(
        replace(one, readings={**one.readings, "cpu_percent": 10.0 + tick}) if number % 3 == 0 else one
        for number, one in enumerate(still.processes)
    )
    devices = tuple(
        replace(one, readings={**one.readings, "temperature.gpu_celsius": 40 + tick}) for one in still.devices
    )
    return replace(
        still, taken_at=still.taken_at + datetime.timedelta(seconds=tick), processes=processes, devices=devices
    )


async def play(stage: Stage, pilot: Pilot[None], output: list[str]) -> tuple[list[str], list[str]]:
    """Rows after some samples: as written, and as Textual draws the whole screen again."""
    writes = stage.app.terminal_writes
    for tick in range(4):
        stage.push(busy(tick))
        await pilot.pause()
        await pilot.pause()
        writes.output = output.append  # the first sample is drawn by Textual
    written = Screen(*SIZE).feed("".join(output).encode()).rows
    output.clear()
    stage.app.refresh(repaint=True, layout=True)
    stage.app.screen.refresh(repaint=True, layout=True)
    for _ in range(3):
        await pilot.pause()
    return written, Screen(*SIZE).feed("".join(output).encode()).rows


@pytest.mark.parametrize("look", ["usual", "ascii", "sixteen", "mono"])
async def test_the_screen_is_what_textual_would_have_drawn(
    make_stage: Callable[..., Stage], output: list[str], look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "mono":
        monkeypatch.setenv("NO_COLOR", "1")
    stage = make_stage(ascii_only=look == "ascii", few_colors=look == "sixteen")
    async with stage.app.run_test(size=SIZE) as pilot:
        written, drawn = await play(stage, pilot, output)
        assert stage.app.terminal_writes.frames >= 3
        assert written == drawn
        assert any(" 43 " in row for row in written), "the latest temperature"
        assert any(" 13.0 " in row for row in written), "the latest CPU"


@pytest.mark.parametrize("name", hidden_names())
async def test_without_a_private_name_of_textual_the_screen_is_right(
    stage: Stage, output: list[str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, name)
    async with stage.app.run_test(size=SIZE) as pilot:
        written, drawn = await play(stage, pilot, output)
        assert written == drawn
        assert any(" 13.0 " in row for row in written)


async def test_a_second_writes_little_still_or_busy(stage: Stage, output: list[str]) -> None:
    async with stage.app.run_test(size=SIZE) as pilot:
        await play(stage, pilot, output)
        sizes = []
        for tick in range(4, 22):
            output.clear()
            shot = busy(tick) if tick < 10 else replace(busy(10), processes=())
            stage.push(replace(shot, taken_at=busy(tick).taken_at))
            for _ in range(3):
                await pilot.pause()
            sizes.append(len("".join(output).encode()))
        assert sum(sizes[:6]) / 6 < 600, "12 processes and two GPUs of which some numbers change"
        assert 10 < sorted(sizes[8:])[5] < 60, "the clock"
        assert sum(sizes[8:]) / 10 < 200, "and graphs, while they fill"


async def test_what_covers_a_pane_is_not_written_over(stage: Stage, output: list[str]) -> None:
    async with stage.app.run_test(size=SIZE) as pilot:
        await play(stage, pilot, output)
        cover = Static("in front of the processes\n" * 9)
        cover.styles.overlay, cover.styles.offset = "screen", (4, -20)
        await stage.app.screen.mount(cover)
        written, drawn = await play(stage, pilot, output)
        assert any("in front of the processes" in row for row in drawn)
        assert written[1:] == drawn[1:]


async def test_a_pane_of_a_tab_that_is_still_opening_is_drawn_later(stage: Stage, output: list[str]) -> None:
    async with stage.app.run_test(size=SIZE):
        stage.app.terminal_writes.output = output.append
        with stage.app.terminal_writes:
            PaintedPane().paint([Line((("early", "text"),))])
        assert "early" not in "".join(output)


@pytest.mark.parametrize("missing", ["", "_exception", "_fatal_error"])
async def test_an_error_ends_the_dashboard(stage: Stage, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("by a sample")

    async def run() -> None:
        async with stage.app.run_test(size=SIZE) as pilot:
            monkeypatch.setattr(stage.app.overview, "show_sample", fail)
            stage.push(busy(0))
            await pilot.pause()

    hide(monkeypatch, missing)
    if missing == "_fatal_error":
        monkeypatch.delattr(GpuwatchApp, missing)
    with pytest.raises(ZeroDivisionError):
        await run()
    assert isinstance(stage.app.failure, ZeroDivisionError) == (missing != "_exception")
    assert stage.app.return_code == 1


@cache
def privates_of(owner: type) -> set[str]:
    """Private attributes and methods that a class of Textual defines."""
    source = inspect.getsource(owner)
    return {*re.findall(r"\bself\.(_[a-z]\w*)\b[^(\n]*=", source), *re.findall(r"def (_[a-z]\w*)", source)}


def inherited_privates(module: str, name: str) -> set[str]:
    """Private names that a class of gpuwatch inherits from Textual."""
    owner = getattr(importlib.import_module(module), name, None)
    bases = inspect.getmro(owner) if inspect.isclass(owner) else ()
    return {one for base in bases if base.__module__.startswith("textual.") for one in privates_of(base)} - REPLACED


def private_uses() -> Iterator[str]:
    """Private names of Textual in the code of the dashboard, but for those that go through ``internal``."""
    own = {
        target.attr if isinstance(target, ast.Attribute) else target.name
        for tree in modules().values()
        for target in ast.walk(tree)
        if isinstance(target, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store))
    }
    for path, tree in modules().items():
        where = path.relative_to(UI)
        module = ".".join(("gpuwatch.ui", *where.with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in own:
                yield f"{where}: {ast.unparse(node)}"
            if isinstance(node, ast.ClassDef):
                inherited = inherited_privates(module, node.name)
                for used in ast.walk(node):
                    if isinstance(used, ast.Attribute) and ast.unparse(used.value) == "self" and used.attr in inherited:
                        yield f"{where}: {ast.unparse(used)}"
                    elif isinstance(used, ast.FunctionDef) and used.name in inherited:
                        yield f"{where}: def {used.name}"


def test_every_private_name_of_textual_is_guarded() -> None:
    assert hidden_names() == ["_exception", "_file"]
    assert sorted(set(private_uses())) == []
    imports = {
        node.module
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and re.search(r"^(textual|rich)\..*\b_", node.module)
    }
    assert imports == {"textual._parser", "textual._xterm_parser"}, "hidden by test_the_dashboard_on_another_textual"


@pytest.fixture
def dashboard(
    sim_machine: Callable[[str], SimMachine], sleeper: Callable[[], int], tmp_path: Path
) -> Callable[..., Terminal]:
    machine = sim_machine("2x24GiB")
    for number in range(6):
        machine.attach(sleeper(), number % 2, 2**30)

    def start(*command: str) -> Terminal:
        own = {"XDG_STATE_HOME": str(tmp_path)}
        terminal = Terminal([sys.executable, *command], machine.environment(os.environ) | own, *SIZE)
        assert terminal.drain(30, lambda output: b"sleep 300" in output) is not None
        return terminal

    return start


def clock(terminal: Terminal) -> str:
    found = re.search(r"\d\d:\d\d:\d\d", Screen(*SIZE).feed(bytes(terminal.output)).rows[0])
    assert found is not None
    return found[0]


def test_a_second_writes_little(dashboard: Callable[..., Terminal]) -> None:
    terminal = dashboard("-m", "gpuwatch")
    terminal.drain(2)
    before, then = len(terminal.output), clock(terminal)
    terminal.drain(3)
    assert 0 < (len(terminal.output) - before) / 3 < 1500, "bytes a second"
    assert clock(terminal) != then
    terminal.keys("q")
    assert terminal.close() == 0


WITHOUT = """
import sys
import textual.drivers.linux_driver
sys.modules["textual._parser"] = sys.modules["textual._xterm_parser"] = None
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.widgets import textual_internals
from gpuwatch.ui.widgets.painted_pane import PaintedPane
textual_internals.internal = lambda owner, name, kind: None
import gpuwatch.ui.startup.terminal_driver as driver
del sys.modules["textual._parser"], sys.modules["textual._xterm_parser"]
assert driver.XTermParser is None
from gpuwatch.cli.entry_point import main
sys.argv = ["gpuwatch"]
main()
"""


def test_the_dashboard_on_another_textual(dashboard: Callable[..., Terminal]) -> None:
    terminal = dashboard("-c", WITHOUT)
    then = clock(terminal)
    terminal.drain(2.2)
    assert clock(terminal) != then
    assert SYNC_START.encode() in terminal.output
    terminal.keys("?")
    assert terminal.drain(10, lambda output: b"Keys" in output) is not None
    terminal.keys("\x1b")
    terminal.drain(0.5)
    terminal.keys("q")
    assert terminal.close() == 0

"""Tabs: going between them, and what the GPU and the Findings tab say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.session.process_history import process_identity
from gpuwatch.ui.screens.findings import FindingsScreen
from gpuwatch.ui.screens.gpu import GpuScreen
from gpuwatch.ui.screens.help_sheet import HelpSheet
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.screens.time_prompt import TimePrompt
from gpuwatch.ui.settings.tabs import TABS, tab_labels
from gpuwatch.ui.tables.reading_groups import SHORT_TITLES
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.probe_bench import HIDDEN, Bench, run_of
from tests.ui.waiting import plain, press, settle

MakeStage = Callable[..., Stage]


@pytest.fixture
def stage(make_stage: MakeStage, tmp_path: Path) -> Stage:
    return make_stage(probe_runs=Bench(tmp_path).probe_runs)


async def test_keys_and_clicks_go_to_tabs_and_state_stays(stage: Stage) -> None:
    async with stage.opened(machines.many(2, 10)) as pilot:
        await pilot.press("down", "down")
        chosen = stage.app.overview.processes.item_under_cursor
        for number, tab in enumerate(TABS, 1):
            await press(pilot, str(number))
            assert tab.id == stage.app.tab.TAB
            assert stage.app.screen is stage.app.tab
        await press(pilot, "1")
        assert stage.app.screen is stage.app.overview
        assert stage.app.overview.processes.item_under_cursor is chosen
        for tab in reversed(TABS):
            places = {tab_id: start for start, _end, tab_id in stage.app.tab.top_line._places}
            await pilot.click(stage.app.tab.top_line, offset=(places[tab.id] + 1, 0))
            await settle(pilot)
            assert tab.id == stage.app.tab.TAB


async def test_the_gpu_tab_opens_with_what_is_selected(stage: Stage) -> None:
    async with stage.opened(machines.many(4, 4)) as pilot:
        stage.app.chosen_gpu = machines.uuid(3)
        table = stage.app.overview.processes

        async def opened(*keys: str) -> int:
            await press(pilot, *keys)
            assert isinstance(stage.app.tab, GpuScreen)
            device = stage.app.tab.device
            assert device is not None
            await press(pilot, "1")
            return device.index

        assert await opened("2") == 3, "nothing is selected: the one that was seen last"
        await pilot.press("end")
        while table.item_under_cursor is None or table.item_under_cursor.key[0] != machines.uuid(1):
            await pilot.press("up")
        assert await opened("2") == 1
        assert await opened("number_sign", "2") == 2
        stage.app.overview.gpus.focus()
        assert await opened("home", "right", "right", "right", "2") == 3
        stage.app.chosen_process, stage.app.chosen_gpu = process_identity(machines.process(1, gpu=1)), machines.uuid(0)
        assert await opened("3", "2") == 1


@pytest.mark.parametrize(
    ("keys", "opens"),
    [
        ("h", True),
        ("right h", False),
        ("right h h", True),
        ("tab tab h", False),
        ("u h", False),
        ("2 h", False),
        ("3 h", False),
        ("4 h", True),
        ("5 h", True),
        ("6 h", True),
        ("P h", False),
    ],
)
async def test_h_is_for_help_where_nothing_is_at_the_left(stage: Stage, keys: str, opens: bool) -> None:
    async with stage.opened(past=machines.pair, seconds=3) as pilot:
        for key in keys.split():
            await press(pilot, key)
        assert isinstance(stage.app.screen, HelpSheet) is opens


async def test_only_the_visible_tab_draws_and_it_draws_what_came_meanwhile(stage: Stage) -> None:
    async with stage.opened(machines.pair(0)) as pilot:
        await press(pilot, "2")
        before = {pane.id: pane.lines_painted for pane in stage.app.overview.query(PaintedPane)}
        for tick in range(1, 6):
            await stage.show(pilot, machines.pair(tick))
        assert {pane.id: pane.lines_painted for pane in stage.app.overview.query(PaintedPane)} == before
        await press(pilot, "1")
        assert stage.app.overview.processes._view is not None
        assert stage.app.overview.processes._view.snapshot == machines.pair(5)


async def test_a_resize_on_one_tab_reaches_the_others(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("5")
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        await press(pilot, "1")
        overview = stage.app.overview
        assert overview.keys.region.bottom == 24
        assert all(len(line) <= 80 for line in overview.processes.plain.splitlines())


async def test_pause_holds_on_every_tab(stage: Stage) -> None:
    async with stage.opened(machines.pair(0)) as pilot:
        await pilot.press("2", "P")
        await stage.show(pilot, machines.pair(40))
        assert "PAUSED" in plain(stage)
        await press(pilot, "5")
        assert "PAUSED" in plain(stage)


@pytest.mark.parametrize("active", [tab.id for tab in TABS])
def test_labels_fold_and_the_active_one_is_named(active: str) -> None:
    for room in range(0, 120):
        shown = tab_labels(active, room)
        text = "".join(part for _, part, _ in shown)
        assert f"{next(tab.title for tab in TABS if tab.id == active)}]" in text
        assert [tab_id for tab_id, _, _ in shown] == [tab.id for tab in TABS]


def test_the_names_that_fit_are_shown_where_not_all_of_them_do() -> None:
    def shown(room: int) -> str:
        return "".join(text for _, text, _ in tab_labels("overview", room))

    assert shown(30) == "[Overview] 2  3  4  5  6 "
    assert shown(44) == "[Overview] 2 GPU  3 Process  4  5  6 "


async def test_the_digit_that_opens_a_gpu_says_which_and_how_to_open_another(stage: Stage) -> None:
    async with stage.opened(machines.many(4, 12), size=(80, 24)) as pilot:
        await press(pilot, "2")
        assert "this is GPU 0; # opens a GPU by its number, 0-3" in stage.app.tab.keys.plain
        await press(pilot, "1", "number_sign", "2")
        assert stage.app.chosen_gpu == machines.uuid(2)


def test_tabs_are_imported_when_they_are_looked_at() -> None:
    code = "import sys, gpuwatch.ui.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    for unwanted in (
        "gpuwatch.ui.screens.gpu",
        "gpuwatch.ui.screens.probes",
        "gpuwatch.session.background_probes",
        "gpuwatch.experiment.probing",
        "gpuwatch.share.reports",
    ):
        assert unwanted not in loaded


# The GPU tab


async def test_enter_on_a_card_opens_its_gpu_and_arrows_go_on(stage: Stage) -> None:
    async with stage.opened(machines.many(4, 12)) as pilot:
        await pilot.press("shift+tab")
        assert stage.app.overview.focused_pane == "gpus"
        assert "↵ open" in stage.app.overview.keys.plain
        await press(pilot, "right", "enter")
        screen = stage.screen(GpuScreen)
        assert screen.device is not None
        assert screen.device.index == 1
        assert machines.uuid(1) in plain(stage)
        await pilot.press("right")
        assert screen.device.index == 2
        await pilot.press("left", "left", "left")
        assert screen.device.index == 3
        assert {row.key[0] for row in screen.processes.items} == {machines.uuid(3)}
        await pilot.press("1")
        assert len(stage.app.overview.processes.items) == 12, "the overview shows those of all GPUs"


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_every_metric_is_there_with_its_value_or_the_reason(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(past=machines.pair, size=size) as pilot:
        await press(pilot, "2")
        screen = stage.screen(GpuScreen)

        def readings() -> str:
            lines = ("".join(part for part, _ in line.spans) for line in screen.readings.content)
            return " ".join(" ".join(lines).split())

        few = readings()
        assert "– not supported" not in few
        lacks = [spec for spec in METRICS if screen.device and isinstance(screen.device.get(spec.id), Missing)]
        folded = sum(int(part) for part in re.findall(r"(\d+) (?:not supported|only with --gpm)", few))
        assert 0 < folded <= len(lacks)
        await press(pilot, "enter")
        text = readings()
        for spec in METRICS:  # whole, in their order, even if a value stands between the lines of a title
            names = (spec.title, SHORT_TITLES.get(spec.id, spec.title))
            assert any(name in text for name in names), spec.title
        assert text.count("– not supported") + text.count("– only with --gpm") == folded
        assert "…" not in text
        await press(pilot, "enter")
        assert readings() == few
        graphs = screen.graphs.plain
        for caption in ("GPU", "Memory", "Power", "Temperature", "SM clock"):
            assert caption in graphs
        assert "0–139.8 GiB" in graphs
        assert "30–100 °C" in graphs
        assert re.search(r"\d (s|min)( │| +[\u2800-\u28ff]|$)", graphs, re.MULTILINE)
        assert screen.keys.region.bottom == size[1]
        for line in plain(stage).splitlines():
            assert len(line.rstrip()) <= size[0]


async def test_an_unknown_axis_end_is_shown_and_not_guessed(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        shy = machines.device(0, missing={"power.limit_watts": machines.NOT_SUPPORTED})
        await stage.show(pilot, machines.snapshot((shy,)))
        await press(pilot, "2")
        assert "limit unknown" in plain(stage)


async def test_the_gpu_tab_shows_what_probes_were_given(make_stage: MakeStage, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    script = bench.probe_runs.scripts["growth"]
    bench.probe_runs.store.save(run_of(script))
    hostile = msgspec.structs.replace(run_of(script, 5), config="evil\x1b[31m\nname")
    bench.probe_runs.store.save(hostile)
    stage = make_stage(probe_runs=bench.probe_runs)
    async with stage.opened(machines.pair(180), size=(200, 50)) as pilot:
        await pilot.press("2")
        for _ in range(20):
            await settle(pilot)
            if bench.probe_runs.earlier:
                break
        await settle(pilot)
        text = plain(stage)
        assert "GPU:0 → physical 0" in text
        assert "peak 341 MiB 3 min ago" in " ".join(text.split())
        assert "\x1b" not in text
        assert "evil\\x1b[31m name" in text
        await press(pilot, "right")
        assert "no probe runs on this GPU yet" in plain(stage)


@pytest.mark.parametrize(
    ("machine", "size"),
    [
        ("no_driver", (60, 12)),
        ("no_driver", (250, 80)),
        ("broken", (20, 5)),
        ("broken", (80, 24)),
        ("hostile", (60, 12)),
        ("hostile", (80, 24)),
        ("pair", (20, 5)),
        ("pair", (250, 80)),
    ],
)
async def test_every_tab_on_every_machine(stage: Stage, machine: str, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        await pilot.press("2", "3", "4", "5", "6")  # before the first sample
        await settle(pilot)
        for second, tab in enumerate("23456", 3):
            await pilot.press(tab)
            await stage.show(pilot, getattr(machines, machine)(second))
            await press(pilot, "down", "right", "end", "home", "i")
            text = plain(stage)
            assert "\x1b" not in text
            assert "\u202e" not in text


# The Findings tab


async def test_findings_are_listed_with_evidence_and_action(stage: Stage) -> None:
    async with stage.opened(machines.snapshot(machines.pair().devices, findings=(HIDDEN, machines.HELD))) as pilot:
        await press(pilot, "5")
        text = plain(stage)
        assert text.index("holds 130.4 GiB") < text.index("hides every GPU"), "what is wrong comes first"
        assert "SM 0 % since 11:50:12" in text
        assert "TF_FORCE_GPU_ALLOW_GROWTH=true" in text
        await press(pilot, "down")
        assert "CUDA_VISIBLE_DEVICES=-1" in plain(stage)
        await pilot.press("c")
        assert stage.app.clipboard == "unset CUDA_VISIBLE_DEVICES"
        await press(pilot, "enter")
        assert isinstance(stage.app.screen, LinesSheet)
        await press(pilot, "escape")
        assert isinstance(stage.app.screen, FindingsScreen)


async def test_no_findings_are_shown_as_such(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "5")
        assert "the driver's first answer" in plain(stage)
        await stage.show(pilot, machines.many(2, 4))
        assert "No problems found" in plain(stage)
        assert "What was checked" in plain(stage)


@pytest.mark.parametrize("simulated", [False, True])
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (100, 30), (120, 40), (200, 60)])
async def test_tabs_do_not_move_when_something_goes_wrong(stage: Stage, size: tuple[int, int], simulated: bool) -> None:
    async with stage.app.run_test(size=size) as pilot:
        line = stage.app.overview.top_line
        await stage.show(pilot, msgspec.structs.replace(machines.many(2), simulated=simulated))
        calm = [start for start, _end, _tab in line._places][:5]
        await stage.show(pilot, msgspec.structs.replace(machines.broken(), simulated=simulated))
        assert "✖ 1 error " in line.plain
        assert [start for start, _end, _tab in line._places][:5] == calm
        stage.feed.state = FeedStatus(state="not-answering", age_seconds=10.0, waiting_seconds=9.0)
        stage.app._last_sample_at = float("-inf")
        stage.app._tick()
        await settle(pilot)
        assert "for 9 s" in line.plain
        assert "✖ 1 error " in line.plain
        assert "…" not in line.plain.rstrip()[-20:]
        if size[0] >= 80:
            assert [start for start, _end, _tab in line._places][:5] == calm


@pytest.mark.parametrize("key", ["enter", "e"])
async def test_esc_leads_back_to_where_a_process_was_opened(stage: Stage, key: str) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, key)
        assert stage.app.tab.TAB == "process"
        assert "Esc back" in stage.app.tab.keys.plain
        await press(pilot, "escape")
        assert stage.app.tab.TAB == "overview"
        assert stage.app.overview.focused_pane == "processes"
        await pilot.press("2", "tab", "tab", "tab", "tab")
        while stage.app.tab.focused_pane != "processes":
            await pilot.press("tab")
        await press(pilot, key)
        assert stage.app.tab.TAB == "process"
        await press(pilot, "escape")
        assert stage.app.tab.TAB == "gpu"
        await press(pilot, "escape", "escape")
        assert stage.app.tab.TAB == "overview"


async def test_esc_always_ends_at_the_overview(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "3", "5", "3", "6", "3", "4", *["escape"] * 7)
        assert stage.app.tab.TAB == "overview"


@pytest.mark.parametrize(("machine", "words"), [("broken", "error"), ("pair", "all well"), ("pair", "warning")])
@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_click_on_the_verdict_shows_the_findings(
    stage: Stage, machine: str, words: str, size: tuple[int, int]
) -> None:
    async with stage.app.run_test(size=size) as pilot:
        made = getattr(machines, machine)()
        if words == "all well":
            made = machines.snapshot(made.devices)
        await stage.show(pilot, made)
        top = stage.app.tab.top_line
        assert words in top.plain
        await pilot.click(top, offset=(top.plain.index(words), 0))
        await settle(pilot)
        assert stage.app.tab.TAB == "findings"


async def test_a_title_under_the_mouse_is_spelt_out(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40), tooltips=True) as pilot:
        await stage.show(pilot, machines.pair())
        table = stage.app.overview.processes
        head = table.plain.splitlines()[1]
        await pilot.hover("#processes", offset=(head.index("MBW%") + 1, 1))
        assert table.tooltip == "MBW%: memory bandwidth: share of time it read or wrote GPU memory"
        await pilot.hover("#processes", offset=(head.index("MBW%") + 1, 2))
        assert table.tooltip is None
        gpus = stage.app.overview.gpus
        for many, name, words in (
            (2, "MTEMP", "memory temperature"),
            (16, "ST", "performance state, P0 is the fastest"),
            (16, "THR", "share of time throttled, and the main reason"),
        ):
            await stage.show(pilot, machines.many(many, 5))
            y, line = next((y, line) for y, line in enumerate(gpus.plain.splitlines()) if f" {name} " in line)
            x = line.index(f" {name} ")
            await pilot.hover("#gpus", offset=(x + 1, y))
            assert gpus.tooltip == f"{name}: {words}"
            await pilot.hover("#gpus", offset=(x, y))
            assert gpus.tooltip is None


async def test_htop_s_keys_sort_or_say_what_does(stage: Stage) -> None:
    async with stage.opened(past=lambda tick: machines.many(2, 10, tick=tick), seconds=3) as pilot:
        table, keys = stage.app.overview.processes, stage.app.overview.keys
        await press(pilot, "T")
        assert "sorts by run time" in keys.plain
        table.sort_by("cpu")
        await pilot.press("M")
        assert table.sort_column == "memory"
        await settle(pilot)
        assert "sorted by GPU-MEM" in keys.plain
        await press(pilot, "P")
        assert "sorts by CPU%" in keys.plain
        await press(pilot, "T")
        assert isinstance(stage.app.screen, TimePrompt), "in the past it goes to a time"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("1", "1 is this tab; # opens a GPU by its number, 0-1"),
        ("2 2", "2 is this tab"),
        ("9", "9 is no key here; # opens a GPU"),
        ("x", "x is no key here"),
        ("n", "n is no key here"),
    ],
)
async def test_a_key_that_does_nothing_says_so(stage: Stage, keys: str, says: str) -> None:
    async with stage.opened(machines.pair()) as pilot:
        assert "# GPU 0-1" in stage.app.tab.keys.plain
        for key in keys.split():
            await press(pilot, key)
        assert says in stage.app.tab.keys.plain

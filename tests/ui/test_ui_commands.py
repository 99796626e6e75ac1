"""The command line that shows or repeats what is on the screen."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuwatch.cli.dashboard_options import loaded_preferences
from gpuwatch.cli.main import cli
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.session.background_probes import ProbeParameters
from gpuwatch.ui.details.equivalent_commands import dashboard_command, probe_command, sim_option
from gpuwatch.ui.settings.preferences import Preferences
from tests.recording.recordings import recorded
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.pictures import made_up_probe_runs
from tests.ui.waiting import press, settle


async def test_the_overview_gives_its_filter_and_order_as_options(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("y")
        assert stage.app.clipboard == "gpuwatch"
        await press(pilot, "slash", *"mem>2GiB", "enter")
        stage.app.overview.processes.sort_by("cpu")
        await press(pilot, "y")
        assert stage.app.clipboard == "gpuwatch --sort cpu --filter 'mem>2GiB'"
        assert f"copied: {stage.app.clipboard}" in stage.app.overview.keys.plain
        assert "? help  q quit" in stage.app.overview.keys.plain
        await pilot.press("2", "y")
        assert stage.app.clipboard == "gpuwatch --tab gpu --sort cpu --filter 'mem>2GiB'"


def test_options_mean_the_same_preferences(tmp_path: Path) -> None:
    wanted = Preferences(
        theme="gpuwatch-light",
        ascii=False,
        interval=2.5,
        read_only=True,
        own_collector=True,
        notify=True,
        tab="events",
        columns=("pid", "command"),
        sort="cpu",
        filter="user:alice mem>2GiB",
        descending=False,
        tree=True,
        gpu_fields=("power",),
        layout="cards",
        gpu_order="memory",
        graphs=("power", "memory"),
    )
    parts = dashboard_command(wanted)
    context = cli.make_context("gpuwatch", list(parts), resilient_parsing=True)
    given: dict[str, Any] = {
        name: value for name, value in context.params.items() if name.rstrip("_") in Preferences.__slots__
    }
    found = loaded_preferences(tmp_path / "none.toml", given).preferences
    assert found == wanted
    left_out = {"thresholds", *(name for name in Preferences.__slots__ if name.endswith("_thresholds"))}
    same = {name for name in Preferences.__slots__ if getattr(wanted, name) == getattr(Preferences(), name)}
    assert same <= {"gpm", *left_out}, "every other preference is in the command line"
    assert dashboard_command(Preferences()) == []
    assert dashboard_command(Preferences(gpm=True)) == ["--gpm"]


async def test_probes_give_a_probe_command_that_the_cli_understands(make_stage: Any, tmp_path: Path) -> None:
    probe_runs = made_up_probe_runs(tmp_path)
    stage = make_stage(probe_runs=probe_runs)
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.pair())
        await press(pilot, "4")
        probe_runs.selected = {"growth", "limit"}
        await press(pilot, "y")
        assert stage.app.clipboard == "gpuwatch probe --config growth --config limit --seconds 1"
        assert stage.app.clipboard in stage.app.tab.keys.plain
        result = CliRunner().invoke(cli, [*shlex.split(stage.app.clipboard)[1:], "--explain"])
        assert result.exit_code == 0, result.output
        probe_runs.selected = set()
        await pilot.press("home", "y")
        assert stage.app.clipboard.startswith("gpuwatch probe --group memory ")
        await press(pilot, "down", "enter")
        await press(pilot, "y")
        command = shlex.split(stage.app.clipboard)
        assert command[:2] == ["gpuwatch", "report"]
        run = probe_runs.runs["default"]
        assert Path(command[2]) == probe_runs.store.save(run)
        result = CliRunner().invoke(cli, command[1:])
        assert result.exit_code == 0, result.output
        assert "default" in result.output


def test_parameters_are_in_the_command(tmp_path: Path) -> None:
    scripts = made_up_probe_runs(tmp_path).scripts
    given = ProbeParameters(
        "matmul", 2.5, memory_limit=512, fraction=0.5, visible="1,0", virtual=3, gpu="GPU-1", python="/p"
    )
    assert probe_command(scripts, set(scripts), given) == shlex.split(
        "probe --all --seconds 2.5 --workload matmul --memory-limit 512 --fraction 0.5 --virtual 3 --visible 1,0"
        " --gpu GPU-1 --python /p"
    )
    assert sim_option({"GPUWATCH_SIM": "2x24GiB"}) == ["--sim", "2x24GiB"]
    state = {"GPUWATCH_SIM": "2x24GiB", "GPUWATCH_SIM_STATE": "/dev/shm/x/demo-2x24GiB.v5.4155.state"}
    assert sim_option(state) == ["--sim", "2x24GiB@demo"]
    shared = {**state, "GPUWATCH_SIM_STATE": "/dev/shm/x/shared-2x24GiB.v5.4155.state"}
    assert sim_option(shared) == ["--sim", "2x24GiB"]
    assert sim_option({}) == []


async def test_a_finding_gives_its_cause(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "5")
        await pilot.press("y")
        parts = stage.app.clipboard.split()
        assert parts[:2] == ["gpuwatch", "cause"]
        result = CliRunner().invoke(cli, parts[1:])
        assert result.exit_code == 0
        assert parts[2] in result.output


async def test_the_report_s_sheet_writes_nothing_by_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    async with stage.app.run_test(size=(80, 24)) as pilot:
        stage.push(machines.pair())
        await press(pilot, "r")
        assert "ids replaced  w" in stage.app.screen.pane.plain  # type: ignore[attr-defined]
        await press(pilot, "n")
        assert stage.app.screen is stage.app.overview
        assert not [*tmp_path.glob("*.html")]
        assert "writing" not in stage.app.tab.keys.plain


@pytest.mark.parametrize(
    ("tab", "key", "says", "width"), [("1", "enter", "with names", 80), ("5", "w", "without names", 160)]
)
async def test_r_writes_a_report_into_this_folder(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tab: str, key: str, says: str, width: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpuwatch").mkdir()  # not to be taken for the program
    async with stage.app.run_test(size=(width, 40)) as pilot:
        stage.push(machines.pair())
        await press(pilot, tab, "r")
        await press(pilot, key)
        await stage.app.workers.wait_for_complete()
        await settle(pilot)
        (path,) = tmp_path.glob("gpuwatch-report-*.html")
        assert f"● report: {path.name}, {says}" in stage.app.tab.keys.plain
        assert "left out with --no-doctor" in path.read_text()
        assert ("Redacted: users" in path.read_text()) is (key == "w")
        path.unlink()
        failing = "import sys; sys.exit('gpuwatch: cannot write x.html: its folder is not writable')"
        monkeypatch.setattr("gpuwatch.ui.screens.write_report_sheet._START_CODE", failing)
        await press(pilot, "r")
        await press(pilot, "y")
        await stage.app.workers.wait_for_complete()
        await settle(pilot)
        assert "cannot write x.html: " in stage.app.tab.keys.plain


async def test_r_reports_the_last_half_hour_where_a_recorder_runs(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single sample does not know since when something is wrong."""
    monkeypatch.chdir(tmp_path)
    recording = recorded(tmp_path / "here.gpuwatch", (machines.many(2, 3, tick=tick) for tick in range(5)))
    async with stage.app.run_test(size=(160, 40)) as pilot:
        monkeypatch.setattr(stage.feed, "status", lambda: FeedStatus("ok", 0.0, recording=str(recording)))
        stage.push(machines.pair())
        await press(pilot, "r")
        await press(pilot, "enter")
        await stage.app.workers.wait_for_complete()
        await settle(pilot)
        (path,) = tmp_path.glob("gpuwatch-report-*.html")
        assert "GPU report of a recording" in path.read_text()


async def test_a_command_too_long_for_the_footer_is_a_sheet(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        stage.app.set_preferences(
            columns=("pid", "user", "memory", "sm", "cpu", "host", "time", "framework", "command")
        )
        await press(pilot, "y")
        shown = "".join(stage.app.screen.pane.plain.split())  # type: ignore[attr-defined]
        assert "".join(stage.app.clipboard.split()) in shown
        await pilot.press("escape")
        assert stage.app.screen is stage.app.overview

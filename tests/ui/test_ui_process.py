"""The Process tab: who it is, its map, its settings, its history, its relatives, its environment."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.model.snapshot import MappedDevice, Process, Snapshot
from gpuwatch.machine.history.last_hour import LastHour
from gpuwatch.machine.sources.process_details import ProcessDetails, read_process_details
from gpuwatch.session.process_history import Identity, ProcessHistories, process_identity
from gpuwatch.ui.details.environment_effects import variable_effects
from gpuwatch.ui.details.process_sections import most_certain_map
from gpuwatch.ui.screens.process import ProcessScreen
from gpuwatch.ui.screens.signal_sheet import SignalSheet
from gpuwatch.ui.widgets.graphs import axis_end
from tests.every import every
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.people import details_of
from tests.ui.waiting import plain, press, settle, until

MakeStage = Callable[..., Stage]
DEVICES = (machines.device(0), machines.device(1))


def about(stage: Stage) -> str:
    screen = stage.screen(ProcessScreen)
    return "\n".join("".join(text for text, _ in line.spans) for line in screen.facts.content + screen.about.content)


def swapped(tick: int = 0) -> Snapshot:
    """A TensorFlow program that sees two GPUs the other way round and works on both."""
    mapped = (
        MappedDevice(ordinal=0, uuid=machines.uuid(1), index=1),
        MappedDevice(ordinal=1, uuid=machines.uuid(0), index=0),
    )
    rows = tuple(
        machines.process(0, gpu=gpu, tick=tick, device_map=mapped, cuda_visible_devices="1,0") for gpu in (0, 1)
    )
    return machines.snapshot(DEVICES, rows, tick=tick)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_map_settings_findings_relatives_and_environment(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(past=machines.pair, size=size) as pilot:
        await press(pilot, "enter")
        assert isinstance(stage.app.screen, ProcessScreen)
        text = plain(stage)
        assert "48121  alice  python train.py" in text
        assert "since 2026-05-11" in text
        assert "tensorflow 2.21.0" in text
        whole = about(stage)
        assert "physical 1  likely  130.4 GiB" in whole
        assert machines.uuid(1) in whole
        assert "GPU:0 is physical 1, GPU:1 is" in " ".join(whole.split())
        assert "memory grows as needed" in " ".join(whole.split())
        assert "GiB and has been idle" in whole
        for branch in ("4000 bash train.sh --token •••", "48121 python train.py", "48122 python -c", "48123 nvcc"):
            assert branch in whole
        assert "HF_TOKEN=•••" in whole
        assert "postgres://•••@db/train" in whole
        assert "verysecret" not in whole + text
        assert "\x1b" not in whole + text
        graphs = stage.app.screen.graphs.plain
        wide = size[0] >= 120
        for part in ("GPU memory" if wide else "MEM", "SM", "CPU", "0–100 %", "0–1 GiB", "0–139.8 GiB"):
            assert part in graphs
        assert "⣿" in graphs, "the history since before the tab was opened"
        assert stage.app.screen.keys.region.bottom == size[1]


async def test_secrets_of_its_command_are_masked_too(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        row = machines.process(0, command="python train.py --token=verysecret --bs 64")
        await stage.show(pilot, machines.snapshot(DEVICES, (row,)))
        await press(pilot, "enter")
        assert "--token=••• --bs 64" in plain(stage)
        assert "verysecret" not in plain(stage) + about(stage)


async def test_device_numbers_are_shown_for_both_gpus(stage: Stage) -> None:
    async with stage.opened(swapped()) as pilot:
        await press(pilot, "3")
        whole = about(stage)
        assert whole.index("GPU:0 → physical 1") < whole.index("GPU:1 → physical 0")
        assert "0–200 %" in plain(stage)
        assert "0–279.6 GiB" in plain(stage)


async def test_what_may_not_be_read_says_why(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "down", "enter")
        assert "51877" in plain(stage)
        assert " ".join(about(stage).split()).count("belongs to another user") == 2
        await press(pilot, "right")
        assert "1999" in plain(stage)
        assert "another PID namespace, or" in about(stage)
        assert "no framework recognized" in plain(stage)
        await press(pilot, "right")
        assert "48121" in plain(stage), "the arrows go round"


async def test_keys_lead_to_the_environment_and_the_relatives(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        await press(pilot, "e")
        screen = stage.screen(ProcessScreen)
        assert "HF_TOKEN=•••" in screen.about.plain
        await pilot.press("t")
        assert "4000 bash" in screen.about.plain
        await pilot.press("home")
        assert "holds 130.4 GiB" in screen.about.plain
        await press(pilot, "K")
        assert isinstance(stage.app.screen, SignalSheet)
        await press(pilot, "escape", "i")
        assert stage.app.screen is not screen


async def test_a_process_that_exited_stays_on_screen_and_is_marked(make_stage: MakeStage) -> None:
    answers: list[ProcessDetails] = [details_of((48121, 1.0))]
    stage = make_stage(read_process=lambda who: answers[-1])
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        await press(pilot, "enter")
        screen = stage.screen(ProcessScreen)
        answers.append(ProcessDetails(problem="it has already exited"))
        await stage.show(pilot, machines.many(2, 3, tick=6))
        assert "✖ no longer uses a GPU" in plain(stage)
        screen._read_at = -100.0
        await stage.show(pilot, machines.many(2, 3, tick=7))
        assert "these are its last values" in plain(stage)
        assert "HF_TOKEN=•••" in about(stage)


async def test_reading_that_hangs_holds_nothing_up(make_stage: MakeStage) -> None:
    release = threading.Event()

    def slow(who: Identity) -> ProcessDetails:
        release.wait(20)
        return details_of(who)

    stage = make_stage(read_process=slow)
    async with stage.opened(machines.pair()) as pilot:
        await pilot.press("enter", "down", "up", "right", "left")
        await pilot.pause()
        assert "reading its environment" in plain(stage)
        release.set()
        await settle(pilot)
        await settle(pilot)
        assert "HF_TOKEN" in about(stage)


async def test_a_reader_error_is_shown(make_stage: MakeStage) -> None:
    def broken(who: Identity) -> ProcessDetails:
        raise RuntimeError("odd")

    stage = make_stage(read_process=broken)
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, "enter")
        assert "broke off: RuntimeError: odd" in about(stage)


async def test_a_real_process_is_read(make_stage: MakeStage) -> None:
    import time

    from gpuwatch.machine.sources.process_table import ProcessTable

    mine = ProcessTable().facts_of(os.getpid(), time.monotonic())
    assert mine is not None
    stage = make_stage(read_process=lambda who: read_process_details(*who))
    async with stage.app.run_test(size=(120, 40)) as pilot:
        row = machines.process(0, pid=os.getpid(), create_time=mine.create_time)
        await stage.show(pilot, machines.snapshot(DEVICES, (row,)))
        await press(pilot, "enter")
        assert "PATH=" in about(stage)
        assert str(os.getppid()) in about(stage)


async def test_no_process_and_no_sample(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        await press(pilot, "3")
        assert "the driver's first answer" in plain(stage)
        await stage.show(pilot, machines.snapshot(DEVICES))
        assert "no process uses a GPU" in plain(stage)


def test_a_map_is_a_fact_from_the_driver_and_likely_from_the_environment() -> None:
    shot = swapped()
    rows = shot.processes
    zero, one = machines.uuid(0), machines.uuid(1)
    likely, source = most_certain_map(rows, (), shot)
    assert [(entry.ordinal, entry.index, entry.certainty) for entry in likely] == [
        (0, 1, "likely"),
        (1, 0, "likely"),
    ]
    assert source.startswith("likely: from its environment")
    known, source = most_certain_map(rows, ((0, one), (1, zero)), shot)
    assert {entry.certainty for entry in known} == {"fact"}
    assert source == "fact: reported by the simulated driver"
    other, source = most_certain_map(rows, ((0, zero),), shot)
    assert [(entry.ordinal, entry.index) for entry in other] == [(0, 0)]
    assert "environment alone suggests" in source
    assert most_certain_map((), (), shot)[0] == ()


def test_one_visible_gpu_on_which_the_driver_lists_it_is_a_fact() -> None:
    mapped = (MappedDevice(ordinal=0, uuid=machines.uuid(1), index=1),)
    there = machines.process(0, gpu=1, device_map=mapped, cuda_visible_devices="1")
    shot = machines.snapshot(DEVICES, (there,))
    assert most_certain_map((there,), (), shot)[0][0].certainty == "fact"
    elsewhere = machines.process(0, gpu=0, device_map=mapped, cuda_visible_devices="1")
    assert most_certain_map((elsewhere,), (), shot)[0][0].certainty == "likely", "the program set another list itself"
    unset = machines.process(0, gpu=1, device_map=mapped, cuda_visible_devices=None)
    assert most_certain_map((unset,), (), shot)[0][0].certainty == "likely"


def test_history_is_kept_of_few() -> None:
    histories, timeline = ProcessHistories(), LastHour()
    shot = machines.many(2, 9)
    timeline.add(shot)
    people = [process_identity(row) for row in shot.processes]
    for who in people:
        histories.follow(who, timeline, timeline.times[-1])
    histories.add(machines.many(2, 9, tick=1))
    assert len(histories._followed) == 4
    last = histories.follow(people[-1], timeline, timeline.times[-1])
    assert len(last.times) == 2
    histories.add(machines.snapshot(DEVICES, (), tick=2))
    assert list(last.series["cpu_percent"])[-1] is None, "not there is a gap and no zero"
    assert last.rows[0].pid == people[-1][0]
    assert isinstance(last.rows[0], Process)


def test_axes_grow_in_steps() -> None:
    assert [axis_end(most, 100) for most in (0, 3, 100, 101, 399, 6400)] == [100, 100, 100, 200, 400, 6400]


@every(
    [
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, "GPU:0 is physical 1, GPU:1 is physical 0", False),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "hides every GPU from it", True),
        ({"CUDA_VISIBLE_DEVICES": ""}, "hides every GPU from it", True),
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, "GPU:0 is physical 0; the list ends at “7”", True),
        (
            {"CUDA_VISIBLE_DEVICES": "7,0"},
            "ends at “7”, which is not a GPU here or is listed twice: it sees no GPU",
            True,
        ),
        ({"CUDA_VISIBLE_DEVICE": "0"}, "not a name that CUDA reads", True),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "1"}, "only true and false", True),
        ({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, "memory grows", False),
        ({"TF_GPU_ALLOCATOR": "cuda_malloc_async"}, "CUDA's own pool", False),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,odd:[1,2]"}, "blocks above 64 MB are never split", False),
        ({"PYTORCH_CUDA_ALLOC_CONF": "nonsense"}, "name:value pairs", True),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, "no GPU", False),
        ({"TF_CPP_MIN_LOG_LEVEL": "2"}, "hides INFO and WARNING", False),
        ({}, "TensorFlow takes nearly all free memory", False),
    ]
)
def test_settings_in_words(environment: dict[str, str], effect: str, wrong: bool) -> None:
    setting = variable_effects(environment, "tensorflow 2.21.0", DEVICES)[0]
    assert effect in setting.effect
    assert setting.wrong is wrong


@pytest.mark.parametrize("used", [(0,), (2, 5), tuple(range(8))])
async def test_of_eight_gpus_only_those_that_it_uses_have_lines(stage: Stage, used: tuple[int, ...]) -> None:
    eight = tuple(machines.device(n) for n in range(8))
    mapped = tuple(MappedDevice(ordinal=n, uuid=machines.uuid(n), index=n) for n in range(8))
    rows = tuple(machines.process(0, gpu=gpu, device_map=mapped) for gpu in used)
    async with stage.opened(machines.snapshot(eight, rows)) as pilot:
        await press(pilot, "3")
        whole = " ".join(about(stage).split())
        for number in range(8):
            assert (machines.uuid(number) in whole) == (number in used)
        assert whole.count("no memory") == (len(used) < 8)
        if used == (0,):
            assert "7 more: GPU:1-7 → physical 1-7" in whole
        if used == (2, 5):
            assert "physical 0-1, 3-4, 6-7" in whole


def test_the_first_process_is_named_without_its_command_line() -> None:
    started = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    begun = int(boot.split()[1]) + int(started) / os.sysconf("SC_CLK_TCK")
    found = read_process_details(os.getpid(), begun)
    assert not found.problem
    first = found.parents[-1]
    assert (first.pid, first.command) == (1, Path("/proc/1/comm").read_text().rstrip())


async def test_what_does_not_fit_is_left_out_whole_and_counted(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(stage.app.screen, ProcessScreen) and not stage.app.screen.reading)
        screen = stage.screen(ProcessScreen)
        pane, cut = screen.about, 0
        await pilot.press("home")
        while (end := pane.top + pane.room) < len(pane.content):
            *shown, last = pane.in_view()
            words = "".join(text for text, _ in last.spans)
            left = pane.top + len(shown)
            assert words == f" … {len(pane.content) - left} more lines  ↓"
            assert left == end - 1 or left in pane._starts
            cut += left < end - 1
            await press(pilot, "down")
        assert cut, "some entry takes several lines"
        assert pane.in_view() == list(pane.content[pane.top :])

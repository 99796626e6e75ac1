"""Programs with a GPU framework that are on no GPU: in the table of the Overview, and why on the Process tab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.machine.sources.process_details import ProcessDetails
from gpuwatch.session.process_history import Identity
from gpuwatch.ui.screens.process import ProcessScreen
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID as COLUMN
from gpuwatch.ui.tables.process_columns import why_unavailable
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press

ENVIRONMENT: dict[str, str] = {"PATH": "/opt/venv/bin:/usr/bin", "VIRTUAL_ENV": "/opt/venv"}


def started(environment: dict[str, str]) -> Callable[[Identity], ProcessDetails]:
    return lambda who: ProcessDetails(environment=environment, interpreter="/usr/bin/python3.12")


def on_cpu(**changes: Any) -> Process:
    facts: dict[str, Any] = {
        "pid": 4711,
        "type": "H",
        "command": "python train.py --token=verysecret",
        "framework": "tensorflow 2.21.0",
        "readings": {"cpu_percent": 780.0},
        **changes,
    }
    row = machines.process(0, gpu=None, **facts)
    for name in ("gpu_memory_bytes", "sm_percent", "memory_percent"):
        row.readings.pop(name)
    return row


def machine(row: Process, *others: Process, tick: int = 0, **changes: Any) -> Snapshot:
    devices = (machines.device(0, tick=tick), machines.device(1, tick=tick))
    return machines.snapshot(devices, others, tick=tick, bystanders=(row,), **changes)


def facts(stage: Stage) -> str:
    screen = stage.screen(ProcessScreen)
    return " ".join("".join(text for text, _ in line.spans).strip() for line in screen.facts.content)


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40), (200, 60)])
async def test_it_has_a_row_and_enter_says_why(make_stage: Callable[..., Stage], size: tuple[int, int]) -> None:
    hidden = started({**ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "-1"})
    stage = make_stage(read_process=hidden)
    async with stage.app.run_test(size=size) as pilot:
        row = on_cpu(cuda_visible_devices="-1")
        await stage.show(pilot, *(machine(row, machines.process(1), tick=tick) for tick in range(20)))
        table = stage.app.overview.processes.plain
        line = next(line for line in table.splitlines() if "4711" in line)
        assert line.strip("│▶ ").startswith("CPU")
        assert "verysecret" not in table
        await press(pilot, "down", "enter")
        text = facts(stage)
        assert "on no GPU NVML lists it on none" in " ".join(text.split())
        assert "visibility.hidden · likely" in text
        assert "it sees no GPU" in " ".join(text.split())
        assert "unset CUDA_VISIBLE_DEVICES" in " ".join(text.split())
        stage.screen(ProcessScreen)
        history = stage.app.session.process_history((4711, row.create_time))
        assert list(history.series["cpu_percent"])[-3:] == [780.0] * 3
        await press(pilot, "right")
        assert "on no GPU" not in facts(stage)


async def test_without_a_known_cause_the_commands_that_tell_are_named(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(read_process=started(ENVIRONMENT))
    async with stage.opened(machine(on_cpu(cuda_loaded=True))) as pilot:
        await press(pilot, "3")
        text = " ".join(facts(stage).split())
        assert "cause unknown" in text
        assert "it has loaded libcuda" in text
        assert "gpuwatch doctor --python /opt/venv/bin/python" in text
        assert "gpuwatch run --placement -- python train.py --token=•••" in text
        await pilot.press("y")
        await pilot.pause()
        assert stage.app.clipboard == "gpuwatch run --placement -- python train.py '--token=•••'"


async def test_without_gpus_nothing_is_claimed(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(read_process=started(ENVIRONMENT))
    async with stage.app.run_test(size=(120, 40)) as pilot:
        made = machines.no_driver()
        await stage.show(pilot, machines.snapshot((), (on_cpu(),), problems=made.problems, host_processes=1))
        await press(pilot, "enter")
        text = " ".join(facts(stage).split())
        assert "gpuwatch sees no GPU here" in text
        assert "gpuwatch doctor --python" in text
        assert "likely" not in text


async def test_the_filter_finds_them(stage: Stage) -> None:
    async with stage.opened(machine(on_cpu(), machines.process(1))):
        stage.app.overview.filter_typed("gpu:cpu")
        assert stage.app.overview.processes.counts == (1, 2)
        stage.app.overview.filter_typed("-gpu:cpu")
        assert stage.app.overview.processes.counts == (1, 2)


def test_columns_in_which_nobody_has_a_value_leave() -> None:
    plain = machines.process(2, framework=None, device_map=())
    shot = machines.snapshot((machines.device(0),), (plain,))
    assert "no framework" in why_unavailable(COLUMN["framework"], shot)
    assert why_unavailable(COLUMN["sees"], shot)
    assert not why_unavailable(
        COLUMN["framework"], machines.snapshot((machines.device(0),), (plain, machines.process(0)))
    )
    young = machines.process(2, framework=None, device_map=(), command=None)
    assert not why_unavailable(COLUMN["framework"], machines.snapshot((machines.device(0),), (young,))), "not read yet"
    assert why_unavailable(COLUMN["framework"], machines.snapshot((machines.device(0),), (plain, young))), (
        "no empty column"
    )
    assert not why_unavailable(COLUMN["framework"], machines.snapshot((machines.device(0),)))

"""MIG instances beneath their GPU, on the overview and as pure lines."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import MigInstance, Snapshot
from gpuwatch.ui.drawing.overview_layout import plan_layout
from gpuwatch.ui.panes.gpu_line import mig_instance_lines
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import settle

GIB = machines.GIB


def instance(index: int, used: float | None = 1.0) -> MigInstance:
    readings = {"memory.total_bytes": int(9.8 * GIB)}
    missing = {"memory.used_bytes": machines.DENIED}
    if used is not None:
        readings, missing = readings | {"memory.used_bytes": int(used * GIB)}, {}
    return MigInstance(
        id=f"{index + 7}/0",
        index=index,
        uuid=f"MIG-{index}",
        gpu_instance=index + 7,
        compute_instance=0,
        profile="1g.10gb",
        readings=readings,
        missing=missing,
    )


def divided(gpus: int = 2, instances: int = 3, tick: int = 0) -> Snapshot:
    """The first GPU is divided, with an empty index in the middle; alice is on its first instance."""
    parts = tuple(instance(n if n < 2 else n + 2, 4.2 if n == 0 else None if n == 1 else 0.5) for n in range(instances))
    rows = (
        machines.process(0, gpu=0, pid=11, mig_instance="7/0"),
        machines.process(1, gpu=min(1, gpus - 1), pid=12),
    )
    devices = [machines.device(n, tick=tick) for n in range(gpus)]
    devices[0] = machines.device(0, tick=tick, mig_instances=parts, readings={"mig.mode": "enabled"})
    return machines.snapshot(tuple(devices), rows, tick=tick)


def texts(shot: Snapshot, lines: int, width: int = 100) -> list[str]:
    builders = mig_instance_lines(shot.devices[0], shot.processes, lines, width)
    return ["".join(text for text, _ in builder.spans).rstrip() for builder in builders]


def test_a_line_for_each_instance_and_a_dash_for_unknown_values() -> None:
    first, second, third = texts(divided(), 3)
    assert first.startswith("├─ MIG 0  7/0  1g.10gb   ▕")
    assert "9.8 GiB  11 alice train.py" in first
    assert "– / 9.8 GiB  no processes" in second
    assert third.startswith("└─ MIG 4  11/0 "), "numbers have gaps"


def test_who_holds_most_is_named_first() -> None:
    shot = divided()
    rows = (
        machines.process(0, gpu=0, pid=21, mig_instance="7/0", readings={"gpu_memory_bytes": 0}),
        replace(
            machines.denied_process(), pid=22, user=None, name=None, mig_instance="7/0", readings={}, note="denied"
        ),
        machines.process(1, gpu=0, pid=23, mig_instance="7/0", readings={"gpu_memory_bytes": 2 * GIB}),
    )
    first = texts(replace(shot, processes=rows), 3, 140)[0]
    assert re.search(r"  23 \S+ \S+, 21 \S+ \S+, 22$", first), "holder, idle one, unknown"


async def test_the_column_goes_with_the_instances(stage: Stage) -> None:
    async with stage.opened(divided(), size=(160, 40)) as pilot:
        assert "MIG" in stage.app.overview.processes.plain.split("\n")[1]
        await stage.show(pilot, machines.pair(1))
        assert "MIG" not in stage.app.overview.processes.plain.split("\n")[1]


@pytest.mark.parametrize("width", [80, 160])
async def test_a_process_has_the_number_of_its_instance(stage: Stage, width: int) -> None:
    async with stage.app.run_test(size=(width, 40)) as pilot:
        stage.app.set_preferences(columns=("pid", "mig", "memory", "command"))
        await stage.show(pilot, divided())
        row = next(line for line in stage.app.overview.processes.plain.splitlines() if " 11 " in line)
        assert "0 (7/0)" in row


@pytest.mark.parametrize("width", [46, 56, 90, 200])
def test_processes_of_an_instance_are_shown_at_every_width(width: int) -> None:
    first = texts(divided(), 3, width)[0]
    assert "11 alice" in first
    assert len(first) <= width
    assert ("▕" in first) == (width >= 54)


def test_those_without_a_line_are_counted() -> None:
    lines = texts(divided(instances=7), 3)
    assert len(lines) == 3
    assert lines[-1] == "└─ 5 more instances"
    assert texts(divided(instances=7), 0) == []


@pytest.mark.parametrize("instances", [(), (3,), (7, 0), (7, 7), (7,) * 8])
@pytest.mark.parametrize(("width", "height"), [(60, 12), (80, 24), (100, 30), (120, 40), (200, 60), (250, 80)])
def test_the_layout_holds_with_instances(width: int, height: int, instances: tuple[int, ...]) -> None:
    wanted = plan_layout(width, height, max(len(instances), 1), processes=8, instances=instances)
    assert wanted.gpu_height <= height - 8 or height < 20
    assert wanted.mig_lines <= max(instances, default=0)
    plain = plan_layout(width, height, max(len(instances), 1), processes=8)
    # Instances fold graphs; cards themselves only where there would be no room to show an instance in them.
    assert wanted.gpus_as == plain.gpus_as or (height < 30 and wanted.gpus_as == "line" and wanted.mig_lines)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60), (250, 80)])
@pytest.mark.parametrize("gpus", [1, 2])
async def test_they_stand_beneath_their_gpu(stage: Stage, size: tuple[int, int], gpus: int) -> None:
    async with stage.opened(divided(gpus), size=size) as pilot:
        pane = stage.app.overview.gpus
        text = pane.plain
        for part in ("MIG 0 ", "MIG 1 ", "MIG 4 ", "11 alice train.py"):
            assert part in text
        assert len(pane.lines) == pane.size.height
        assert all(len(line) <= size[0] for line in text.splitlines())
        await stage.show(pilot, divided(gpus, instances=0, tick=1))
        assert "MIG 0" not in pane.plain


async def test_a_click_on_an_instance_chooses_its_gpu(stage: Stage) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        shot = divided(2)
        await stage.show(pilot, machines.snapshot((shot.devices[0], shot.devices[1]), shot.processes * 6))
        pane = stage.app.overview.gpus
        lines = pane.plain.splitlines()
        if pane._overview_layout.gpus_as != "line":
            pytest.skip("cards are shown at this size")
        await pilot.click(pane, offset=(10, next(n for n, line in enumerate(lines) if "MIG 1 " in line)))
        await settle(pilot)
        assert pane.cursor_uuid == machines.uuid(0)
        await pilot.click(pane, offset=(10, len(lines) - 1))
        await settle(pilot)
        assert pane.cursor_uuid == machines.uuid(1)

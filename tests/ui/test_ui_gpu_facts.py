"""What the GPU tab says in words: throttling, limits, instances, topology, events."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Connection, Device, GpuAffinity, MigInstance, Snapshot, Topology
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.ui.details import gpu_sections as gpu_facts
from gpuwatch.ui.drawing.styled_lines import SpanLines
from gpuwatch.ui.screens.gpu import GpuScreen
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import plain, press

GIB = machines.GIB
START = machines.NOON.timestamp()


def texts(lines: SpanLines) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def watched(reasons: list[str]) -> tuple[ConditionEngine, Device]:
    watcher = ConditionEngine()
    device = machines.device(0)
    for tick, reason in enumerate(reasons):
        device = machines.device(0, readings={"clocks.event_reasons": reason, "events.thermal_seconds": 7.0})
        watcher.observe(machines.snapshot((device,), tick=tick))
    return watcher, device


def test_throttling_with_since_when_and_how_often() -> None:
    watcher, device = watched(["none"] * 5 + ["sw-thermal"] * 20 + ["none"] * 60 + ["sw-thermal+sw-power-cap"] * 40)
    now = START + 124
    lines = texts(gpu_facts.throttling_lines(device, watcher.throttling(device.uuid, now), now))
    assert lines[0] == "▲ thermal: now, for 39 s  (2 times in the last hour, 58 s in total)  sw-thermal"
    assert lines[1] == "· power cap: now, for 39 s  sw-power-cap"
    assert lines[2] == "  driver counters since it was loaded: thermal 7 s"
    then = START + 60
    lines = texts(gpu_facts.throttling_lines(device, watcher.throttling(device.uuid, then), then))
    assert lines[0] == "▲ thermal: for 19 s, ended 36 s ago  sw-thermal"
    long_after = START + 9000
    lines = texts(
        gpu_facts.throttling_lines(machines.device(0), watcher.throttling(device.uuid, START + 80), long_after)
    )
    assert lines == ["● not throttled since gpuwatch started"]


def test_missing_throttle_reasons_show_why() -> None:
    why = Missing("not_supported", code=3, detail="nvmlDeviceGetCurrentClocksEventReasons: Not Supported")
    device = machines.device(0, missing={"clocks.event_reasons": why})
    assert "Not Supported" in texts(gpu_facts.throttling_lines(device, [], START))[0]


def test_a_reason_that_was_there_at_the_start_is_at_least_as_long() -> None:
    watcher, device = watched(["hw-power-brake"] * 30)
    lines = texts(gpu_facts.throttling_lines(device, watcher.throttling(device.uuid, START + 29), START + 29))
    assert lines[0].startswith("▲ power brake: now, for at least 29 s")


def test_limits_as_temperatures_and_as_margins() -> None:
    plain = machines.device(
        0,
        busy=50,
        readings={
            "temperature.slowdown_celsius": 95,
            "temperature.shutdown_celsius": 98,
            "power.default_limit_watts": 600.0,
            "power.min_limit_watts": 200.0,
            "power.max_limit_watts": 700.0,
            "pcie.generation": 1,
            "pcie.max_generation": 5,
            "pcie.max_width": 16,
        },
    )
    text = "\n".join(texts(gpu_facts.limit_lines(plain)))
    assert "throttles at 95 °C · shuts" in text
    assert "settable from 200 to 700 W" in text
    assert "gen 1 ×16 max gen 5 ×16 · " in text
    margins = {"temperature.gpu_celsius": 41, "temperature.margin_celsius": 46}
    for name, value in (("operating_max", 0), ("slowdown", -2), ("shutdown", -5)):
        margins[f"temperature.{name}_margin_celsius"] = value
    newer = "\n".join(texts(gpu_facts.limit_lines(machines.device(0, readings=margins))))
    assert "now 46 °C below throttling" in newer
    nothing = machines.device(0, missing=dict.fromkeys(plain.readings, machines.NOT_SUPPORTED))
    assert texts(gpu_facts.limit_lines(nothing)) == ["– this device reports none"]


def divided(tick: int = 0) -> Snapshot:
    """Two of three instances are there; the index between them is empty."""

    def part(index: int, name: str, used: float | None) -> MigInstance:
        readings = {"memory.total_bytes": int(9.8 * GIB)}
        missing = {"memory.used_bytes": machines.DENIED}
        if used is not None:
            readings, missing = readings | {"memory.used_bytes": int(used * GIB)}, {}
        return MigInstance(
            id=name,
            index=index,
            uuid=f"MIG-{index}\x1b[31m",
            gpu_instance=index,
            compute_instance=0,
            profile="1g.10gb" if index else None,
            readings=readings,
            missing=missing,
        )

    parts = (part(0, "7/0", 4.2), part(2, "9/0", None))
    rows = (
        machines.process(0, gpu=0, pid=11, mig_instance="7/0", command="/opt/bin/python\x1b[2J train.py"),
        machines.process(1, gpu=0, pid=12, mig_instance="7/0"),
        machines.process(2, gpu=0, pid=13, mig_instance=None),
    )
    return machines.snapshot(
        (machines.device(0, tick=tick, mig_instances=parts, readings={"mig.mode": "enabled"}), machines.device(1)),
        rows,
        tick=tick,
    )


def test_instances_with_memory_and_who_is_on_them() -> None:
    shot = divided()
    lines = texts(gpu_facts.mig_lines(shot.devices[0], shot.processes, 100))
    assert "MIG 7/0  1g" not in lines[0], "an unknown profile is not made up"
    assert "11 alice python\\x1b[2J" in lines[0], "the larger first"
    assert "– / 9.8 GiB  no processes" in lines[2]
    assert "1g.10gb" in lines[2]
    assert "13 carol pretrain.py" in lines[4]
    assert "no utilization per instance" in lines[-1]
    assert gpu_facts.mig_lines(shot.devices[1], shot.processes, 100) == []


def test_topology_and_the_place_in_the_machine() -> None:
    a, b, c, d = (machines.device(n) for n in range(4))
    lost = Missing("failed", code=999, detail="nvmlDeviceGetTopologyCommonAncestor: Unknown Error")
    topology = Topology(
        places=(GpuAffinity(uuid=a.uuid, cpus="0-15", missing={"numa_nodes": machines.NOT_SUPPORTED}),),
        connections=(
            Connection(first=a.uuid, second=b.uuid, level="PIX", nvlinks=4),
            Connection(first=a.uuid, second=c.uuid, level="SYS"),
            Connection(first=a.uuid, second=d.uuid, level=None, missing=lost),
        ),
        switch_nvlinks={a.uuid: 12},
    )
    lines = texts(gpu_facts.topology_lines(a, machines.snapshot((a, b, c, d), topology=topology)))
    assert lines[0] == "GPU 1   NV4   4 NVLinks; PCIe behind one PCIe bridge"
    assert lines[1] == "GPU 2   SYS   across NUMA nodes, over the CPU interconnect"
    assert "Unknown Error" in lines[2]
    assert "12 NVLinks to an NVSwitch" in lines[3]
    assert lines[4] == "CPUs    0-15 local"
    assert lines[5].startswith("NUMA    – ")
    assert gpu_facts.topology_lines(a, machines.snapshot((a, b))) == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_tab_tells_of_this_device_only(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(past=machines.lively, seconds=175, size=size) as pilot:
        await press(pilot, "2")
        screen = stage.screen(GpuScreen)
        whole = "\n".join(
            "".join(text for text, _ in line.spans)
            for pane in (screen.about, screen.device_events)
            for line in pane.content
        )
        assert "for 59 s, ended 75 s ago" in " ".join(whole.split())
        assert "throttled (thermal)" in whole
        assert "(2284) exited on GPU 0 after" in " ".join(whole.split())
        assert "2247" not in whole, "that one is on the other device"
        assert all(len(line) <= size[0] for line in plain(stage).splitlines())
        await press(pilot, "right")
        whole = "\n".join("".join(text for text, _ in line.spans) for line in screen.about.content)
        assert "not throttled" in whole


async def test_back_in_time_the_tab_tells_what_was_known_then(stage: Stage) -> None:
    async with stage.opened(past=machines.lively, seconds=130) as pilot:
        await press(pilot, "2", "left_curly_bracket")
        screen = stage.screen(GpuScreen)
        assert "▲ thermal: now, for 29 s" in screen.about.plain
        assert "no longer throttled" not in screen.device_events.plain
        assert "throttled (thermal)" in screen.device_events.plain


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_hostile_names_do_no_harm(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        stage.push(divided(0))
        await stage.show(pilot, divided(1))
        await press(pilot, "2")
        text = plain(stage)
        assert "\x1b" not in text
        assert "MIG instances" in text
        width = size[0]
        assert all(len(line) <= width for line in text.splitlines())

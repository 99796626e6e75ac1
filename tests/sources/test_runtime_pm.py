"""GPUs that the kernel has suspended are not asked anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.sources.nvidia.nvml_devices import RuntimePm
from gpuwatch.sim.simulated_machine import SimMachine
from tests.waiting import wait_for_sample

Open = Callable[[str], SimMachine]


def card(root: Path, pci: str, *, vendor: str = "0x10de", kind: str = "0x030200", control: str, status: str) -> None:
    folder = root / "bus" / "pci" / "devices" / pci
    (folder / "power").mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")
    (folder / "power" / "control").write_text(f"{control}\n")
    (folder / "power" / "runtime_status").write_text(f"{status}\n")


def test_the_kernel_is_read_as_it_writes(tmp_path: Path) -> None:
    card(tmp_path, "0000:41:00.0", control="auto", status="suspended")
    card(tmp_path, "0000:01:00.0", kind="0x030000", control="auto", status="active")
    card(tmp_path, "0000:02:00.0", control="on", status="active")
    card(tmp_path, "0000:01:00.1", kind="0x040300", control="auto", status="suspended")  # its sound
    card(tmp_path, "0000:00:02.0", vendor="0x8086", kind="0x030000", control="auto", status="suspended")
    power = RuntimePm(tmp_path)
    assert power.gpus() == ["0000:01:00.0", "0000:02:00.0", "0000:41:00.0"]
    assert [power.managed(pci) for pci in power.gpus()] == [True, False, True]
    assert [power.asleep(pci) for pci in power.gpus()] == [False, False, True]
    assert not power.managed("")
    assert not power.asleep("0000:ff:00.0")
    assert RuntimePm(tmp_path / "nothing").gpus() == []


def calls_left(machine: SimMachine) -> int | None:
    (fault,) = machine.faults()
    return fault.calls_left


def test_a_gpu_that_falls_asleep_is_left_alone_until_it_wakes(
    sim_machine: Open, start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x8GiB")
    machine.set_asleep(0, False)  # the kernel may put it to sleep
    feed = start_feed(machine, 0.2)
    name = wait_for_sample(feed, lambda s: s.devices[0].state == "ok").devices[0].name
    machine.set_asleep(0, True)
    slept = wait_for_sample(feed, lambda s: s.devices[0].state == "asleep")
    machine.inject("*", device=0, count=1_000_000)
    time.sleep(6)  # longer than it takes to look whether the list of devices changed
    assert calls_left(machine) == 1_000_000, "not one call that would wake it"
    asleep, other = slept.devices
    assert (asleep.name, asleep.readings["identity.architecture"]) == (name, "Ampere")
    assert "memory.used_bytes" not in asleep.readings
    assert "wake" in asleep.missing["memory.used_bytes"].detail
    assert other.readings["memory.used_bytes"] == 0
    machine.set_asleep(0, False)
    awake = wait_for_sample(feed, lambda s: s.devices[0].state == "ok")
    assert awake.devices[0].readings["memory.used_bytes"] == 0


def test_a_gpu_that_sleeps_from_the_start_is_described_when_it_wakes(
    sim_machine: Open, start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x8GiB")
    uuids = [device.uuid for device in machine.devices()]
    machine.set_asleep(1, True)
    machine.inject("*", device=1, count=1_000_000)
    feed = start_feed(machine, 0.2)
    first, sleeping = wait_for_sample(feed, lambda s: len(s.devices) == 2).devices
    assert (first.uuid, first.state) == (uuids[0], "ok")
    assert (sleeping.state, sleeping.pci_bus_id) == ("asleep", "0000:02:00.0")
    assert calls_left(machine) == 1_000_000
    machine.clear_faults()
    machine.set_asleep(1, False)
    assert wait_for_sample(feed, lambda s: s.devices[1].state == "ok").devices[1].uuid == uuids[1]

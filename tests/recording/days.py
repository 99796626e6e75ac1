"""Machines at work, second by second, with values as drivers report them."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from gpuwatch.core.model.metrics import METRICS, Lane, Unit
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from tests.ui import machines

NOON = machines.NOON
Readings = Literal["usual", "all", "gpm"]
"""Which metrics the GPUs have: about 30, about 90, or these and those of GPM."""


def day(
    gpus: int,
    processes: int,
    samples: int,
    *,
    begin: datetime.datetime = NOON,
    seed: int = 1,
    apart: float = 1.0,
    readings: Readings = "usual",
) -> Iterator[Snapshot]:
    """Samples of a machine on which every GPU trains: load, power, clocks and rates move every second.

    ``readings``: ``all`` metrics that are read without being asked for, those that move on a busy GPU moving too; with
    those of ``gpm``, which move every second.
    """
    noise = random.Random(seed)
    first = machines.many(gpus, processes)
    devices, rows = list(first.devices), list(first.processes)
    if readings != "usual":
        rest: dict[str, Value] = {
            one.id: "no" if one.unit is Unit.NAME else 3
            for one in METRICS
            if one.lane is not Lane.GPM or readings == "gpm"
        }
        devices = [replace(one, readings=rest | one.readings) for one in devices]
    load = [noise.uniform(40, 95) for _ in devices]
    warm = [50.0 for _ in devices]
    energy = [noise.randrange(10**9) for _ in devices]
    busy = Counter(row.device_uuid for row in rows if _is_busy(row))
    holders = Counter(row.device_uuid for row in rows)
    rooms = {
        one.uuid: int(one.readings["memory.total_bytes"]) * 9 // 10 // max(holders[one.uuid], 1) for one in devices
    }
    for tick in range(samples):
        for place, device in enumerate(devices):
            load[place] = min(max(load[place] + noise.gauss(0, 6), 0), 100)
            watts = 95_000 + int(load[place] * 5400) + noise.randrange(8000)
            warm[place] += (34 + load[place] * 0.4 - warm[place]) / 30
            energy[place] += watts
            moved: dict[str, Value] = {
                "utilization.gpu_percent": round(load[place]),
                "utilization.memory_percent": round(load[place] * 0.6),
                "temperature.gpu_celsius": round(warm[place]),
                "temperature.memory_celsius": round(warm[place] + 6),
                "power.draw_watts": watts * 1e-3,
                "clocks.sm_mhz": 1980 - 15 * noise.choice((0, 0, 0, 1, 2)),
                "events.power_percent": 0.0,
            }
            if tick % 5 == 0:  # the slow lane
                for name, most in (
                    ("pcie.tx_bytes_per_second", 3e8),
                    ("pcie.rx_bytes_per_second", 1.2e9),
                    ("nvlink.tx_bytes_per_second", 1e11),
                    ("nvlink.rx_bytes_per_second", 1e11),
                ):
                    moved[name] = noise.random() * most
                moved["energy_joules"] = energy[place] * 1e-3
            if readings != "usual" and tick % 5 == 0:
                moved |= _slow(device, moved, noise)
            if readings == "gpm":
                moved |= {one.id: noise.random() * load[place] for one in METRICS if one.lane is Lane.GPM}
            devices[place] = _moved(device, moved)
        # The processes of a GPU share its time and its memory.
        shares = {device.uuid: load[place] / max(busy[device.uuid], 1) for place, device in enumerate(devices)}
        for place, row in enumerate(rows):
            rows[place] = _worked(
                row, shares.get(row.device_uuid or "", 0.0), rooms.get(row.device_uuid or "", 0), tick, noise
            )
        if tick % 900 == 0:
            devices = [_filled(device, rows) for device in devices]
        host = replace(
            first.host,
            cpu_percent=round(noise.uniform(20, 40), 1),
            memory_used_bytes=200 * machines.GIB + 4096 * noise.randrange(10**6),
            load=(round(noise.uniform(8, 12), 2), 9.5, 9.1),
            uptime_seconds=round(8e5 + tick * apart, 2),
        )
        yield replace(
            first,
            taken_at=begin + datetime.timedelta(seconds=tick * apart, microseconds=noise.randrange(3000)),
            took_seconds=0.01 + noise.random() * 0.01,
            devices=tuple(devices),
            processes=tuple(rows),
            host=host,
        )


def _slow(device: Device, moved: dict[str, Value], noise: random.Random) -> dict[str, Value]:
    """What else of the slow lane moves on a busy GPU: counters of traffic, power, clocks, time in each clock limit."""
    watts, clock = float(moved["power.draw_watts"]), int(moved["clocks.sm_mhz"])
    slow: dict[str, Value] = {
        "power.instant_watts": watts + noise.randrange(-4000, 4000) * 1e-3,
        "power.average_watts": watts + noise.randrange(-900, 900) * 1e-3,
        "clocks.graphics_mhz": clock,
        "clocks.video_mhz": clock * 3 // 4,
        "temperature.margin_celsius": 85 - int(moved["temperature.gpu_celsius"]),
    }
    for name, most in (
        ("nvlink.tx_bytes", 5e11),
        ("nvlink.rx_bytes", 5e11),
    ):
        slow[name] = int(device.readings[name]) + int(noise.random() * most)
    slow["events.power_seconds"] = float(device.readings["events.power_seconds"]) + noise.randrange(100) * 1e-3
    return slow


def _filled(device: Device, rows: list[Process]) -> Device:
    """The device with the memory of its processes in use, and some of the driver's."""
    held = sum(int(row.readings["gpu_memory_bytes"]) for row in rows if row.device_uuid == device.uuid)
    used = held + 600 * 2**20
    return _moved(
        device, {"memory.used_bytes": used, "memory.free_bytes": int(device.readings["memory.total_bytes"]) - used}
    )


def _moved(device: Device, moved: dict[str, Value]) -> Device:
    return replace(device, readings=device.readings | moved)


def _is_busy(row: Process) -> bool:
    """The others hold memory and wait."""
    return row.pid % 3 != 0


def _worked(row: Process, load: float, room: int, tick: int, noise: random.Random) -> Process:
    """``load``, in percent, and ``room``, in bytes: its share of its GPU."""
    moved: dict[str, Value] = {}
    if _is_busy(row):
        moved["sm_percent"] = int(load * max(1 - abs(noise.gauss(0, 3)) / 100, 0))
        moved["memory_percent"] = int(load * 0.6)
        moved["cpu_percent"] = (100 + noise.randrange(-3, 4)) / (1 + noise.random() * 1e-3)  # ticks of 10 ms
        if noise.random() < 0.1:
            moved["host_memory_bytes"] = 3 * machines.GIB + 4096 * noise.randrange(20_000)
    elif noise.random() < 0.02:
        moved["cpu_percent"] = 1 / (1 + noise.random() * 1e-3)
    elif row.readings.get("cpu_percent"):
        moved["cpu_percent"] = 0.0
    if tick % 900 == 0:
        moved["gpu_memory_bytes"] = min(noise.randrange(500, 60_000) * 2**20, room)
    return replace(row, readings=row.readings | moved) if moved else row

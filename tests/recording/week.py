"""A made-up week of three GPUs, a sample every five minutes, of which the GPU time can be worked out by hand.

Hours count from the begin. A process is in the samples from its begin to its end, both included.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from tests.ui import machines

BEGIN = datetime.datetime(2026, 5, 11, tzinfo=datetime.UTC).timestamp()
HOUR, STEP = 3600, 300
HOURS = 168
OFF = (82, 87)
"""The recorder does not run: its last sample before, its first after."""
SET_BACK = 132
"""The clock is set back by an hour."""
GIB = 2**30
NO_UTILIZATION = Missing("not_supported", code=3, detail="nvmlDeviceGetProcessUtilization: Not Supported")


class Program(NamedTuple):
    pid: int
    user: str | None
    command: str | None
    gpu: int
    begin: float
    end: float
    sm: int | None
    """None: the driver does not tell it."""
    memory: int
    framework: str | None = None
    container: str | None = None
    mig: str | None = None
    type: str = "C"


PROGRAMS = (
    Program(100, "alice", "python train.py --lr 0.1", 0, 0, 24, 80, 40, "torch 2.11.0", "slurm job 1"),
    # Two on one card.
    Program(200, "bob", "python infer.py --token=hf_verysecret", 0, 12, 18, 10, 8, "torch 2.11.0", "pod infer-0"),
    # The pid again, by somebody else, and only the utilization of the GPU is known: 50 %.
    Program(100, "carol", "python eval.py", 1, 30, 40, None, 4, "tensorflow 2.21.0", "slurm job 2"),
    # A MIG instance: no utilization at all.
    Program(300, "dave", "python tune.py", 2, 48, 58, None, 10, "torch 2.11.0", "container 4f1d4f1d4f1d", "1/0"),
    # Over the time that was not recorded.
    Program(400, "alice", "python train.py --lr 0.2", 1, 80, 90, 100, 60, "torch 2.11.0", "slurm job 3"),
    # Idle, while the clock is set back.
    Program(500, "bob", "jupyter-lab", 0, 100, 150, 0, 20, None, None),
    # A desktop, on every sample: no compute.
    Program(9, "root", "Xorg", 0, 0, 168, 0, 1, type="G"),
)
WATTS = {0: 1000, 2: 500}
"""By the energy counters. GPU 1 has none, but reports its power."""
DRAWN = 400


def samples() -> Iterator[tuple[float, Snapshot]]:
    """Seconds since the begin by a clock that is never set, and the sample."""
    first = machines.many(3, 0)
    for boot in range(0, HOURS * HOUR + 1, STEP):
        hour = boot / HOUR
        if OFF[0] < hour < OFF[1]:
            continue
        wall = BEGIN + boot - (HOUR if hour >= SET_BACK else 0)
        rows = [row for row in PROGRAMS if row.begin <= hour <= row.end]
        yield (
            boot,
            replace(
                first,
                taken_at=datetime.datetime.fromtimestamp(wall, datetime.UTC),
                devices=tuple(_device(one, rows, boot) for one in first.devices),
                processes=tuple(map(_process, rows)),
            ),
        )


def _device(device: Device, rows: list[Program], boot: int) -> Device:
    load: dict[str, Value] = {"utilization.gpu_percent": 0}
    for row in rows:
        if row.gpu == device.index and row.type == "C":
            load["utilization.gpu_percent"] = max(load["utilization.gpu_percent"], 50 if row.sm is None else row.sm)
    readings: dict[str, Value] = device.readings | load
    if device.index in WATTS:
        readings["energy_joules"] = 1e6 + WATTS[device.index] * boot
    else:
        del readings["energy_joules"]
        readings["power.draw_watts"] = DRAWN
    if device.index == 2:  # divided by MIG
        del readings["utilization.gpu_percent"]
    return replace(device, readings=readings)


def _process(row: Program) -> Process:
    readings: dict[str, Value] = {"gpu_memory_bytes": row.memory * GIB}
    missing = {}
    if row.sm is None:
        missing["sm_percent"] = NO_UTILIZATION
    else:
        readings["sm_percent"] = row.sm
    return Process(
        pid=row.pid, create_time=BEGIN + row.begin * HOUR, user=row.user, command=row.command, type=row.type,
        device_uuid=machines.uuid(row.gpu), device_index=row.gpu, mig_instance=row.mig, framework=row.framework,
        container=row.container, readings=readings, missing=missing,
    )  # fmt: skip


def record(path: Path) -> None:
    """Records the week, by two runs of the recorder."""
    now = [0.0, BEGIN]
    clock = Clock(lambda: now[1], lambda: now[0] + 1000, lambda: now[0] + 1000, lambda: "boot")
    writer: RecordingWriter | None = None
    for boot, snapshot in samples():
        now[:] = boot, snapshot.taken_at.timestamp()
        if boot == OFF[1] * HOUR and writer is not None:
            writer.close("by a test")
            writer = None
        writer = writer or RecordingWriter(path, interval=STEP, seal_seconds=HOUR, clock=clock, hostname="node07")
        writer.add(snapshot)
    assert writer is not None
    writer.close("by a test")

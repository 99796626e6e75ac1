"""A made-up incident: the power limit is lowered, a program starts, and GPU 1 is throttled; a gap before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from gpuwatch.session.current_findings import recorded_and_current_findings
from tests.recording.days import NOON, day
from tests.ui import machines

APART = 10.0
"""Seconds between samples."""
BEGIN = NOON.timestamp()
SAMPLES = 540
"""An hour and a half."""
OFF = (120, 180)
"""Samples that are missing."""
LIMITED, STARTED, HOT, COOL = 300, 330, 360, 420
"""Samples from which on the power limit is lower, the program runs, GPU 1 is throttled, and no more."""
NEW = 2210 + 37
"""Pid of the program that starts, on GPU 1."""


def samples() -> Iterator[Snapshot]:
    for number, shot in enumerate(day(2, 4, SAMPLES, apart=APART)):
        if OFF[0] <= number < OFF[1]:
            continue
        devices = [replace(one, readings=one.readings | {"utilization.gpu_percent": 60}) for one in shot.devices]
        if number >= LIMITED:
            devices[1] = replace(devices[1], readings=devices[1].readings | {"power.limit_watts": 500.0})
        if HOT <= number < COOL:
            hot = {"clocks.sm_mhz": 1005, "temperature.gpu_celsius": 91, "clocks.event_reasons": "sw-thermal"}
            devices[1] = replace(devices[1], readings=devices[1].readings | hot | {"events.thermal_percent": 80.0})
        # Two on each GPU: together they have no more than it.
        steady: dict[str, Value] = {"cpu_percent": 1.0, "sm_percent": 28}
        rows = [replace(row, readings=row.readings | steady) for row in shot.processes]
        rows = [row for row in rows if row.pid != NEW or number >= STARTED]
        yield replace(shot, devices=tuple(devices), processes=tuple(rows))


def record(path: Path) -> None:
    now = [BEGIN]
    clock = Clock(lambda: now[0], lambda: now[0] - 1e9, lambda: now[0] - 1e9, lambda: "boot")
    writer = RecordingWriter(path, interval=APART, seal_seconds=600, clock=clock, hostname="node07")
    conditions = ConditionEngine()
    for shot in samples():
        now[0] = shot.taken_at.timestamp()
        events = conditions.observe(shot)
        writer.add(shot, recorded_and_current_findings(shot.findings, conditions), events)
    writer.close("by a test")


def uuid(index: int) -> str:
    return machines.uuid(index)

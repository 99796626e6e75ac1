"""Recordings made in an instant: the samples come from a list, the clocks go with them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from gpuwatch.session.current_findings import recorded_and_current_findings
from tests.recording.days import NOON, day
from tests.waiting import wait_for

BEGIN = NOON.timestamp()


class Growing:
    """A file and its writer, which judges what it records as ``gpuwatch record`` does."""

    def __init__(self, path: Path, *, interval: float = 1.0, seal_seconds: float = 60.0, begin: float = BEGIN) -> None:
        self.now = begin
        clock = Clock(lambda: self.now, lambda: self.now, lambda: self.now, lambda: "boot")
        self.path = path
        self.writer = RecordingWriter(
            path, interval=interval, seal_seconds=seal_seconds, clock=clock, hostname="node07", max_age=3650 * 86_400.0
        )
        self.conditions = ConditionEngine()

    def add(self, *snapshots: Snapshot) -> None:
        for snapshot in snapshots:
            self.now = snapshot.taken_at.timestamp()
            events = self.conditions.observe(snapshot)
            self.writer.add(snapshot, recorded_and_current_findings(snapshot.findings, self.conditions), events)

    def end(self, why: str = "by SIGINT") -> None:
        self.writer.close(why)


def recorded(path: Path, snapshots: Iterable[Snapshot], **options: float) -> Path:
    """A whole recording of these samples."""
    growing = Growing(path, **options)
    growing.add(*snapshots)
    growing.end()
    return path


def later(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The sample, taken later."""
    return replace(snapshot, taken_at=snapshot.taken_at + datetime.timedelta(seconds=seconds))


def troubled(samples: int = 400) -> list[Snapshot]:
    """A GPU that is throttled by heat for two minutes, one that falls off the bus, processes that exit."""
    shots = []
    for tick, shot in enumerate(day(2, 4, samples)):
        devices = list(shot.devices)
        if 60 <= tick < 180:
            hot = {"clocks.event_reasons": "hw-thermal", "temperature.gpu_celsius": 91, "clocks.sm_mhz": 700}
            devices[0] = replace(devices[0], readings=devices[0].readings | hot)
        if tick >= 240:
            devices[1] = replace(devices[1], state="lost", readings={}, missing={})
        if tick >= 300:
            shot = replace(shot, processes=shot.processes[:1])
        shots.append(replace(shot, devices=tuple(devices)))
    return shots


def with_gap(samples: int = 120, at: int = 60, seconds: float = 3600.0) -> list[Snapshot]:
    """A machine at work; from sample ``at`` on so many seconds later."""
    return [later(shot, seconds if place >= at else 0.0) for place, shot in enumerate(day(1, 2, samples))]


def recorded_samples(path: Path) -> int:
    """Samples of a recording that is being written, 0 before one can be read."""
    with suppress(Exception), Recording(path) as recording:
        return recording.samples
    return 0


def wait_for_samples(path: Path, count: int) -> None:
    """Until a recording has so many samples."""
    wait_for(lambda: recorded_samples(path) >= count, f"{count} samples in {path.name}", pause=0.1)

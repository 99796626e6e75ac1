"""A recording of ten minutes with everything in it: gaps, missing values, a lost GPU, events, findings."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from tests.recording.days import NOON, day

SECRET = "hf_" + "QmVqZzTxWnLkRsYpBdGhJcKfAeDuMiNoPt"
START = NOON.timestamp()
HOT = Finding(
    id="throttle.thermal", severity="warning", certainty="fact", title="GPU 0 is throttled",
    since=NOON + datetime.timedelta(seconds=50),
    evidence=('91 °C, "hot"',), action="Cool it.",
)  # fmt: skip
LOST = Missing("device_lost", code=15)


def samples(count: int = 600) -> Iterator[tuple[Snapshot, tuple[Finding, ...], list[MachineEvent]]]:
    """Two GPUs and six processes: 100 s without samples after 200, GPU 1 lost after 400, one process ends after 300."""
    ended = NOON
    for tick, shot in enumerate(day(2, 6, count)):
        if 200 <= tick < 300:
            continue
        devices = list(shot.devices)
        if tick >= 400:
            lost = devices[1]
            devices[1] = replace(lost, state="lost", readings={}, missing=dict.fromkeys(lost.readings, LOST))
        if tick % 7 == 3:  # a value that is missing now and then
            kept = {name: value for name, value in devices[0].readings.items() if name != "power.draw_watts"}
            devices[0] = replace(devices[0], readings=kept)
        ended = ended if tick > 149 else shot.taken_at
        rows = [replace(shot.processes[0], command=f"python train.py --token {SECRET}"), *shot.processes[1:]]
        rows = rows if tick < 300 else rows[:-1]
        hot = replace(HOT, device_uuid=devices[0].uuid)
        events = [
            MachineEvent(at=shot.taken_at.timestamp(), kind="throttle.began", text="GPU 0 is throttled",
                         severity="warning", device_uuid=devices[0].uuid, cause="throttle.thermal", occurrence=1)
        ] if tick == 50 else []  # fmt: skip
        yield (
            replace(shot, devices=tuple(devices), processes=tuple(rows)),
            (hot,) if 50 <= tick < 150 else (replace(hot, until=ended),) if tick >= 150 else (),
            events,
        )


def record(path: Path, count: int = 600) -> None:
    """Writes it."""
    now = [START]
    clock = Clock(lambda: now[0], lambda: now[0] - START + 1000.0, lambda: now[0] - START + 900.0, lambda: "boot-1")
    writer = RecordingWriter(path, clock=clock, hostname="node07")
    for snapshot, findings, events in samples(count):
        now[0] = snapshot.taken_at.timestamp()
        writer.add(snapshot, findings, events)
    writer.close("by SIGINT")


def moment(at: float) -> str:
    """As the command line takes it."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()

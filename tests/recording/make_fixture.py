"""Writes ``tests/fixtures/recording-SCHEMA.gpuwatch``: ``python -m tests.recording.make_fixture``.

Run it once, when the schema gets a new number. The files of older schemas stay as they are: they have to open forever.
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.recording.recording_database import SCHEMA
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from tests.recording.days import NOON, day

FOLDER = Path(__file__).resolve().parents[1] / "fixtures"
HOT = Finding(id="throttle.thermal", severity="warning", certainty="fact", title="GPU 0 is throttled", since=NOON)


def main() -> None:
    path = FOLDER / f"recording-{SCHEMA}.gpuwatch"
    now = [NOON.timestamp()]
    clock = Clock(lambda: now[0], lambda: now[0] - 1e9, lambda: now[0] - 1e9, lambda: "boot")
    writer = RecordingWriter(path, clock=clock, hostname="node")
    for number, shot in enumerate(day(2, 3, 90)):
        now[0] = shot.taken_at.timestamp()
        hot = () if number < 20 else (HOT,) if number < 50 else (replace(HOT, until=shot.taken_at),)
        event = MachineEvent(at=now[0], kind="throttle.began", text="GPU 0 is throttled", severity="warning")
        writer.add(shot, hot, [event] if number == 20 else ())
    writer.close("by SIGINT")


if __name__ == "__main__":
    main()

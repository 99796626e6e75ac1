"""What the front ends keep, in this process: fed with samples in which processes, users and GPUs never come again.

The front ends as users start them, with their collectors: :mod:`tests.safety.soak`.
"""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.fleet.fleet_summary import FleetSummary, summarize_fleet
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.session.process_history import Identity, process_identity
from gpuwatch.session.recorder import Recorder
from gpuwatch.session.session import Session
from gpuwatch.share.assistant.long_lived_collector import LongLivedCollector
from gpuwatch.share.exporter.metric_series import ExporterOptions
from gpuwatch.share.exporter.metrics_page import PageUpdater
from tests.ui import machines
from tests.ui.feed import FakeFeed

NEW, LIVES = 16, 3
"""Processes that are new in each sample, and the samples in which each is."""
Take = Callable[[Snapshot], None]


def dashboard() -> Take:
    """What the dashboard knows of its machine; nothing is drawn."""
    feed = FakeFeed()
    now = [0.0]
    chosen: list[Identity] = [(0, None)]
    session = Session(feed, clock=lambda: now[0])
    session.diagnose()

    def take(sample: Snapshot) -> None:
        now[0] = sample.taken_at.timestamp()
        feed.push(sample)
        session.take()
        session.view()
        session.position()
        if not now[0] % 30:  # another process is opened
            chosen[0] = process_identity(sample.processes[-1])
        session.process_history(chosen[0])

    return take


def recorder(folder: Path) -> Take:
    """A recording that may have 64 MB."""
    feed = FakeFeed()
    now = [0.0]
    writer = RecordingWriter(folder / "soak.gpuwatch", max_bytes=64 << 20, seal_seconds=600)
    recording = Recorder(feed, writer, clock=lambda: now[0])

    def take(sample: Snapshot) -> None:
        now[0] = sample.taken_at.timestamp()
        feed.push(sample)
        recording._record_arrived()

    return take


def exporter() -> Take:
    """The exporter's page, made for each sample."""
    feed = FakeFeed()
    now = [0.0]
    updater = PageUpdater(feed, ExporterOptions("node7", 5.0), clock=lambda: now[0], monotonic=lambda: now[0])

    def take(sample: Snapshot) -> None:
        now[0] = sample.taken_at.timestamp()
        feed.push(sample)
        updater.update()
        updater.page.body("plain")

    return take


def fleet() -> Take:
    """Four hosts that send this as a line, each with a summary."""
    summary: FleetSummary | None = None

    def take(sample: Snapshot) -> None:
        nonlocal summary
        line = to_json(sample, indent=0).encode()
        found = from_json(line)
        assert isinstance(found, Snapshot)
        hosts = tuple(HostView(name=f"node{number}", snapshot=found) for number in range(4))
        summary = summarize_fleet(Fleet(taken_at=sample.taken_at.timestamp(), source="ssh", hosts=hosts), summary)

    return take


def mcp() -> Take:
    """The machine that an assistant asks about, with the answer to a question."""
    feed = FakeFeed()
    machine = LongLivedCollector()
    machine._feed, machine._conditions = feed, ConditionEngine()  # type: ignore[assignment]

    def take(sample: Snapshot) -> None:
        feed.push(sample)
        machine._receive()
        assert machine.newest is not None
        to_json(machine.newest)

    return take


FRONT_ENDS: dict[str, Callable[[], Take]] = {
    "dashboard": dashboard,
    "recorder": lambda: recorder(Path(tempfile.mkdtemp(prefix="gpuwatch-soak-"))),
    "exporter": exporter,
    "fleet": fleet,
    "mcp": mcp,
}


def samples(count: int, *, apart: float = 12.0, gpus_for: int = 0) -> Iterator[Snapshot]:
    """Samples of two GPUs, so many seconds apart; after each ``gpus_for`` samples there are two other GPUs."""
    for tick in range(count):
        base = machines.many(2, 4, tick=tick)
        taken = machines.NOON + datetime.timedelta(seconds=apart * tick)
        began = taken.timestamp()
        age = tick // gpus_for if gpus_for else 0
        uuids = {device.uuid: f"{device.uuid[:-8]}{age:08x}" for device in base.devices}
        xids = (Xid(at=began, code=13),) if tick % 5 else ()
        devices = (replace(device, uuid=uuids[device.uuid], xids=xids) for device in base.devices)
        rows = [
            replace(
                base.processes[number % 4],
                pid=10_000 + at * NEW + number,
                create_time=machines.NOON.timestamp() + apart * at,
                device_uuid=tuple(uuids.values())[number % 2],
                device_map=(),
                user=f"user{at * NEW + number}",
                command=f"python train.py --run {at * NEW + number}",
            )
            for at in range(max(tick - LIVES + 1, 0), tick + 1)
            for number in range(NEW)
        ]
        yield replace(base, taken_at=taken, devices=tuple(devices), processes=tuple(rows))

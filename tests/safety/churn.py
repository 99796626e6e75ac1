"""An hour of processes that come and go, as fast as a front end takes the samples: what it then holds, in JSON lines.

    python -m tests.safety.soak exporter --samples 3600

Each sample has 28 processes that were not in the one before, each of which lives for three: 100,000 in 3,600 samples.
The first part fills what is kept (an hour of samples, the latest events); what is measured comes after it. CPU is in
units of a fixed piece of work that is done between the samples, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.core.model.codec import from_json, to_json
from gpuwatch.core.model.fleet import Fleet, HostView
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import Conditions
from gpuwatch.fleet.summary import Summaries
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.session.process_history import Identity, identity
from gpuwatch.session.recorder import Recorder
from gpuwatch.session.session import Session
from gpuwatch.share.assistant.kept_collector import Machine
from gpuwatch.share.exporter.publisher import Publisher
from gpuwatch.share.exporter.series import Options
from tests.ui import machines
from tests.ui.feed import FakeFeed

NEW, LIVES = 28, 3
"""Processes that are new in each sample, and the samples in which each is."""
PARTS = 12
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
            chosen[0] = identity(sample.processes[-1])
        session.process_history(chosen[0])

    return take


def recorder(folder: Path) -> Take:
    """A recording that may have 64 MB."""
    feed = FakeFeed()
    now = [0.0]
    writer = RecordingWriter(folder / "soak.gpuwatch", max_bytes=64 << 20)
    recording = Recorder(feed, writer, clock=lambda: now[0])

    def take(sample: Snapshot) -> None:
        now[0] = sample.taken_at.timestamp()
        feed.push(sample)
        recording._take()

    return take


def exporter() -> Take:
    """The exporter's page, made for each sample."""
    feed = FakeFeed()
    now = [0.0]
    publisher = Publisher(feed, Options("node7"), clock=lambda: now[0], monotonic=lambda: now[0])

    def take(sample: Snapshot) -> None:
        now[0] = sample.taken_at.timestamp()
        feed.push(sample)
        publisher.look()
        publisher.page.body("plain")

    return take


def fleet() -> Take:
    """Four hosts that send this as a line, each with a summary."""
    summaries = Summaries()

    def take(sample: Snapshot) -> None:
        line = to_json(sample, indent=0).encode()
        found = from_json(line)
        assert isinstance(found, Snapshot)
        hosts = tuple(HostView(name=f"node{number}", snapshot=found) for number in range(4))
        summaries.of(Fleet(taken_at=sample.taken_at.timestamp(), source="ssh", hosts=hosts))

    return take


def mcp() -> Take:
    """The machine that an assistant asks about, with the answer to a question."""
    feed = FakeFeed()
    machine = Machine()
    machine._feed, machine._conditions = feed, Conditions()  # type: ignore[assignment]

    def take(sample: Snapshot) -> None:
        feed.push(sample)
        machine._take()
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


def samples(count: int) -> Iterator[Snapshot]:
    """Samples of two GPUs, a second apart."""
    began = machines.NOON.timestamp()
    for tick in range(count):
        base = machines.many(2, 4, tick=tick)
        row = base.processes[0]
        first = max(tick - LIVES + 1, 0)
        rows = [
            replace(
                row,
                pid=10_000 + at * NEW + number,
                create_time=began + at,
                user=f"user{number % 5}",
            )
            for at in range(first, tick + 1)
            for number in range(NEW)
        ]
        taken = machines.NOON + datetime.timedelta(seconds=tick)
        yield replace(base, taken_at=taken, processes=(*base.processes, *rows))


def held() -> tuple[float, int]:
    """MiB of memory, and open descriptors."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20), len(os.listdir("/proc/self/fd"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("front_end", choices=FRONT_ENDS)
    parser.add_argument("--samples", type=int, default=3600)
    parser.add_argument("--before", type=int, default=3600, help="samples that come before those measured")
    options = parser.parse_args()
    take = FRONT_ENDS[options.front_end]()
    work = to_json(machines.many(2, 40), indent=0).encode()
    every, spent, unit = options.samples // PARTS, 0.0, 0.0
    for number, sample in enumerate(samples(options.before + options.samples), 1 - options.before):
        spent += cpu_seconds(lambda one=sample: take(one))  # type: ignore[misc]
        unit += cpu_seconds(lambda: from_json(work))
        if number >= 0 and number % every == 0:
            memory, descriptors = held()
            if number > 0:
                figures = {"cpu": round(spent / unit, 3), "milliseconds": round(1000 * spent / every, 2)}
                print(json.dumps({"memory": round(memory, 1), "descriptors": descriptors, **figures}), flush=True)
            spent = unit = 0.0


def cpu_seconds(run: Callable[[], object]) -> float:
    """Of this process's own time."""
    began = time.process_time()
    run()
    return time.process_time() - began


if __name__ == "__main__":
    main()

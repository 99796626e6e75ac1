"""What a recording costs: ``python -m tests.benchmarks.recording``. Prints figures, tests nothing.

* ``day``: 24 hours of 8 GPUs and 50 processes in seconds of work: bytes a day, a stored value, a changed value
* ``month``: 30 days, made of the sealed minutes of one day with shifted clocks: to open, to jump in, to replay
* ``cpu``: 8 GPUs and 200 processes at 1 Hz: CPU of the writer for ten minutes of samples
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.recording import gpu_time_and_energy
from gpuwatch.machine.recording.database_cells import checksum, pack_times, unpack_times
from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
from gpuwatch.machine.recording.reader import Recording, open_recording
from gpuwatch.machine.recording.writer import Clock, RecordingWriter
from gpuwatch.session.session import replay_session
from tests.benchmarks.history_hour import noisy
from tests.recording.days import NOON, Readings, day

DAY = 86_400


class Pace:
    """Clocks that go with the samples."""

    def __init__(self) -> None:
        self.now = NOON.timestamp()

    def clock(self) -> Clock:
        return Clock(lambda: self.now, lambda: self.now - 1e9, lambda: self.now - 1e9, lambda: "boot")


def readings(snapshot: Snapshot) -> list[object]:
    return [value for row in (*snapshot.devices, *snapshot.processes) for value in row.readings.values()]


def write_day(path: Path, samples: int, kind: Readings) -> tuple[int, int]:
    """The number of stored and of changed values."""
    pace, values, changed, before, snapshot = Pace(), 0, 0, list[object](), None
    writer = RecordingWriter(path, clock=pace.clock(), max_bytes=1 << 40)
    began, spent = time.process_time(), 0.0
    for snapshot in day(8, 50, samples, readings=kind):
        pace.now = snapshot.taken_at.timestamp()
        now = readings(snapshot)
        values += len(now)
        changed += sum(a != b for a, b in zip(now, before, strict=True)) if before else len(now)
        before = now
        start = time.process_time()
        writer.add(snapshot)
        spent += time.process_time() - start
    writer.close()
    assert snapshot is not None
    print(f"  {len(snapshot.devices[0].readings)} readings of each of {len(snapshot.devices)} GPUs")
    print(f"  {samples} samples written in {spent:.1f} s of CPU ({time.process_time() - began:.1f} s with making them)")
    return values, changed


def sizes(path: Path) -> None:
    with sqlite3.connect(path) as db:
        for table, column in (
            ("data", "block"),
            ("minutes", "times"),
            ("tiers", "block"),
            ("processes", "life"),
            ("gpu_time", "block"),
        ):
            count, total = db.execute(f"SELECT count(*), sum(length({column})) FROM {table}").fetchone()
            print(f"    {table}: {count} rows, {total / 1e6:.2f} MB")


def make_month(path: Path, days: int) -> None:
    """Repeats the minutes of the first day: their blocks as they are, their times shifted."""
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT id, run, begin, end, boot, samples, times FROM minutes").fetchall()
        count = len(rows)
        hours = db.execute("SELECT begin, block FROM gpu_time").fetchall()
        known = {begin: [gpu_time_and_energy.unpack_gpu_time(block)] for begin, block in hours}
        for number in range(1, days):
            for place, run, begin, end, boot, samples, times in rows:
                by = number * DAY
                shifted = pack_times([at + by for at in unpack_times(times)])
                entry = (run, begin + by, end + by, boot + by, samples)
                row = (place + number * count, *entry, shifted, checksum(*entry))
                db.execute("INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            db.execute("INSERT INTO data SELECT id + ?, block FROM data WHERE id <= ?", (number * count, count))
            for begin, block in hours:
                time = gpu_time_and_energy.merged_times(
                    [*known.get(begin + by, ()), gpu_time_and_energy.unpack_gpu_time(block)]
                )
                known[begin + by] = [time]
                db.execute(
                    "INSERT OR REPLACE INTO gpu_time VALUES (?, ?)",
                    (begin + by, gpu_time_and_energy.pack_gpu_time(time)),
                )


def look_into(path: Path) -> None:
    began = time.perf_counter()
    recording = Recording(path)
    print(f"  opened in {(time.perf_counter() - began) * 1e3:.0f} ms: {recording.samples} samples")
    noise, taken = random.Random(2), []
    assert recording.begin is not None
    assert recording.end is not None
    for _ in range(50):
        moment = noise.uniform(recording.begin, recording.end)
        began = time.perf_counter()
        assert recording.at(moment) is not None
        taken.append((time.perf_counter() - began) * 1e3)
    taken.sort()
    print(f"  jump: median {taken[25]:.1f} ms, longest {taken[-1]:.1f} ms")
    began = time.perf_counter()
    minutes = (
        sum(
            len(times)
            for times, _ in recording.numbers(recording.end - 3600, recording.end, frozenset({"power.draw_watts"}))
        )
        / 60
    )
    print(f"  one metric: {(time.perf_counter() - began) * 1e3 / minutes:.1f} ms a minute")
    began = time.perf_counter()
    minutes = sum(1 for _ in recording.snapshots(recording.end - 3600)) / 60
    print(f"  whole samples: {(time.perf_counter() - began) * 1e3 / minutes:.1f} ms a minute")
    began = time.perf_counter()
    recording.history(recording.end, 600, frozenset({"power.draw_watts", "utilization.gpu_percent"}))
    print(f"  graphs of ten minutes: {(time.perf_counter() - began) * 1e3:.0f} ms")
    began = time.perf_counter()
    points = recording.summaries(60, recording.begin, recording.end, frozenset({"power.draw_watts"}))
    print(f"  {len(points)} means of one metric: {(time.perf_counter() - began) * 1e3:.0f} ms")
    for days in (1, 7, 30):
        began = time.perf_counter()
        hours = gpu_usage(
            recording, max(recording.end - days * DAY + 100, recording.begin), None, "user"
        ).total.gpu_hours_held
        print(f"  usage of {days} days: {(time.perf_counter() - began) * 1e3:.0f} ms, {hours:.1f} GPU-hours held")
    recording.close()


def play(path: Path) -> None:
    """Jumps as ``gpuwatch replay`` does them, with graphs and findings, without drawing."""
    began = time.process_time()
    recording = open_recording(path)
    feed = RecordingPlayer(recording)
    session = replay_session(feed)
    session.pause()
    print(f"  replay: opened in {(time.process_time() - began) * 1e3:.0f} ms of CPU")
    noise = random.Random(3)
    moves: dict[str, Callable[[], object]] = {
        "jump": lambda: session.pause().go(noise.uniform(*recording.extent())),
        "step": lambda: session.pause().step(1),
        "minute": lambda: session.pause().jump(60),
    }
    for name, move in moves.items():
        taken = []
        for _ in range(50):
            began = time.process_time()
            move()
            session.view()
            taken.append((time.process_time() - began) * 1e3)
        taken.sort()
        print(f"  replay, {name}: median {taken[25]:.0f} ms of CPU, longest {taken[-1]:.0f} ms")
    feed.stop()
    recording.close()


def cpu(samples: int) -> None:
    """The worst: every number of every row changes in every sample."""
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Snapshot).decode
    noise, pace, spent = random.Random(1), Pace(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for name, machine in (("every number", None), ("at work", day(8, 200, samples))):
            writer = RecordingWriter(Path(folder) / f"{name}.gpuwatch", clock=pace.clock())
            spent = 0.0
            for tick in range(samples):
                snapshot = decode(encode(noisy(tick, noise) if machine is None else next(machine)))
                pace.now = snapshot.taken_at.timestamp()
                begun = time.process_time()
                writer.add(snapshot)
                spent += time.process_time() - begun
            writer.close()
            size = (Path(folder) / f"{name}.gpuwatch").stat().st_size
            print(f"  {name} moves: {spent / samples * 100:.2f} % of a core at 1 Hz, {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=DAY, help="of the day")
    parser.add_argument("--days", type=int, default=30, help="of the month; 0: none")
    parser.add_argument("--readings", choices=get_args(Readings), default="usual", help="which metrics the GPUs answer")
    given = parser.parse_args()
    if given.readings == "usual":
        print("cpu")
        cpu(600)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.gpuwatch"
        print("day")
        values, changed = write_day(path, given.samples, given.readings)
        size = path.stat().st_size
        print(f"  {size / 1e6:.1f} MB, {size / given.samples * DAY / 1e6:.1f} MB for 24 h")
        print(f"  {size / values:.2f} B a stored value, {size / changed:.2f} B a changed value")
        sizes(path)
        if given.days:
            print("month")
            make_month(path, given.days)
            look_into(path)
            play(path)


if __name__ == "__main__":
    main()

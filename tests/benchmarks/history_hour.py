"""What an hour of kept history takes: 8 GPUs and 200 processes whose every number changes at 1 Hz.

    python -m tests.benchmarks.history_hour

Runs the dashboard without a terminal on made-up snapshots, one after another, so it takes minutes, not an
hour. Prints the memory of that process as the hour goes by, and what a jump into the past costs in CPU
time. The collector's process, which keeps nothing, is not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from pathlib import Path

import msgspec

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp
from tests.ui import machines
from tests.ui.feed import FakeFeed


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def noisy(tick: int, noise: random.Random) -> Snapshot:
    """A machine on which no number stands still: the worst that can be kept."""
    shot = machines.many(8, 200, tick=tick)
    processes = []
    for row in shot.processes:
        readings: dict[str, Value] = dict(row.readings)
        readings["cpu_percent"] = noise.random() * 150
        readings["sm_percent"] = noise.randrange(100)
        readings["memory_percent"] = noise.randrange(60)
        readings["host_memory_bytes"] = 2**30 + 4096 * noise.randrange(5000)
        processes.append(msgspec.structs.replace(row, readings=readings))
    devices = []
    for device in shot.devices:
        told: dict[str, Value] = dict(device.readings)
        for spec in METRICS:
            if spec.id not in told and spec.unit.value != "name":
                told[spec.id] = noise.random() * 1e9 if "second" in spec.id else noise.randrange(10)
        devices.append(msgspec.structs.replace(device, readings=told))
    return msgspec.structs.replace(shot, devices=tuple(devices), processes=tuple(processes))


async def run(seconds: int) -> None:
    feed, now, noise = FakeFeed(), [0.0], random.Random(1)
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Snapshot).decode
    app = GpuwatchApp(Session(feed, clock=lambda: now[0]))
    marks = {10, 60, 600, 1200, 1800, 2700, seconds - 1}
    async with app.run_test(size=(200, 60)) as pilot:
        for tick in range(seconds):
            shot = decode(encode(noisy(tick, noise)))  # as it comes from the collector
            now[0] = shot.taken_at.timestamp()
            feed.state = FeedStatus(state="ok", age_seconds=0.0)
            feed.push(shot)
            await pilot.pause()
            if tick in marks:
                gc.collect()
                timeline = app.session.timeline
                print(
                    f"{tick:5d} s: {resident_mb():5.1f} MB resident, of which the timeline "
                    f"{timeline.size_bytes / 2**20:4.2f} MB in {len(timeline.times)} samples",
                    flush=True,
                )
        for what, seconds_back in (("half an hour", -1800), ("a minute", -60)):
            begun = time.process_time()
            app.move_playhead(lambda past, back=seconds_back: past.jump(back))  # type: ignore[misc]
            await pilot.pause()
            print(f"{what} back: {(time.process_time() - begun) * 1e3:.0f} ms of CPU, drawn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3900, help="of history")
    asyncio.run(run(parser.parse_args().seconds))


if __name__ == "__main__":
    main()

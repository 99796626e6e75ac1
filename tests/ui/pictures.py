"""Pictures of the dashboard: ``python -m tests.ui.pictures OUT [MACHINE:COLSxROWS ...]`` (SVG and PNG)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.session.background_probes import ProbeRuns, RunningBatch
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp
from tests.ui import machines
from tests.ui.feed import FakeFeed, FakeHost
from tests.ui.people import details_of
from tests.ui.probe_bench import TENSORFLOW, Bench, run_of
from tests.ui.waiting import press

MACHINES: dict[str, Callable[[int], Snapshot]] = {
    "pair": machines.pair,
    "one": lambda tick: machines.many(1, 6, tick=tick),
    "eight": lambda tick: machines.many(8, 40, tick=tick),
    "eight200": lambda tick: machines.many(8, 200, tick=tick),
    "forty": lambda tick: machines.many(40, 12, tick=tick),
    "sixteen": lambda tick: machines.many(16, 60, tick=tick),
    "lively": machines.lively,
    "no_driver": machines.no_driver,
    "simulated": machines.simulated,
    "broken": machines.broken,
    "hostile": machines.hostile,
}
WANTED = [
    "pair:80x24", "pair:120x40", "pair:200x60", "one:80x24", "one:120x40", "one:250x80", "eight:80x24", "eight:120x40",
    "eight:200x60", "eight:250x80", "sixteen:80x24", "sixteen:120x40", "sixteen:200x60", "no_driver:80x24",
    "no_driver:120x40", "simulated:120x40", "broken:80x24", "broken:120x40", "hostile:120x40", "pair:20x5",
]  # fmt: skip
HISTORY = 300
SHOWN = (
    "default", "async-allocator", "fraction", "growth", "growth-env", "late-config", "limit", "cpu-only",
    "misspelt-env", "visible-env", "visible-invalid-first", "auto", "hard-missing", "no-kernel-soft", "soft-missing",
    "virtual", "contention",
)  # fmt: skip
"""Configurations of the pictures of probes: the catalogue may grow."""
SUMMARY = "At the first op TensorFlow maps nearly all the free memory of every visible GPU, whatever the work needs."


def made_up_probe_runs(folder: Path, *, live: bool = False) -> ProbeRuns:
    """Most of the catalogue has run, and one probe still does."""
    bench = Bench(folder)
    probe_runs = bench.probe_runs
    probe_runs.interpreter = TENSORFLOW
    # Texts of the catalogue may change without changing the picture.
    known = probe_runs._scripts = {
        name: msgspec.structs.replace(probe_runs.scripts[name], title=f"What {name} shows", summary=SUMMARY)
        for name in SHOWN
    }
    names = list(known)
    done = names[:9] if live else names
    probe_runs.runs = {name: run_of(known[name], 200 + number) for number, name in enumerate(done)}
    probe_runs.selected = set(names)
    if live:
        gib = machines.GIB
        probe_runs.live = RunningBatch(
            configs=tuple(names),
            done=len(done),
            config=names[len(done)],
            events=(
                (0.1, Event(0.0, "start", {"pid": 4711})),
                (0.1, Event(0.1, "framework", {"name": "tensorflow", "version": "2.21.0"})),
                (0.4, Event(0.4, "devices", {"logical": ["device:CPU:0", "device:GPU:0", "device:GPU:1"]})),
                (0.6, Event(0.6, "placement", {"op": "MatMul", "actual": "/device:GPU:0"})),
                (1.1, Event(1.1, "progress", {"steps": 40, "seconds": 0.412})),
            ),
            times=tuple(n / 10 for n in range(12)),
            process_bytes=tuple(min(n, 6) / 6 * 137.9 * gib for n in range(12)),
            device_bytes=tuple((min(n, 6) / 6 * 137.9 + 0.6) * gib for n in range(12)),
            device_total=139.8 * gib,
            device_name="GPU 0",
        )
    return probe_runs


def app_with(
    machine: str, ticks: int = HISTORY, probe_runs: ProbeRuns | None = None, **options: Any
) -> tuple[GpuwatchApp, FakeFeed]:
    """An app whose feed already holds ``ticks`` seconds of a machine."""
    make = MACHINES[machine]
    feed = FakeFeed(FakeHost(details_of))
    clock = machines.NOON.timestamp() + ticks - 1
    app = GpuwatchApp(Session(feed, clock=lambda: clock), probe_runs=probe_runs, **options)
    feed._pending = [make(tick) for tick in range(ticks)]
    return app, feed


async def picture(machine: str, size: tuple[int, int], keys: tuple[str, ...] = ()) -> str:
    machine, _, probes = machine.partition("+")
    with tempfile.TemporaryDirectory() as folder:
        probe_runs = (
            made_up_probe_runs(Path(folder), live=probes == "live") if probes else Bench(Path(folder)).probe_runs
        )
    app, feed = app_with(machine, probe_runs=probe_runs)
    async with app.run_test(size=size) as pilot:
        feed.push()
        await pilot.pause()
        for key in keys:
            await press(pilot, key)
        return app.export_screenshot(title=f"{machine} {size[0]}x{size[1]}")


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[2:] or WANTED:
        spec, *keys = wanted.split(",")
        machine, _, size = spec.partition(":")
        columns, _, rows = size.partition("x")
        svg = asyncio.run(picture(machine, (int(columns), int(rows)), tuple(keys)))
        path = out / f"{machine}-{size}{''.join('-' + key for key in keys)}.svg"
        path.write_text(svg)
        if shutil.which("rsvg-convert"):
            width = min(int(columns) * 10, 1900)
            subprocess.run(["rsvg-convert", "-w", str(width), path, "-o", path.with_suffix(".png")], check=True)
        print(path)


if __name__ == "__main__":
    main()

"""Pictures of the dashboard: ``python -m tests.ui.pictures OUT [MACHINE:COLSxROWS ...]`` (SVG and PNG)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gpuwatch.model.snapshot import Snapshot
from gpuwatch.ui.app import GpuwatchApp
from tests.ui import machines
from tests.ui.feed import FakeFeed

MACHINES: dict[str, Callable[[int], Snapshot]] = {
    "pair": machines.pair,
    "one": lambda tick: machines.many(1, 6, tick=tick),
    "eight": lambda tick: machines.many(8, 40, tick=tick),
    "eight200": lambda tick: machines.many(8, 200, tick=tick),
    "sixteen": lambda tick: machines.many(16, 60, tick=tick),
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


def app_with(machine: str, ticks: int = HISTORY) -> tuple[GpuwatchApp, FakeFeed]:
    """An app whose feed already holds ``ticks`` seconds of a machine."""
    make = MACHINES[machine]
    feed = FakeFeed()
    clock = machines.NOON.timestamp() + ticks - 1
    app = GpuwatchApp(feed, clock=lambda: clock)
    feed._pending = [make(tick) for tick in range(ticks)]
    return app, feed


async def picture(machine: str, size: tuple[int, int], keys: tuple[str, ...] = ()) -> str:
    app, feed = app_with(machine)
    async with app.run_test(size=size) as pilot:
        feed.push()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()
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

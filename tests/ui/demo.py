"""The dashboard on made-up machines: ``python -m tests.ui.demo --gpus 8 --processes 40``."""

from __future__ import annotations

import argparse
import datetime
import sys
import time

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.session.session import Session
from tests.ui import machines
from tests.ui.feed import MovingFeed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument(
        "--machine", choices=["many", "pair", "no_driver", "simulated", "broken", "hostile"], default="many"
    )
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--still", action="store_true", help="the same values for ever")
    parser.add_argument("--past", type=int, default=120, help="seconds of history at the start")
    parser.add_argument("--delay", type=float, default=0.05, help="seconds until the first sample")
    options = parser.parse_args()
    begun = time.time()

    def build(at: int) -> Snapshot:
        if options.machine == "many":
            return machines.many(options.gpus, options.processes, tick=at)
        made: Snapshot = getattr(machines, options.machine)(at)
        return made

    still = build(7)

    def make(tick: int) -> Snapshot:
        made = still if options.still else build(tick + options.past)
        moment = datetime.datetime.fromtimestamp(begun + tick * options.interval, datetime.UTC)
        return type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"taken_at": moment})

    from gpuwatch.ui.app import GpuwatchApp, run

    feed = MovingFeed(make, delay=options.delay)
    feed.interval = options.interval
    feed._pending = [make(tick) for tick in range(-options.past, 0)]
    return run(GpuwatchApp(Session(feed)))


if __name__ == "__main__":
    sys.exit(main())

"""Makes the pictures of the README from a live dashboard: ``python -m tests.screenshots``.

Real TensorFlow programs run on simulated GPUs, the dashboard watches them through the real
collector; nothing in the picture is made up.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpuwatch.monitor.live_feed import LiveFeed
from gpuwatch.session.session import Session
from gpuwatch.sim.machine import SimMachine
from gpuwatch.sim.shape import SimShape
from gpuwatch.ui.app import GpuwatchApp

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "screenshots"
WATCHED_SECONDS = 445.0
"""Long enough for the memory that is held to be told of."""

_TRAIN = """
import time
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
a = tf.random.uniform([1536, 1536])
batches = [tf.identity(a) for _ in range(700)]
while True:
    end = time.time() + 6
    while time.time() < end:
        a = tf.matmul(a, a)
        time.sleep(0.012)
    time.sleep(2)
"""
_FORGOTTEN = "import time, tensorflow as tf; tf.ones([8]) + 1; time.sleep(600)"


async def watch(environment: dict[str, str]) -> str:
    feed = LiveFeed(0.5, environment=environment)
    app = GpuwatchApp(Session(feed))
    async with app.run_test(size=(120, 40)) as pilot:
        await asyncio.sleep(WATCHED_SECONDS)
        await pilot.pause()
        return app.export_screenshot(title="gpuwatch")


def main() -> None:
    machine = SimMachine.open(SimShape.parse("2x24GiB"), name=f"screenshots-{os.getpid()}")
    environment = machine.environment(os.environ)
    scripts = Path(tempfile.mkdtemp())
    (scripts / "train.py").write_text(_TRAIN)
    (scripts / "notebook.py").write_text(_FORGOTTEN)
    started = [
        subprocess.Popen(
            [sys.executable, name, *arguments],
            cwd=scripts,
            env={**environment, "CUDA_VISIBLE_DEVICES": visible},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name, visible, arguments in (
            ("train.py", "0", ["--epochs", "90", "--batch-size", "64"]),
            ("notebook.py", "1", []),
        )
    ]
    try:
        svg = asyncio.run(watch(environment))
    finally:
        for process in started:
            process.kill()
            process.wait()
        shutil.rmtree(scripts)
        machine.remove()
    OUT.mkdir(exist_ok=True)
    drawing = Path(tempfile.mkdtemp()) / "dashboard.svg"
    drawing.write_text(svg)
    browser = shutil.which("chromium")
    if browser is None:
        raise SystemExit(f"{drawing} is written; for the PNG install chromium")
    # A browser honours the widths that the SVG states for its text; rsvg-convert does not.
    subprocess.run(
        [
            browser,
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *("--disable-background-networking", "--force-device-scale-factor=1", "--window-size=1482,1026"),
            f"--screenshot={OUT / 'dashboard.png'}",
            drawing.as_uri(),
        ],
        check=True,
        capture_output=True,
    )


if __name__ == "__main__":
    main()

"""A dashboard over four simulated GPUs, real TensorFlow programs and real probe runs, driven as a user would."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from textual.pilot import Pilot

from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp

WORK = {"train.py": ("0", 14_000, 6, 2), "finetune.py": ("2", 9_000, 4, 5), "evaluate.py": ("2", 5_000, 1, 4)}
"""For each program at work its GPU, the MiB that it takes, and seconds of work and of rest."""
PROBED = ("default", "growth", "limit", "cpu-only")
PROBING = 4
"""Frames of the tour that show probes."""
IDLE_FINDING = "idle.memory-held"

_WORKS = """
import time
import tensorflow as tf
memory, busy, rest = {settings}
limit = tf.config.LogicalDeviceConfiguration(memory_limit=memory)
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("GPU")[0], [limit])
a = tf.random.uniform([1536, 1536])
while True:
    end = time.time() + busy
    while time.time() < end:
        a = tf.matmul(a, a)
        time.sleep(0.012)
    time.sleep(rest)
"""
_FORGOTTEN = "import time, tensorflow as tf; tf.ones([8]) + 1; time.sleep(3600)"


@dataclass
class Taken:
    """What was taken of the screen."""

    pictures: dict[str, str] = field(default_factory=dict)
    """SVG by the name of the picture."""
    tour: list[tuple[str, float]] = field(default_factory=list)
    """SVG and the seconds that it stays."""
    report: str = ""
    """The diagnostic report, HTML."""


@contextlib.contextmanager
def _programs() -> Iterator[None]:
    """Programs at work on GPU 0 and 2, a forgotten notebook on GPU 1; GPU 3 is free."""
    with tempfile.TemporaryDirectory() as folder:
        visible = {"notebook.py": "1"}
        (Path(folder) / "notebook.py").write_text(_FORGOTTEN)
        for name, (gpu, *settings) in WORK.items():
            visible[name] = gpu
            (Path(folder) / name).write_text(_WORKS.format(settings=settings))
        started = [
            subprocess.Popen(
                ["env", f"CUDA_VISIBLE_DEVICES={gpu}", sys.executable, name],
                cwd=folder,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for name, gpu in visible.items()
        ]
        try:
            yield
        finally:
            for process in started:
                process.kill()
                process.wait()


class Camera:
    """Drives a dashboard by keys and takes pictures of it."""

    def __init__(self, app: GpuwatchApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.taken = Taken()

    async def press(self, *keys: str) -> None:
        """Presses keys and waits until the screen is drawn."""
        for key in keys:
            await self.pilot.press(key)
        await asyncio.sleep(0.7)
        await self.pilot.pause()

    async def until(self, happened: Callable[[], bool], seconds: float, what: str) -> None:
        """Waits until something is so; ends the program where it does not come."""
        end = time.monotonic() + seconds
        while not happened():
            if time.monotonic() > end:
                raise SystemExit(f"not seen within {seconds:.0f} s: {what}")
            await asyncio.sleep(0.5)
        await self.pilot.pause()

    def picture(self, name: str) -> None:
        """Keeps the screen as a picture of its own."""
        self.taken.pictures[name] = self.app.export_screenshot(title="gpuwatch")

    def frame(self, caption: str, seconds: float = 2.0) -> None:
        """Keeps the screen as a frame of the tour."""
        self.taken.tour.append((self.app.export_screenshot(title=caption), seconds))


async def _probe(camera: Camera) -> None:
    """Probes while nobody is on the GPUs."""
    app = camera.app
    await camera.press("4")
    app.probe_runs.selected |= set(PROBED)
    await camera.press("x")
    camera.frame("gpuwatch · x asks first: what the probes take, and who is on the GPUs")
    await camera.press("y")
    for done in (1, 3):
        await camera.until(lambda done=done: _done(app) >= done, 180, f"{done} probe runs")
        camera.frame("gpuwatch · each setting runs in a process of its own", 1.2)
    await camera.until(lambda: app.probe_runs.live is None, 180, "the end of the probes")
    await camera.press("home", "down")
    camera.frame("gpuwatch · the same work in 326 MiB instead of 22 GiB", 3.0)
    camera.picture("probes")


def _done(app: GpuwatchApp) -> int:
    live = app.probe_runs.live
    return len(PROBED) if live is None else live.done


async def _watch(camera: Camera, seconds: float) -> None:
    """Everything else, beside the programs."""
    app = camera.app
    await camera.press("1")
    await camera.until(lambda: len(_holders(app)) > len(WORK), 120, "the programs on the GPUs")
    await asyncio.sleep(20)  # graphs have something to show
    camera.frame("gpuwatch · who is on which GPU, with which framework", 2.5)
    await camera.until(lambda: _found(app, IDLE_FINDING), seconds, f"the finding {IDLE_FINDING}")
    await camera.until(lambda: _computes(app), 60, "the training at work")
    camera.picture("dashboard")
    camera.frame("gpuwatch · the finding: memory held by a program that does nothing", 3.0)
    await camera.press("5")
    camera.picture("finding")
    camera.frame("gpuwatch · its evidence, and what to do", 3.0)
    await camera.press("1")
    await camera.press("2")
    camera.frame("gpuwatch · one GPU: every reading, limits, throttling", 2.5)
    await camera.press("1")
    app.theme = "gpuwatch-light"
    await camera.until(lambda: _computes(app), 60, "the training at work")
    camera.picture("dashboard-light")


def _holders(app: GpuwatchApp) -> list[int]:
    snapshot = app.session.snapshot
    return [] if snapshot is None else [process.pid for process in snapshot.processes if process.framework]


def _found(app: GpuwatchApp, cause: str) -> bool:
    """Whether a cause is found, and for long enough to be a warning."""
    return any(entry.id == cause for entry in app.session.errors_and_warnings)


def _computes(app: GpuwatchApp) -> bool:
    """The training rests between its epochs; a picture shows it at work."""
    snapshot = app.session.snapshot
    busy = snapshot.devices[0].number("utilization.gpu_percent") if snapshot is not None else None
    return (busy or 0) > 60


async def take(seconds: float) -> Taken:
    """Takes every picture; ``seconds`` is how long the finding about idle memory may take to come."""
    feed = LiveFeed(0.5)
    app = GpuwatchApp(Session(feed))
    async with app.run_test(size=(120, 40)) as pilot:
        camera = Camera(app, pilot)
        await asyncio.sleep(8)  # graphs have something to show
        await _probe(camera)
        with _programs():
            await _watch(camera, seconds)
            camera.taken.report = await asyncio.to_thread(_report)
    # The programs first, then what probes add.
    probing = camera.taken.tour[:PROBING]
    camera.taken.tour = camera.taken.tour[PROBING:] + probing
    return camera.taken


def _report() -> str:
    """The diagnostic report, as HTML."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diag.html"
        subprocess.run(
            [sys.executable, "-m", "gpuwatch", "report", "--redact", "-o", str(path)],
            check=True,
            capture_output=True,
            timeout=300,
        )
        return path.read_text()

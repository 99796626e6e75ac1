"""Runs a dashboard over a hand-made feed and timeline, and prints which other processes' /proc it read or signalled.

A process of its own, because an audit hook cannot be taken away again. ``other``: the snapshots are of another host,
whose processes have by chance the pids of processes here; ``here``: they are of this machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

from msgspec.structs import replace

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.host_processes import HostProcesses, LocalProcesses
from gpuwatch.machine.history.last_hour import LastHour
from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.screens.process import ProcessScreen
from gpuwatch.ui.screens.signal_sheet import SignalSheet
from tests.ui import machines
from tests.ui.feed import FakeFeed

_OF_A_PROCESS = re.compile(r"/proc/(\d+)(?:/|$)")
touched: set[str] = set()


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Remembers whose folder below /proc is opened or listed, and who is signalled."""
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes):
        found = _OF_A_PROCESS.match(os.fsdecode(arguments[0]))
        if found is not None and int(found[1]) != os.getpid():
            touched.add(f"{event} {found[1]}")
    elif event in ("os.kill", "os.killpg"):
        touched.add(f"{event} {arguments[0]}")


def pictures(pid: int, create_time: float) -> list[Snapshot]:
    """A minute and a half, with a process that has this pid."""
    found = []
    for tick in range(90):
        shot = machines.pair(tick)
        first = replace(shot.processes[0], pid=pid, create_time=create_time)
        host = replace(shot.host, hostname="node07")
        found.append(replace(shot, processes=(first, *shot.processes[1:]), host=host))
    return found


async def look_around(app: GpuwatchApp, feed: FakeFeed, shots: list[Snapshot]) -> list[str]:
    """Every tab, the process, a signal, a pause and the past; what the screen said of the process and the signal."""
    answers = []
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push(shots[-1])
        await pilot.pause()
        app.chosen_process = (shots[0].processes[0].pid, shots[0].processes[0].create_time)
        await pilot.press("3")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, ProcessScreen)
        end = time.monotonic() + 20
        while (screen.details is None or screen.reading) and time.monotonic() < end:
            await pilot.pause(0.05)
        assert screen.details is not None
        answers.append(screen.details.problem or "read")
        await pilot.press("K")
        await pilot.pause()
        answers.append("asked" if isinstance(app.screen, SignalSheet) else screen.footer_message[0])
        await pilot.press("escape")
        for key in ("1", "2", "5", "6", "3", "P", "left", "left", "home", "1", "2", "3", "P", "1", "t"):
            await pilot.press(key)
            await pilot.pause()
        app.session.change_interval(1)
        app._tick()
        await pilot.pause()
    return answers


def main(where: str) -> None:
    """Prints what the screen said, then what was touched."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    try:
        facts = ProcessTable().facts_of(child.pid, time.monotonic())
        assert facts is not None
        shots = pictures(child.pid, facts.create_time)
        timeline = LastHour()
        for shot in shots:
            timeline.add(shot, shot.findings)
        feed = FakeFeed(HostProcesses("node07") if where == "other" else LocalProcesses())
        now = shots[-1].taken_at.timestamp()
        session = Session(feed, clock=lambda: now, timeline=timeline)
        app = GpuwatchApp(session)
        assert list(app.sessions) == [feed.host.name]
        sys.addaudithook(hook)
        answers = asyncio.run(look_around(app, feed, shots))
        print(*answers, sep="\n")
        print("touched:", *sorted(touched))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = folder
        os.environ["GPUWATCH_CONFIG_FILE"] = f"{folder}/settings.toml"
        main(sys.argv[1])

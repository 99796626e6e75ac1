"""The first look at a tab: made of little, so that it is there at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.ui import app as app_module
from tests.ui.conftest import Stage

_MOST = 0.25
"""Seconds of CPU; it takes about a quarter of that. Machines that build are slow."""
_SCRIPT = """
import asyncio, json, time
from tests.ui.feed import FakeFeed
from tests.ui import machines
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp

async def main():
    feed = FakeFeed()
    app = GpuwatchApp(Session(feed, clock=lambda: machines.NOON.timestamp() + 59))
    feed._pending = [machines.many(8, 200, tick=tick) for tick in range(60)]
    took = {}
    async with app.run_test(size=(120, 40)) as pilot:
        feed.push()
        for _ in range(5):
            await pilot.pause(0.05)
        for number, tab in enumerate(("gpu", "process", "probes", "findings", "events"), 2):
            began = time.process_time()
            await pilot.press(str(number))
            await pilot.pause()
            took[tab] = time.process_time() - began
            assert app.tab.TAB == tab
    print(json.dumps(took))

asyncio.run(main())
"""


def test_no_first_look_at_a_tab_takes_long(tmp_path: Path) -> None:
    """In an interpreter of its own, in which nothing has been imported for another test."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    took: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    assert set(took) == {"gpu", "process", "probes", "findings", "events"}
    assert max(took.values()) < _MOST, took


_PREPARED = ["gpu", "process", "findings", "events"]


async def test_tabs_are_imported_in_idle_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "_FIRST_PREPARE_SECONDS", 0.01)
    monkeypatch.setattr(app_module, "_PREPARE_SECONDS", 0.01)
    imported: list[str] = []
    monkeypatch.setattr(app_module, "import_module", imported.append)
    async with stage.app.run_test(size=(80, 24)) as pilot:
        for _ in range(100):
            await pilot.pause(0.01)
            if len(imported) == len(_PREPARED):
                break
    assert imported == [f"gpuwatch.ui.screens.{tab_id}" for tab_id in _PREPARED]

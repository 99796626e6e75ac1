"""Ten tasks, each done in at most three keys that the screen names: the answer is read off the screen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine
from gpuwatch.machine.sources.process_signals import SignalResult
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp
from tests.ui import machines
from tests.ui.feed import FakeFeed, FakeHost
from tests.ui.people import details_of
from tests.ui.probe_bench import Bench, run_of
from tests.ui.waiting import drawn_lines, press, until

GIB = machines.GIB
_SECONDS = 640
_HELD = {11: (3, 20), 12: (3, 40), 13: (2, 100), 14: (1, 42), 15: (0, 30)}
"""GPU and GiB of each process."""

TASKS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("who holds most memory of GPU 3", ("2", "left"), r"\[3\].*▶.? ?3 +48012 +carol .* 40\.0 ?G"),
    ("kill it", ("K", "y"), r"TERM delivered to 48012"),
    ("sort", ("s", "c", "enter"), r"↓CPU%.*48014.*48012"),
    ("filter by user", ("u", "down", "enter"), r"/ ?user:dave.*1 of 5|48014 dave.*/user:dave 1 of 5"),
    ("idle holders", ("I",), r"Idle: maximilian\.m 48013.*▶▲2 +48013 maximi"),
    ("the last ten minutes of GPU 2", ("number_sign", "2"), r"\[2\].*GPU 0 %.*10 min"),
    (
        "why GPU 1 is throttled",
        ("f",),
        r"GPU 1 throttled \(thermal\).*reasons: hw-thermal.*Improve the cooling",
    ),
    ("run a probe", ("p", "growth", "enter", "y"), r"GPU 0 NVIDIA H200.*growth +.*137\.9 GiB +341 MiB .* 406 .* ok"),
    ("compare two runs", ("4", "c"), r"growth +.* 406 .*└ 12 min ago .* 406 .*└ 2\.2 h ago .* 406 "),
    ("write a report", ("r", "enter"), r"report: .*\.html, with names"),
)


def four(tick: int) -> Snapshot:
    """Four GPUs: 1 is hot, on 2 memory is held idle, 3 has two programs."""
    hot = {"clocks.event_reasons": "hw-thermal", "temperature.gpu_celsius": 91, "clocks.sm_mhz": 900}
    used = [sum(held for gpu, held in _HELD.values() if gpu == index) for index in range(4)]
    devices = []
    for index in range(4):
        readings = {"memory.used_bytes": (used[index] + 1) * GIB, "memory.unexplained_bytes": 0}
        readings |= hot if index == 1 else {}
        devices.append(machines.device(index, tick=tick, busy=0 if index == 2 else 90, readings=readings))
    rows = []
    for number, (gpu, held) in _HELD.items():
        busy = 0 if gpu == 2 else 50
        readings = {"gpu_memory_bytes": held * GIB, "sm_percent": busy, "memory_percent": busy, "cpu_percent": number}
        readings |= {"idle_since": int(machines.NOON.timestamp()) if gpu == 2 else 0}
        rows.append(machines.process(number, gpu=gpu, tick=tick, pid=48000 + number, readings=readings))
    return machines.snapshot(tuple(devices), tuple(rows), tick=tick)


_SIGNS = {"number_sign": "#", "left": "◂", "right": "▸", "enter": "↵"}


def named(key: str, shown: str) -> bool:
    """Whether a screen says that there is such a key; a tab has its number in the first line."""
    sign = _SIGNS.get(key, key)
    if sign.isdecimal():
        shown = shown.split("\n")[0]
    return re.search(rf"(?<![^\s\[(─]){re.escape(sign)}(?=[ \])])", shown) is not None


class _Host(FakeHost):
    def signal(self, pid: int, create_time: float | None, number: int) -> SignalResult:
        return SignalResult("delivered")


def screen(pilot: Pilot[Any]) -> str:
    return "\n".join(line.rstrip() for line in drawn_lines(pilot.app))


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=lambda size: "x".join(map(str, size)))
async def test_each_task_takes_three_keys(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpuwatch.ui.screens.base_tab._MESSAGE_SECONDS", 4.0)  # then its keys are named again
    monkeypatch.setattr("gpuwatch.ui.screens.write_report_sheet._START_CODE", "pass  # the real one is tested alone")
    bench = Bench(tmp_path / "runs", four(_SECONDS))
    script = bench.probe_runs.scripts["growth"]
    for seconds in (-7200, -60):
        bench.probe_runs.store.save(run_of(script, seconds))
    feed, now = FakeFeed(_Host(details_of)), machines.NOON.timestamp() + _SECONDS - 1
    session = Session(feed, clock=lambda: now, conditions=ConditionEngine())
    app = GpuwatchApp(session, probe_runs=bench.probe_runs)
    feed._pending = [four(tick) for tick in range(_SECONDS)]
    async with app.run_test(size=size) as pilot:
        feed.push()
        await until(pilot, lambda: "48012" in screen(pilot))
        for task, keys, answer in TASKS:
            assert sum(key != "y" for key in keys) <= 3, "confirmations are not counted"
            if task != "kill it":  # which goes on where its holder was found
                while pilot.app.screen is not app.overview or app.overview.filter_text:
                    await press(pilot, "escape")
                app.chosen_gpu = None
            for key in keys:
                # Lists move by arrows and by first letters.
                word = len(key) > 1 and key not in _SIGNS
                if not word and (task, key) != ("sort", "c"):
                    await until(pilot, lambda key=key: named(key, screen(pilot)))
                    assert named(key, screen(pilot)), f"{task}: {key}"
                await press(pilot, *(key if word and key != "down" else [key]))
            await until(pilot, lambda wanted=answer: re.search(wanted, screen(pilot), re.DOTALL))
            assert re.search(answer, screen(pilot), re.DOTALL), f"{task}: {keys}\n{screen(pilot)}"
            bench.finish(60)

"""``gpuwatch replay`` as users run it: in a terminal, and with what cannot be played."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gpuwatch.machine.recording.running_recorders import Announcement
from tests import waiting
from tests.forked import run_gpuwatch
from tests.recording.days import day
from tests.recording.recordings import Growing, recorded, troubled
from tests.screen import Screen
from tests.terminal import Terminal, cpu_seconds, workers


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("replay") / "night.gpuwatch", troubled())


def environment() -> dict[str, str]:
    return os.environ | {"TZ": "UTC"}


def replay(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_gpuwatch("replay", *map(str, arguments), text=True, env=environment())


def start(*arguments: str | Path, columns: int = 120, rows: int = 40) -> Terminal:
    command = [sys.executable, "-m", "gpuwatch", "replay", *map(str, arguments)]
    return Terminal(command, environment(), columns, rows)


def shown(terminal: Terminal, columns: int = 120, rows: int = 40) -> str:
    return "\n".join(Screen(columns, rows).feed(bytes(terminal.output)).rows)


def wait_for(terminal: Terminal, *words: str, columns: int = 120, rows: int = 40, seconds: float = 30) -> None:
    """Waits until one of the words is on the screen."""

    def comes() -> bool:
        terminal.drain(0.3)
        return any(word in shown(terminal, columns, rows) for word in words)

    waiting.wait_for(comes, lambda: f"{words}: {shown(terminal, columns, rows)}", seconds)


def test_without_a_file_it_is_that_of_this_machine(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "gpuwatch" / "recordings"
    ended = replay()
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line == (
        f"gpuwatch: no recorder is running, and there is no recording in {folder}"
        " (create one with gpuwatch record, or name a file)"
    )
    folder.mkdir(parents=True)
    for name, age in (("old", 500), ("new", 100), ("older", 900)):
        copy = folder / f"{name}.gpuwatch"
        copy.write_bytes(file.read_bytes())
        os.utime(copy, (time.time() - age,) * 2)
    ended = replay()  # no terminal: it says so, after the name
    assert f"replaying {folder}/new.gpuwatch" in ended.stderr
    announced = Announcement(file, 1.0, gpm=False)
    try:
        assert f"replaying {file}" in replay().stderr
    finally:
        announced.close()


@pytest.mark.parametrize("asked", ["2026-05-11T11:00", "2026-05-11T13:00", "-2h", "@0"])
def test_a_time_outside_of_the_recording(file: Path, asked: str) -> None:
    ended = replay(file, "-t", asked)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert "nothing was recorded at " in line
    assert "(night.gpuwatch has 2026-05-11 12:04:31 to 2026-05-11 12:11:10)" in line.replace(f"{file.parent}/", "")


@pytest.mark.parametrize(
    ("option", "value"), [("-t", "lunch"), ("-t", "25:00"), ("-t", ""), ("--speed", "0"), ("--speed", "fast")]
)
def test_no_time_and_no_speed(file: Path, option: str, value: str) -> None:
    ended = replay(file, option, value)
    assert ended.returncode == 2
    assert (f"not a time: {value!r}" if option == "-t" else "--speed") in ended.stderr


def test_what_is_no_recording(tmp_path: Path) -> None:
    """As for every command on a recording."""
    text, foreign, empty = tmp_path / "a.txt", tmp_path / "foreign.gpuwatch", tmp_path / "empty.gpuwatch"
    text.write_text("hello" * 100)
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE a (b)")
    Growing(empty).end()
    for path in (tmp_path / "missing.gpuwatch", text, foreign, tmp_path, empty):
        ended = replay(path)
        (line,) = ended.stderr.splitlines()
        info = run_gpuwatch("record", "info", str(path), text=True)
        if path == empty:  # info says so on stdout
            assert (ended.returncode, line) == (
                1,
                f"gpuwatch: {path} has no samples yet (wait for a second, or record longer)",
            )
        else:
            assert (ended.returncode, ended.stderr) == (info.returncode, info.stderr)


def test_without_a_terminal(file: Path) -> None:
    ended = replay(file)
    assert ended.returncode == 2
    assert ended.stderr == "gpuwatch: the dashboard needs a terminal (gpuwatch record info FILE shows its contents)\n"


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (200, 60)])
def test_it_plays_in_a_terminal(file: Path, columns: int, rows: int) -> None:
    before = file.read_bytes()
    terminal = start(file, "-t", "12:06", "--speed", "4", columns=columns, rows=rows)
    size = {"columns": columns, "rows": rows}
    wait_for(terminal, "▶ REPLAY", **size)
    assert len(workers(terminal.pid)) == 1, "there is no collector"
    wait_for(terminal, "12:06:2", "12:06:3", "12:06:4", **size)
    terminal.keys(" ")
    wait_for(terminal, "‖ PAUSED · 05-11 12:06:", **size)
    terminal.drain(0.5)
    assert "‖ REPLAY" in shown(terminal, columns, rows)
    terminal.keys("q")
    assert terminal.close() == 0
    assert b"Traceback" not in bytes(terminal.output)
    assert file.read_bytes() == before, "a replay writes nothing"
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name]


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    growing, shots = Growing(tmp_path / "a.gpuwatch", seal_seconds=5.0), list(day(1, 2, 400))
    growing.add(*shots[:100])
    over = threading.Event()

    def record() -> None:
        for shot in shots[100:]:
            growing.add(shot)
            if over.wait(0.05):
                return

    terminal = start(growing.path, "-t", "now", "--speed", "8")
    wait_for(terminal, "■ REPLAY end")
    thread = threading.Thread(target=record)
    thread.start()
    try:
        wait_for(terminal, "12:06:4", "12:06:5")
    finally:
        over.set()
        thread.join()
    terminal.keys("q")
    assert terminal.close() == 0
    growing.end()


@pytest.mark.slow
def test_cpu_of_a_replay(tmp_path: Path) -> None:
    """At speed 1 it costs what any dashboard costs that draws a sample every second."""
    path = recorded(tmp_path / "a.gpuwatch", day(8, 50, 120))
    terminal = start(path, columns=160, rows=50)
    assert terminal.drain(20, lambda output: b"REPLAY" in output) is not None
    terminal.drain(2)
    before, began = cpu_seconds(terminal.pid), time.monotonic()
    terminal.drain(6)
    share = (cpu_seconds(terminal.pid) - before) / (time.monotonic() - began)
    terminal.keys("q")
    assert terminal.close() == 0
    assert share < 0.25, f"{share:.0%} of a core"

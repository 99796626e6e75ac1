"""An error of gpuwatch itself: one line, exit code 1, the traceback in a file, the terminal as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.terminal import Terminal

_SECRET = "hunter2hunter2"


def _broken(tmp_path: Path, target: str, *arguments: str) -> list[str]:
    """A gpuwatch in which one function fails."""
    module, _, path = target.partition(":")
    owner, _, name = path.rpartition(".")
    script = tmp_path / "broken.py"
    script.write_text(
        f"""
import sys
sys.argv = ["gpuwatch", *{list(arguments)!r}]
import {module} as module

def fails(*args, **kwargs):
    raise KeyError("password={_SECRET}")

setattr({"module." + owner if owner else "module"}, {name!r}, fails)
from gpuwatch.cli.entry_point import main
main()
"""
    )
    return [sys.executable, str(script)]


def _environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def _kept(tmp_path: Path) -> str:
    (path,) = (tmp_path / "state" / "gpuwatch").glob("crash-*.txt")
    return path.read_text()


def test_a_crash_prints_one_line_and_saves_the_traceback(tmp_path: Path) -> None:
    command = _broken(tmp_path, "gpuwatch.explain.diagnosis.explain_log:explain", "explain", "-")
    ended = subprocess.run(
        command, input="", capture_output=True, text=True, env=_environment(tmp_path), timeout=60, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert "error" in line.partition(" at broken.py:")[0]
    assert "KeyError" in line
    assert "crash-" in line
    kept = _kept(tmp_path)
    assert "Traceback" in kept
    assert "$ gpuwatch explain -" in kept
    assert _SECRET not in ended.stderr + kept


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder is wanted")
    command = _broken(tmp_path, "gpuwatch.explain.diagnosis.explain_log:explain", "explain", "-")
    ended = subprocess.run(
        command, input="", capture_output=True, text=True, env=_environment(tmp_path), timeout=60, check=False
    )
    assert ended.returncode == 1
    assert "the traceback could not be saved" in ended.stderr


def test_the_dashboard_gives_the_terminal_back(tmp_path: Path) -> None:
    command = _broken(tmp_path, "gpuwatch.ui.screens.help_sheet:help_lines", "--sim", "1x8GiB")
    terminal = Terminal(command, _environment(tmp_path), columns=100, rows=30)
    assert terminal.drain(30, lambda output: b"no process" in output) is not None, bytes(terminal.output[-2000:])
    terminal.drain(1.0)
    terminal.keys("?")
    assert terminal.drain(10, lambda output: b"crash-" in output) is not None, bytes(terminal.output[-2000:])
    assert terminal.close() == 1
    after = bytes(terminal.output).rpartition(b"\x1b[?1049l")[2]
    assert b"an error in gpuwatch itself" in after, "what is said on the alternate screen is lost"
    assert b"Traceback" not in bytes(terminal.output)
    assert "KeyError" in _kept(tmp_path)

"""What processes report of their memory: read once they have ended, bounded, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpuwatch.experiment.probing.memory_recording import MemoryRecordings, recordings_folder
from tests.traces.hostile import PROFILE, SNAPSHOT


def records(tmp_path: Path, *contents: bytes, tool: str = "tensorflow", ended: bool = True) -> MemoryRecordings:
    made = MemoryRecordings()
    made.take_event("memory_begin", {})
    for number, content in enumerate(contents, 1):
        file = tmp_path / f"{number}.xplane.pb"
        file.write_bytes(content)
        times = {"begin": 100.0 + number, "end": 101.0 + number, "steps_begin": 0, "steps_end": 5}
        made.take_event("memory_file", {"file": str(file), "tool": tool, "number": number, "reason": "window", **times})
    if ended:
        made.take_event("memory_end", {})
    return made


def test_a_recording_becomes_a_profile_with_the_names_of_its_variables(tmp_path: Path) -> None:
    made = records(tmp_path, PROFILE)
    made.take_event(
        "memory_names", {"what": "variables", "first": True, "entries": [["b", [128], "float32", "weight"]]}
    )
    made.take_event("memory_names", {"what": "inputs", "first": True, "entries": [[[-1, 7], "float32"]]})
    (found,) = made.profiles(3)
    assert (found.pid, found.peak_bytes, found.notes) == (3, 768, ())
    assert {holder.variable: holder.group for holder in found.holders}["b"] == "weights"
    assert not list(made.problems())


def test_a_process_that_ended_without_handlers_says_so(tmp_path: Path) -> None:
    (found,) = records(tmp_path, PROFILE, ended=False).profiles(3)
    assert found.notes == (
        "the process ended without exit handlers (os._exit, a signal): what was recorded since the last window was"
        " not written",
    )
    made = records(tmp_path, ended=False)
    assert not list(made.profiles(3))
    assert list(made.problems()) == [
        "the process ended without exit handlers (os._exit, a signal): what was recorded since its start was not"
        " written"
    ]


@pytest.mark.parametrize("note", ["", "the program profiles itself: this recording ended where its own began"])
def test_a_recording_without_allocations_on_a_gpu_says_why(note: str, tmp_path: Path) -> None:
    made = records(tmp_path, b"")
    if note:
        made.take_event("memory_note", {"text": note})
    assert not list(made.profiles(3))
    assert list(made.problems()) == [note] * bool(note)


def test_the_snapshot_with_the_highest_peak_counts(tmp_path: Path) -> None:
    (found,) = records(tmp_path, SNAPSHOT, SNAPSHOT, tool="torch").profiles(3)
    assert (found.tool, found.peak_bytes) == ("torch", 27_394_048)


@pytest.mark.parametrize("tool", ["tensorflow", "torch"])
def test_a_recording_that_cannot_be_read_is_a_problem(tool: str, tmp_path: Path) -> None:
    made = records(tmp_path, b"\n\x7f broken", tool=tool)
    assert not list(made.profiles(3))
    assert any("cannot be read" in text for text in made.problems())
    missing = records(tmp_path, PROFILE)
    (tmp_path / "1.xplane.pb").unlink()
    assert not list(missing.profiles(3))
    assert [text.split(": ")[1] for text in missing.problems()] == ["No such file or directory"]


def test_a_process_that_says_too_much_is_bounded(tmp_path: Path) -> None:
    made = records(tmp_path, PROFILE)
    for number in range(200):
        made.take_event("memory_note", {"text": f"note {number}"})
        entries = [["v", [1], "float32", ""]] * 100
        made.take_event("memory_names", {"what": "variables", "first": number == 0, "entries": entries})
    (found,) = made.profiles(3)
    assert len(found.notes) <= 20


def test_folders_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    stale, alive = tmp_path / f"gpuwatch-memory-{ended.pid}-x", tmp_path / f"gpuwatch-memory-{os.getppid()}-x"
    other = tmp_path / f"gpuwatch-memory-{ended.pid}-link"
    stale.mkdir()
    (stale / "file").write_text("x")
    alive.mkdir()
    other.symlink_to(alive)
    with recordings_folder() as folder:
        assert Path(folder).stat().st_mode & 0o777 == 0o700
        assert not stale.exists()
        assert alive.exists()
        assert other.is_symlink()
    assert not Path(folder).exists()

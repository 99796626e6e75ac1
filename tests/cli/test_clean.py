"""``gpuwatch clean``: everything that gpuwatch made is gone, and nothing else, and nothing in use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Result, copy_builds
from tests.forked import run_gpuwatch

SHAPE = "1x2GiB"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own with one build, run, crash file, recording and settings file, and a file of somebody else."""
    for name, folder in (("XDG_CACHE_HOME", "c"), ("XDG_STATE_HOME", "s"), ("XDG_CONFIG_HOME", "f")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    (tmp_path / "r").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "r"))
    for name in (
        "c/gpuwatch/sim/0123/libcuda.so.1",
        "c/other/file",
        "s/gpuwatch/runs/1-run.json",
        "s/gpuwatch/crash-20260101-000000.txt",
        "s/gpuwatch/recordings/here.gpuwatch",
        "f/gpuwatch/settings.toml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * 100)
    return tmp_path


def _clean(*options: str) -> Result:
    done = run_gpuwatch("clean", *options, text=True)
    return Result(done.returncode, done.stdout, done.stderr)


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_only_what_is_asked_for_is_removed(home: Path) -> None:
    before = _files(home)
    dry = _clean("--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert _files(home) == before
    done = _clean()
    assert done.code == 0
    assert done.out.replace("removed", "would remove").replace("freed", "would free") == dry.out
    rest = {"c/other/file", "s/gpuwatch/recordings/here.gpuwatch", "f/gpuwatch/settings.toml"}
    assert _files(home) == rest
    assert not (home / "c/gpuwatch").exists()
    _clean("--recordings")
    assert _files(home) == rest - {"s/gpuwatch/recordings/here.gpuwatch"}
    assert not (home / "s/gpuwatch").exists()


def test_links_are_not_followed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    mine = tmp_path_factory.mktemp("mine") / "thesis"
    mine.write_text("years")
    (home / "c/gpuwatch/sim/0123/link").symlink_to(mine.parent)
    (home / "s/gpuwatch/runs/2-run.json").symlink_to(mine)
    assert _clean().code == 0
    assert mine.read_text() == "years"


def test_a_folder_that_others_can_write_to_is_left_alone(home: Path) -> None:
    (home / "s/gpuwatch").chmod(0o777)
    assert "can be written by everyone" in _clean().out
    assert "s/gpuwatch/runs/1-run.json" in _files(home)


def test_what_is_in_use_stays(builds: tuple[Path, Path], home: Path) -> None:
    sim = [sys.executable, "-m", "gpuwatch", "sim", "--sim", SHAPE, "--", "sh", "-c", "echo up; exec sleep 60"]
    recorder = [sys.executable, "-m", "gpuwatch", "record", "--sim", "1x1GiB"]
    copy_builds(builds, home / "c")
    with subprocess.Popen(sim, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        with subprocess.Popen(recorder, stderr=subprocess.PIPE, text=True) as recording:
            assert recording.stderr is not None
            assert "recording" in recording.stderr.readline()
            done = _clean("--recordings")
            recording.terminate()
        program.terminate()
    lines = {line.split(" (")[0].removeprefix("kept "): line for line in done.out.splitlines()}
    state = next(name for name in lines if f"-{SHAPE}." in name)
    assert lines[state].endswith("in use")
    assert lines[str(home / "c/gpuwatch/sim")].endswith("a program is using them")
    own = f"{os.uname().nodename}.gpuwatch"
    assert lines[str(home / "s/gpuwatch/recordings" / own)].endswith("a recorder is writing it")
    assert "s/gpuwatch/recordings/here.gpuwatch" not in _files(home)
    assert _clean("--recordings").code == 0
    assert _files(home) == {"c/other/file", "f/gpuwatch/settings.toml"}

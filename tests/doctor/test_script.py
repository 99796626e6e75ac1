"""The script that runs in the user's interpreter: how it finds libraries, on folders made for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.experiment.probing.interpreter import Interpreter
from gpuwatch.experiment.probing.interpreter_checks import ask_driver, inspect_interpreter
from gpuwatch.experiment.probing.probe_scripts import probe_folder
from gpuwatch.explain.diagnosis.doctor.driver import is_broken
from gpuwatch.sim import library_cache

NAME = "libcudnn.so.9"


@pytest.fixture(scope="module")
def empty() -> Path:
    """A library without anything in it."""
    return (library_cache.ensure_built() / "libgpuwatchsim-empty.so").resolve()


def find(*runpath: Path, library_path: str = "", name: str = NAME) -> dict[str, Any]:
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import _gpuwatch_doctor_checks as e;"
        "print(json.dumps(e.find(sys.argv[2], sys.argv[3:])))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(probe_folder()), name, *map(str, runpath)],
        env={**os.environ, "LD_LIBRARY_PATH": library_path},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def place(folder: Path, library: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(library, folder / NAME))


def wheel(tmp_path: Path) -> Path:
    return tmp_path / "venv/lib/python3.11/site-packages/nvidia/cudnn/lib"


def test_missing_is_told_with_the_loaders_own_words(tmp_path: Path) -> None:
    found = find(tmp_path)
    assert found["state"] == "missing"
    assert "cannot open shared object file" in found["detail"]


def test_of_the_wheel(tmp_path: Path, empty: Path) -> None:
    path = place(wheel(tmp_path), empty)
    found = find(path.parent)
    assert (found["state"], found["path"], found["origin"], found["shadows"]) == ("loaded", str(path), "wheel", None)


def test_library_path_stands_in_front_of_the_wheel(tmp_path: Path, empty: Path) -> None:
    path, other = place(wheel(tmp_path), empty), place(tmp_path / "cuda", empty)
    found = find(path.parent, library_path=str(other.parent))
    assert (found["path"], found["origin"], found["shadows"]) == (str(other), "LD_LIBRARY_PATH", str(path))


def test_a_file_that_is_no_library_stops_the_loader(tmp_path: Path, empty: Path) -> None:
    path = place(wheel(tmp_path), empty)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / NAME).write_text("not a library")
    found = find(path.parent, library_path=str(broken))
    assert (found["state"], found["path"], found["origin"]) == ("broken", str(broken / NAME), "LD_LIBRARY_PATH")
    assert "file too short" in found["detail"]


def test_a_library_of_another_machine_is_passed_over(tmp_path: Path, empty: Path) -> None:
    path, other = place(wheel(tmp_path), empty), place(tmp_path / "lib32", empty)
    raw = bytearray(other.read_bytes())
    raw[4] = 1  # ELFCLASS32
    other.write_bytes(raw)
    found = find(path.parent, library_path=str(other.parent))
    assert (found["state"], found["path"], found["shadows"]) == ("loaded", str(path), None)
    assert "wrong ELF class" in found["detail"]


def test_one_whose_own_library_is_missing_is_broken(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    assert compiler is not None
    needed = tmp_path / "libneeded.so"
    source = tmp_path / "x.c"
    source.write_text("")
    subprocess.run([compiler, "-shared", "-o", needed, source], check=True)
    folder = tmp_path / "cuda"
    folder.mkdir()
    link = ["-Wl,--no-as-needed", f"-L{tmp_path}", "-lneeded", "-Wl,-rpath,$ORIGIN/there:/elsewhere"]
    subprocess.run([compiler, "-shared", "-o", folder / NAME, source, *link], check=True)
    needed.unlink()
    found = find(library_path=str(folder))
    assert found["state"] == "broken"
    assert "libneeded.so" in found["detail"]
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import _gpuwatch_doctor_checks as e;"
        "print(json.dumps(e.dynamic(sys.argv[2])))"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(probe_folder()), str(folder / NAME)],
        capture_output=True,
        text=True,
        check=True,
    )
    libraries, folders = json.loads(done.stdout)
    assert "libneeded.so" in libraries
    assert folders == [str(folder / "there"), "/elsewhere"]


def test_a_system_library_is_named_with_its_file() -> None:
    found = find(name="libz.so.1" if Path("/usr/lib/x86_64-linux-gnu/libz.so.1").exists() else "libc.so.6")
    assert found["state"] == "loaded"
    assert found["origin"] == "system"
    assert Path(found["path"]).is_file()


def test_a_child_that_hangs_or_ends_early_is_told(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    dead = tmp_path / "dead"
    dead.write_text("#!/bin/sh\necho boom >&2\nexit 7\n")
    for script in (slow, dead):
        script.chmod(0o755)
    late = inspect_interpreter(Interpreter(str(slow), "tensorflow"), os.environ, deadline=0.3)
    assert late.search_late == "the list of distributions"
    assert late.libraries is None
    ended = inspect_interpreter(Interpreter(str(dead), "tensorflow"), os.environ)
    assert ended.distributions is None
    assert ended.problems == ("the child process ended with exit code 7 during looking for libraries: boom",)


def test_without_a_driver_the_loader_says_so(tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("there is a driver here")
    answer = ask_driver({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert answer.libcuda is not None
    assert answer.nvml is not None
    assert "cannot open" in (answer.libcuda.error or "")
    assert answer.cuinit_code is None
    assert not answer.late


@pytest.mark.parametrize(
    ("content", "words"), [(b"", "file too short"), (b"text of a pointer file\n" * 9, "invalid ELF header")]
)
def test_a_broken_library_of_the_driver_is_not_a_missing_one(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(content)
    answer = ask_driver({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert answer.nvml is not None
    assert words in (answer.nvml.error or "")
    assert is_broken(answer.nvml)


def test_a_library_without_the_driver_s_functions_is_broken(tmp_path: Path, empty: Path) -> None:
    shutil.copy(empty, tmp_path / "libnvidia-ml.so.1")
    answer = ask_driver({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert answer.nvml is not None
    assert "undefined symbol: nvmlInit_v2" in (answer.nvml.error or "")
    assert (is_broken(answer.nvml), answer.ended_in) == (True, "")
    assert answer.libcuda is not None, "it is asked for all the same"

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.experiment.probing import interpreter
from gpuwatch.experiment.probing.interpreter import FrameworkMissing, Interpreter, choose_interpreter
from gpuwatch.experiment.probing.probe_scripts import find_probe, find_probes, read_header
from gpuwatch.experiment.probing.simulation_tier import choose_tier
from gpuwatch.sim.libraries import Tier
from tests.terminal import wait_until_ended


def test_headers_are_read_without_running_the_script(tmp_path: Path) -> None:
    script = tmp_path / "danger.py"
    script.write_text(
        '"""Title.\n\nSummary\nin two lines.\n\nMore."""\nraise SystemExit("was run")\n'
        'CONFIG = {"name": "danger", "title": "Title", "group": "memory", "framework": "tensorflow",'
        ' "workload": "matmul", "verdict": "ok"}\nENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1"}\n'
    )
    header = read_header(script)
    assert header.name == "danger"
    assert header.summary == "Summary in two lines."
    assert header.environment == {"CUDA_VISIBLE_DEVICES": "-1"}


_WITH_SECONDS = (
    "CONFIG = {'name': 'broken', 'title': 'Title', 'group': 'memory', 'framework': 'tensorflow', 'workload': 'matmul',"
    " 'options': {'seconds': 3}}"
)
"""They are what the user asks for (--seconds); a probe's own would do nothing."""


@pytest.mark.parametrize("text", ["", "CONFIG = {", "CONFIG = {'name': 1}", "CONFIG = {**other}", _WITH_SECONDS])
def test_a_broken_header_names_the_script(tmp_path: Path, text: str) -> None:
    script = tmp_path / "broken.py"
    script.write_text(text)
    with pytest.raises(GpuwatchError, match=r"broken\.py"):
        read_header(script)


def test_unknown_configuration_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        find_probe("grwoth")
    assert "growth" in refused.value.message
    assert "default" in find_probes()


def test_interpreters_are_checked_before_anything_runs(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    fake.chmod(0o755)
    with pytest.raises(UsageError, match="not a usable Python: no"):
        choose_interpreter("tensorflow", str(fake))
    with pytest.raises(UsageError, match="no such program"):
        choose_interpreter("tensorflow", str(tmp_path / "absent"))
    with pytest.raises(FrameworkMissing, match="is not installed"):
        choose_interpreter("torch", _without_packages(tmp_path))


@pytest.mark.parametrize("place", ["PYTHONPATH", "user site-packages", "a .pth file there"])
def test_a_framework_is_found_wherever_the_users_own_programs_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Modules of a cluster set PYTHONPATH; pip install --user and .pth files add folders, too."""
    packages = tmp_path / "packages"
    _package(packages, "tensorflow")
    python = str(Path(sys.executable).resolve())  # not a virtual environment's, which has no user site-packages
    if place == "PYTHONPATH":
        python = sys.executable
        monkeypatch.setenv("PYTHONPATH", str(packages))
        (packages / "tempfile.py").write_text("raise SystemExit('ran')")  # which importlib.metadata imports
    else:
        monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
        site = tmp_path / "user" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        site.mkdir(parents=True)
        if "pth" in place:
            (site / "cluster.pth").write_text(f"{packages}\n")
        else:
            _package(site, "tensorflow")
    found = choose_interpreter("tensorflow", python)
    assert (found.version, found.gpu_build) == ("9.9.9", True)


def _package(folder: Path, name: str) -> None:
    information = folder / f"{name}-9.9.9.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Name: {name}\nVersion: 9.9.9\n")
    (folder / name / "python" / "platform").mkdir(parents=True)
    (folder / name / "__init__.py").write_text("raise SystemExit('ran')")
    (folder / name / "python" / "platform" / "build_info.py").write_text("build = dict(is_cuda_build=True)")


def test_files_in_the_working_folder_are_not_run_by_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tensorflow", "random", "json", "re"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('ran')")
    expected = choose_interpreter("tensorflow", sys.executable)
    monkeypatch.chdir(tmp_path)
    assert choose_interpreter("tensorflow", sys.executable) == expected
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # there every program imports it, and the doctor names the file
    assert choose_interpreter("tensorflow", sys.executable).version == expected.version


def _wrapper(tmp_path: Path, body: str) -> str:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    return str(fake)


ANSWER = """echo '{"version": "2.21.0", "gpu_build": true}'"""


@pytest.mark.parametrize(
    "before", ["echo Welcome to the cluster", "printf '\\377\\376\\n'", "printf '\\377' >&2", "echo 5"]
)
def test_what_a_wrapper_prints_first_is_passed_over(tmp_path: Path, before: str) -> None:
    found = choose_interpreter("tensorflow", _wrapper(tmp_path, f"{before}\n{ANSWER}"))
    assert (found.version, found.gpu_build) == ("2.21.0", True)


def test_an_interpreter_that_hangs_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_ANSWER_SECONDS", 0.5)
    kept = tmp_path / "pid"
    with pytest.raises(UsageError, match="did not answer"):
        choose_interpreter("tensorflow", _wrapper(tmp_path, f"sleep 1234 &\necho $! > {kept}\nwait"))
    wait_until_ended(int(kept.read_text()))


def test_why_an_interpreter_is_of_no_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="killed by SIGKILL"):
        choose_interpreter("tensorflow", _wrapper(tmp_path, "kill -9 $$"))
    with pytest.raises(UsageError, match=r"not a usable Python: .*invalid option"):
        choose_interpreter("tensorflow", "bash")


def _without_packages(tmp_path: Path) -> str:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    return str(bare)


@pytest.mark.parametrize(
    ("gpu_build", "cuda", "forced", "expected"),
    [
        (True, "12.6", None, "driver"),
        (True, "13.2", "driver", "driver"),
        (None, None, None, "driver"),
        (True, "12.6", "plugin", "PyTorch has simulated GPUs only on the driver tier"),
        (True, "11.8", None, "the simulated driver lacks the runtime of CUDA 11"),
        (False, None, None, None),  # it says itself that it is a CPU build
    ],
)
def test_pytorch_meets_simulated_gpus_as_a_driver(
    gpu_build: bool | None, cuda: str | None, forced: Tier | None, expected: str | None
) -> None:
    interpreter = Interpreter("/usr/bin/python3", "torch", "2.7.1", gpu_build, cuda_version=cuda)
    choice = choose_tier(find_probe("torch-map"), interpreter, forced, None)
    if choice.skipped:
        assert expected is not None
        assert choice.skipped.startswith(expected)
    else:
        assert choice.tier == expected

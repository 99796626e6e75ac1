"""``gpuwatch sim -- COMMAND``: programs on simulated GPUs, Keras's among them as they are."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from gpuwatch.cli.progress import compile_notice
from gpuwatch.experiment.probing.probe_scripts import probe_folder
from gpuwatch.sim import library_cache
from tests.conftest import gpuwatch

_NOTE = "gpuwatch: simulated GPUs have no XLA: Keras does not compile models by default\n"
_STAND_IN = """
def model_supports_jit(model):
    return True

class Trainer:
    @property
    def jit_compile(self):
        return None

    @jit_compile.setter
    def jit_compile(self, value):
        if value and not model_supports_jit(self):
            print("ignored")
"""
_EXPLICIT = "gpuwatch: simulated GPUs have no XLA: jit_compile=True is not honored, Keras does not compile the model\n"


def keras_stand_in(folder: Path) -> Path:
    """A package of Keras's names in which nothing but the question about the compiler is."""
    trainers = folder / "keras" / "src" / "trainers"
    trainers.mkdir(parents=True)
    for package in (folder / "keras", folder / "keras" / "src", trainers):
        (package / "__init__.py").write_text("")
    (trainers / "trainer.py").write_text(_STAND_IN)
    return folder


def in_sim(code: str, folder: Path, *options: str, **more: str) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), **more}
    done = gpuwatch("sim", *options, "--", sys.executable, "-c", code, environment=environment)
    return done.code, done.out, done.err


def test_the_xla_note_is_printed_once_if_keras_compiles(tmp_path: Path) -> None:
    keras_stand_in(tmp_path)
    ask = "from keras.src.trainers import trainer\nprint(trainer.model_supports_jit(1), trainer.model_supports_jit(2))"
    assert in_sim(ask, tmp_path) == (0, "False False\n", _NOTE)
    assert in_sim("import keras.src.trainers.trainer", tmp_path) == (0, "", "")
    assert in_sim("print(1)", tmp_path) == (0, "1\n", "")


def test_an_explicit_compile_of_keras_is_told_as_that(tmp_path: Path) -> None:
    keras_stand_in(tmp_path)
    ask = "from keras.src.trainers.trainer import Trainer\nTrainer().jit_compile = True\nTrainer().jit_compile = False"
    assert in_sim(ask, tmp_path) == (0, "ignored\n", _EXPLICIT)


def test_the_driver_tier_is_left_alone(tmp_path: Path) -> None:
    keras_stand_in(tmp_path)
    ask = "import os; from keras.src.trainers import trainer; print(trainer.model_supports_jit(1))"
    assert in_sim(ask + "; print(os.environ['PYTHONPATH'])", tmp_path, "--tier", "driver") == (
        0,
        f"True\n{tmp_path}\n",
        "",
    )


def test_a_customization_of_python_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nprint('mine') if 'GPUWATCH_SIM' in os.environ else None")
    hook = str(probe_folder() / "_gpuwatch_watch")
    assert in_sim(f"import sys; print({hook!r} in sys.path)", tmp_path) == (0, "mine\nFalse\n", "")


def test_an_explicit_compile_explains_its_failure(tmp_path: Path) -> None:
    keras_stand_in(tmp_path)
    code, out, told = in_sim("import keras\nraise RuntimeError('No JIT device registered for GPU')", tmp_path)
    assert (code, out) == (1, "")
    assert "RuntimeError: No JIT device registered for GPU\ngpuwatch: simulated GPUs have no XLA: remove" in told
    assert told.count("gpuwatch: ") == 1


def test_a_tier_without_simulated_gpus_is_an_error() -> None:
    for arguments in (
        ("run", "--sim-tier", "plugin", "--", "true"),
        ("probe", "--config", "auto", "--sim-tier", "driver"),
    ):
        done = gpuwatch(*arguments, environment={k: v for k, v in os.environ.items() if not k.startswith("GPUWATCH_")})
        assert (done.code, done.out) == (2, "")
        assert "--sim-tier needs" in done.err


@pytest.mark.parametrize("command", ["run", "sim"])
def test_the_tier_is_the_users_choice(command: str) -> None:
    ask = "import os; print(os.environ.get('TF_PLUGGABLE_DEVICE_LIBRARY_PATH', 'none')[-20:])"
    for tier, library in (("driver", "none"), ("plugin", "libgpuwatchplugin.so")):
        quiet = ("-q", "--no-save") if command == "run" else ()
        done = gpuwatch(command, *quiet, "--sim", "1x2GiB", "--sim-tier", tier, "--", sys.executable, "-c", ask)
        assert (done.code, done.out) == (0, library[-20:] + "\n")


def test_an_old_build_for_cuda_gets_the_driver_tier(tmp_path: Path) -> None:
    """Its kernels cannot be renamed; found out without importing it."""
    package = tmp_path / "site" / "tensorflow"
    (package / "python" / "platform").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "python" / "platform" / "build_info.py").write_text("build_info = {'is_cuda_build': True}\n")
    (tmp_path / "site" / "tensorflow-2.15.1.dist-info").mkdir()
    (tmp_path / "site" / "tensorflow-2.15.1.dist-info" / "METADATA").write_text("Name: tensorflow\nVersion: 2.15.1\n")
    venv.create(tmp_path / "venv", symlinks=True)
    packages = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (packages / "old.pth").write_text(str(tmp_path / "site"))
    ask = "import os; print('TF_PLUGGABLE_DEVICE_LIBRARY_PATH' in os.environ)"
    done = gpuwatch("sim", "--sim", "1x2GiB", "--", str(tmp_path / "venv" / "bin" / "python"), "-c", ask)
    assert (done.code, done.out) == (0, "False\n")
    assert "TensorFlow 2.15.1 is too old" in done.err


@pytest.mark.parametrize(
    ("cuda", "script", "tier"),
    [
        ("'12.6'", "import torch", "driver"),
        ("'13.2'", "import os, torch", "driver"),
        ("'12.6'", "import os", "driver"),  # it may import what imports it, and there is nothing else
        ("'12.6'", "import tensorflow", "plugin"),
        ("'11.8'", "import torch", "plugin"),
        ("None", "import torch", "plugin"),
    ],
)
def test_pytorch_gets_the_driver_tier(tmp_path: Path, cuda: str, script: str, tier: str) -> None:
    """The GPUs of the other one are devices of TensorFlow alone; a build without CUDA finds none on either."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text(f"from typing import Optional\ncuda: Optional[str] = {cuda}\n")
    venv.create(tmp_path / "venv", symlinks=True)
    packages = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (packages / "torch.pth").write_text(str(tmp_path / "site"))
    program = tmp_path / "train.py"
    program.write_text(
        "import os\nprint('plugin' if 'TF_PLUGGABLE_DEVICE_LIBRARY_PATH' in os.environ else 'driver')\n"
        f"try:\n    pass\n    {script}\nexcept ModuleNotFoundError:\n    pass\n"
    )
    done = gpuwatch("sim", "--sim", "1x2GiB", "--", str(tmp_path / "venv" / "bin" / "python"), "-u", str(program))
    assert (done.code, done.out) == (0, f"{tier}\n"), done.err
    assert ("PyTorch's device map" in done.err) == (tier == "driver")


def test_pytorch_on_the_plugin_tier_gets_a_note(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("from torch import version\n")
    for cuda, told in (("'12.6'", 1), ("None", 0)):
        (package / "version.py").write_text(f"cuda = {cuda}\n")
        code, _, err = in_sim("import torch", tmp_path, "--tier", "plugin")
        assert (code, err.count("lacks support for PyTorch")) == (0, told)


def test_compiling_the_simulated_gpus_is_said_in_a_pipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    with compile_notice():
        assert library_cache._before_build is not None
        library_cache._before_build()
        library_cache._before_build()
    said = capsys.readouterr().err.splitlines()
    assert [line.startswith("gpuwatch: compil") for line in said] == [True, True]
    with compile_notice():
        pass
    assert capsys.readouterr().err == ""

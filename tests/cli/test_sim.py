"""``gpuwatch sim -- COMMAND``: programs on simulated GPUs, Keras's among them as they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gpuwatch.probing.locate import probe_folder
from tests.conftest import gpuwatch

_NOTE = "gpuwatch: simulated GPUs have no XLA: models that leave it to Keras are not compiled\n"
_TRAINING = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.ones((64, 4), "float32"), numpy.ones((64, 1), "float32"), epochs=2, verbose=0)
print("trained", model.jit_compile)
"""
_STAND_IN = """
def model_supports_jit(model):
    return True
"""


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


@pytest.mark.tensorflow
def test_a_keras_training_that_nobody_adapted(tmp_path: Path) -> None:
    code, out, told = in_sim(_TRAINING, tmp_path)
    assert (code, out) == (0, "trained False\n"), told[-2000:]
    assert told.count(_NOTE) == 1


def test_it_is_said_once_and_only_when_keras_asks(tmp_path: Path) -> None:
    keras_stand_in(tmp_path)
    ask = "from keras.src.trainers import trainer\nprint(trainer.model_supports_jit(1), trainer.model_supports_jit(2))"
    assert in_sim(ask, tmp_path) == (0, "False False\n", _NOTE)
    assert in_sim("import keras.src.trainers.trainer", tmp_path) == (0, "", "")
    assert in_sim("print(1)", tmp_path) == (0, "1\n", "")


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


def test_who_asks_for_the_compiler_is_told_what_its_failure_means(tmp_path: Path) -> None:
    keras_stand_in(tmp_path)
    code, out, told = in_sim("import keras\nraise RuntimeError('No JIT device registered for GPU')", tmp_path)
    assert (code, out) == (1, "")
    assert "RuntimeError: No JIT device registered for GPU\ngpuwatch: simulated GPUs have no XLA: leave" in told
    assert told.count("gpuwatch: ") == 1

"""Programs of several kinds, none written for gpuwatch, on simulated GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.trials.programs import document, forked_document, program

MIB = 1 << 20
KERAS = """
import keras, numpy
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(10)])
model.compile("adam", "mse", jit_compile=False)
x, y = numpy.random.rand(2048, 64).astype("f"), numpy.random.rand(2048, 10).astype("f")
model.fit(x, y, batch_size=16, epochs=100000, verbose=0)
"""
FUNCTION = """
import tensorflow as tf
a = tf.Variable(tf.random.uniform([256, 256]))
@tf.function
def train(): a.assign(tf.matmul(a, a) * 1e-3)
while True: train()
"""
SESSION = """
import tensorflow as tf
tf.compat.v1.disable_eager_execution()
a = tf.compat.v1.get_variable("a", initializer=tf.random.uniform([256, 256]))
update = tf.compat.v1.assign(a, tf.matmul(a, a) * 1e-3).op
with tf.compat.v1.Session(config=tf.compat.v1.ConfigProto()) as session:
    session.run(tf.compat.v1.global_variables_initializer())
    while True: session.run(update)
"""
OWN_GROWTH = """
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
"""
THREE = (
    "--config",
    "default",
    "--config",
    "growth",
    "--config",
    "limit=500MiB",
    "--rounds",
    "1",
    "--sim",
    "1x2GiB",
    "--stop-after",
    "300steps",
)


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {trial["asked"]: trial for trial in found["trials"]}


@pytest.mark.tensorflow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "counted"),
    [
        (KERAS, "batches of Keras"),
        pytest.param(FUNCTION, "calls of the tf.function train (train.py:6)", marks=pytest.mark.long),
        pytest.param(SESSION, "runs of the session (fetches: 0, operations: 1)", marks=pytest.mark.long),
    ],
    ids=["keras", "tf.function", "session"],
)
def test_every_kind_of_tensorflow_program(text: str, counted: str, tmp_path: Path) -> None:
    found = forked_document(*THREE, "--", *program(tmp_path, text), environment=os.environ, timeout=200)
    runs = by_name(found)
    assert {trial["run"]["verdict"] for trial in runs.values()} == {"ok"}
    assert {trial["counted"] for trial in runs.values()} == {counted}
    held = {name: trial["run"]["memory"]["nvml_peak_bytes"] / MIB for name, trial in runs.items()}
    assert held["default"] > 1500
    assert held["growth"] < 300
    assert 500 <= held["limit=500MiB"] <= 700
    assert (runs["growth"]["applied"], runs["limit=500MiB"]["applied"]) == (True, True)
    assert runs["limit=500MiB"]["effective"] == {"memory_limit": 500}
    assert found["answer"]["best"] == "growth"
    assert "growth: the same work in " in found["answer"]["sentence"]


@pytest.mark.tensorflow
@pytest.mark.long
def test_a_program_that_sets_the_same_itself_overrides(tmp_path: Path) -> None:
    found = document(*THREE, "--", *program(tmp_path, OWN_GROWTH + FUNCTION))
    runs = by_name(found)
    assert runs["growth"]["overridden"] == "train.py:6"
    assert runs["limit=500MiB"]["overridden"] == "train.py:6"
    assert "sets its own (train.py:6)" in found["answer"]["sentence"]


@pytest.mark.tensorflow
@pytest.mark.long
def test_the_default_set_is_that_of_the_framework(tmp_path: Path) -> None:
    found = document("--rounds", "1", "--sim", "2x2GiB", "--", *program(tmp_path, FUNCTION))
    runs = by_name(found)
    names = ("default", "growth", "async-allocator", "visible=0", "visible=1", "cpu-only", "mixed-float16", "xla")
    assert set(names) <= runs.keys()
    assert runs["cpu-only"]["run"]["verdict"] == "ok"
    assert runs["cpu-only"]["run"]["device_map"] == []
    assert runs["visible=1"]["run"]["device_map"][0]["physical_index"] == 1
    assert runs["xla"]["run"] is None
    assert runs["xla"]["not_tried"] == "simulated GPUs do not have it"


@pytest.mark.tensorflow
@pytest.mark.long
def test_who_held_the_memory_of_each_batch_size(tmp_path: Path) -> None:
    text = KERAS.replace("batch_size=16", "batch_size=int(sys.argv[1])")
    asked = ("--memory", "--vary", "B=16,512", "--rounds", "1", "--sim", "1x2GiB", "--")
    found = document(*asked, *program(tmp_path, text), "{B}")
    assert [(trial["values"]["B"], trial["recorded"]) for trial in found["trials"]] == [
        *(("16", False), ("512", False), ("16", True), ("512", True)),
    ]
    small, large = (trial["run"]["memory_profiles"][0] for trial in found["trials"][2:])
    assert small["device"] == large["device"] == "GPU:0"
    assert small["groups"]["weights"] == large["groups"]["weights"]
    assert large["groups"]["activations"] > 8 * small["groups"]["activations"]
    assert "B=512: " in found["answer"]["sentence"]

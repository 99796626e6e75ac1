"""What a program does that no log tells: traces, waits for its input, steps that stop, workers that are killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.probing.watched import read, watched

_TRACES = """
import tensorflow as tf

weight = tf.Variable(tf.ones([4, 4]))


class Config:
    pass


@tf.function
def by_number(x, step):
    return tf.reduce_sum(x @ weight) * step


@tf.function
def by_shape(batch):
    return tf.reduce_sum(batch[0] @ weight)


@tf.function
def by_object(x, config):
    return tf.reduce_sum(x @ weight)


@tf.function
def few_shapes(x, training):
    return tf.reduce_sum(x @ weight)


class Layer:
    @tf.function
    def call(self, x):
        return x + 1.0


x = tf.ones([2, 4])
layers = [Layer() for _ in range(12)]
for number in range(12):
    @tf.function
    def made_anew(x):
        return x + 1.0

    by_number(x, number)
    by_shape((tf.ones([2 + number, 4]), x))
    by_object(x, Config())
    made_anew(x)
    for size in range(12):
        few_shapes(tf.ones([1 + size, 4]), training=bool(number % 2))
    for layer in layers:
        layer.call(x)
"""


@pytest.mark.tensorflow
def test_every_kind_of_retracing_and_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_TRACES)
    done = watched("--no-save", "-o", "run.json", "--", sys.executable, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "run.json")
    traced = {one["name"]: one for one in run["retraced"]}
    assert {name: (one["traces"], one["calls"], one["made"]) for name, one in traced.items()} == {
        "by_number": (12, 12, 1),
        "by_shape": (12, 12, 1),
        "by_object": (12, 12, 1),
        "made_anew": (12, 12, 12),
        "few_shapes": (24, 144, 1),
        "call": (12, 144, 12),
    }
    first = {name: one["changes"][0] for name, one in traced.items() if one["changes"]}
    assert {name: (one["argument"], one["kind"], one["times"]) for name, one in first.items()} == {
        "by_number": ("step", "Python int", 11),
        "by_shape": ("batch[0]", "shape", 11),
        "by_object": ("config", "object", 11),
        "few_shapes": ("x", "shape", 23),
    }
    told = [one["title"] for one in run["findings"] if one["id"] == "function.retraced"]
    assert len(told) == 3
    assert not any("few_shapes" in title or "Layer" in title for title in told)
    assert b"note" not in done.stderr

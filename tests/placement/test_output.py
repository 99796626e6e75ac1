"""``run --placement`` and ``run --memory`` add nothing to a program's output, and take nothing that it switched on."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.forked import gpuwatch_forked

pytestmark = pytest.mark.tensorflow

_WORK = """
import traceback
import tensorflow as tf

@tf.function
def f(a):
    with tf.device("/GPU:0"):
        return tf.strings.join(["a", tf.as_string(a[0, 0])]), a @ a

with tf.device("/CPU:0"):
    there = tf.ones([4, 4])
print(f(tf.ones([4, 4]) + there)[0])
for _ in tf.data.Dataset.from_tensor_slices(["a"]).map(lambda s: tf.strings.join([s, "b"])):
    pass
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    print(session.run(tf.ones([2]) * 2))
    with tf.device("/CPU:0"):
        size = tf.compat.v1.placeholder(tf.int32, [1])
        refused = tf.reshape(tf.ones([4]), size)
    try:
        session.run(refused, {size: [3]})
    except tf.errors.InvalidArgumentError:
        traceback.print_exc()
    with tf.device("/GPU:0"):
        refused = tf.strings.upper(["a"])
    try:
        session.run(refused)
    except tf.errors.InvalidArgumentError:
        traceback.print_exc()
"""
_CHANGING = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+|\d{6,}\.\d+|0x[0-9a-f]+| *\b\d{3,}\b")
"""Times, process and thread numbers with the blanks that fill their column, addresses."""


def _output(folder: Path, code: str, *options: str) -> tuple[bytes, list[bytes]]:
    script = folder / "work.py"
    script.write_text(code)
    done = gpuwatch_forked(
        *("run", "-q", "--no-save", "--sim", "2x2GiB", "--sim-tier", "plugin", *options),
        *("--", sys.executable, str(script)),
        environment=dict(os.environ),
        tier="plugin",
    )
    assert done.code == 0, done.err
    lines = [line for line in done.err.encode().splitlines() if not line.startswith(b"gpuwatch: compil")]  # first use
    return done.out.encode(), sorted(_CHANGING.sub(b"N", line) for line in lines)


@pytest.mark.parametrize("own", [False, True])
def test_the_output_is_the_programs_own(own: bool, tmp_path: Path) -> None:
    first = "import tensorflow as tf; tf.debugging.set_log_device_placement(True)\n" if own else ""
    without, watched = _output(tmp_path, first + _WORK), _output(tmp_path, first + _WORK, "--placement")
    assert watched[1] == without[1]
    assert watched[0].count(b"\n") == without[0].count(b"\n")
    assert (b"StringJoin: (StringJoin)" in watched[0]) == own


def test_a_recording_of_memory_adds_nothing_to_the_output(tmp_path: Path) -> None:
    without, watched = _output(tmp_path, _WORK), _output(tmp_path, _WORK, "--memory")
    assert watched == without

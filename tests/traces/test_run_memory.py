"""``gpuwatch run --memory`` on real TensorFlow and simulated GPUs: programs as people write them, and their ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.forked import gpuwatch_forked
from tests.sim.test_plugin import PYTHON, tensorflow
from tests.traces.models import MODELS, profile, shares

_QUIET = "import os\nos.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')\nimport tensorflow as tf\n"
_OOM = (
    _QUIET
    + """
kept = []
@tf.function
def grow(x):
    return tf.concat([x, x], 0)
x = tf.ones([1 << 20, 16])
while True:
    x = grow(x)
    kept.append(x)
"""
)
_EXITS = _QUIET + "a = tf.ones([512, 512])\nfor _ in range(5): a = tf.matmul(a, a)\nos._exit(7)\n"
_PROFILES = (
    _QUIET
    + """
import sys
a = tf.ones([256, 256])
for folder in ("first", "second"):
    with tf.profiler.experimental.Profile(os.path.join(sys.argv[1], folder)):
        a = tf.matmul(a, a)
tf.profiler.experimental.server.start(0)
print("profiled")
"""
)
_FORKS = (
    _QUIET
    + """
import multiprocessing
a = tf.ones([256, 256])
def child(queue): queue.put(sum(range(100)))
fork = multiprocessing.get_context("fork")
queue = fork.Queue()
process = fork.Process(target=child, args=(queue,))
process.start()
print(queue.get(), process.join(), process.exitcode)
if (pid := os.fork()) == 0:
    os._exit(0)
print(os.waitpid(pid, 0)[1])
for _ in range(20): a = tf.matmul(a, a) * 1e-3
"""
)
_SESSION = (
    _QUIET
    + """
import numpy
tf1 = tf.compat.v1
with tf.Graph().as_default():
    x = tf1.placeholder(tf.float32, [None, 64], name="x")
    w = tf1.get_variable("w", [64, 256])
    loss = tf.reduce_mean(tf.nn.relu(tf.matmul(x, w, name="product")) ** 2)
    train = tf1.train.AdamOptimizer().minimize(loss)
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        for _ in range(50):
            session.run(train, {x: numpy.ones((512, 64))})
"""
)


def run(tmp_path: Path, code: str, *arguments: str, shape: str = "1x2GiB") -> tuple[int, str, dict[str, Any]]:
    script, output = tmp_path / "program.py", tmp_path / "run.json"
    script.write_text(code)
    options = ["-q", "--no-save", "--sim", shape, "--memory", "--json", "-o", str(output)]
    command = ("run", *options, "--", PYTHON, str(script), *arguments)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = gpuwatch_forked(*command, environment=environment, timeout=280, tier="plugin")
    assert not list(tmp_path.glob("gpuwatch-memory-*")), "a recording was left behind"
    return done.code, done.out, json.loads(output.read_text())


@tensorflow
def test_the_memory_of_a_model_is_attributed(tmp_path: Path) -> None:
    found = profile("dense", tmp_path, PYTHON)
    named, shaped = shares(found)
    assert named >= 95
    assert shaped >= 80
    assert found["device"] == "GPU:0"
    assert found["program_peak_bytes"] == pytest.approx(found["peak_bytes"], rel=0.02)
    assert {"weights", "optimizer state", "workspace"} <= set(found["groups"])
    parameters = 784 * 1024 + 1024 * 512 + 512 * 10
    assert found["groups"]["weights"] == pytest.approx(4 * parameters, rel=0.2)
    kernel = next(holder for holder in found["holders"] if holder["variable"] == "sequential/dense/kernel")
    assert (kernel["shape"], kernel["group"], kernel["requested_bytes"]) == ("[784,1024]", "weights", 4 * 784 * 1024)


@pytest.mark.long
@tensorflow
@pytest.mark.parametrize("name", [name for name in MODELS if name != "dense"])
def test_the_memory_of_every_model_is_attributed(name: str, tmp_path: Path) -> None:
    named, shaped = shares(profile(name, tmp_path, PYTHON))
    assert named >= 95
    assert shaped >= 80


@pytest.mark.slow
@tensorflow
def test_an_oom_names_who_held_the_memory(tmp_path: Path) -> None:
    code, _, found = run(tmp_path, _OOM, shape="1x1GiB")
    assert code == 1
    (memory,) = found["memory_profiles"]
    assert memory["peak_bytes"] > 0.4 * memory["limit_bytes"]
    assert shares(memory)[0] >= 95
    assert "concat" in memory["holders"][0]["op"]
    finding = next(one for one in found["findings"] if one["severity"] == "error")
    assert finding["id"] == "memory.model-too-large"
    assert any("At the recorded peak" in line and "concat" in line for line in finding["evidence"])


@pytest.mark.slow
@tensorflow
def test_a_program_that_ends_without_exit_handlers_has_no_recording_and_the_report_says_so(tmp_path: Path) -> None:
    code, _, found = run(tmp_path, _EXITS)
    assert code == 7
    assert not found["memory_profiles"]
    assert any("ended without exit handlers (os._exit, a signal)" in text for text in found["problems"]), found[
        "problems"
    ]


@pytest.mark.slow
@tensorflow
def test_a_program_that_profiles_itself_is_given_way(tmp_path: Path) -> None:
    code, out, found = run(tmp_path, _PROFILES, str(tmp_path))
    assert (code, out) == (0, "profiled\n")
    assert len(list(tmp_path.glob("*/plugins/profile/*/*.xplane.pb"))) == 2
    (memory,) = found["memory_profiles"]
    assert memory["holders"][0]["shape"] == "[256,256]"
    assert any("profiles itself" in note for note in memory["notes"])


@pytest.mark.long
@tensorflow
def test_a_program_that_forks_runs_as_without(tmp_path: Path) -> None:
    code, out, found = run(tmp_path, _FORKS)
    assert (code, out) == (0, "4950 None 0\n0\n")
    (memory,) = found["memory_profiles"]
    assert {holder["op"] for holder in memory["holders"]} >= {"MatMul", "Mul"}


@pytest.mark.long
@tensorflow
def test_a_session_of_tensorflow_1(tmp_path: Path) -> None:
    code, _, found = run(tmp_path, _SESSION)
    assert code == 0
    (memory,) = found["memory_profiles"]
    assert shares(memory)[0] >= 95
    assert {"gradients", "activations"} & set(memory["groups"])

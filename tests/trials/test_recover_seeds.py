"""Twenty programs that run out of GPU memory for different reasons: what ``--recover`` says has to hold once more."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trials.programs import document

pytestmark = [pytest.mark.tensorflow, pytest.mark.long]

_HOLD = "held = tf.Variable(tf.random.uniform([60, 1 << 18]))\nfloat(tf.reduce_sum(held))\n"
_EAGER = f"import tensorflow as tf\n{_HOLD}"
_FUNCTION = f"import tensorflow as tf\n{_HOLD}@tf.function\ndef total(): return tf.reduce_sum(held)\nfloat(total())\n"
_KERAS = """
import keras, numpy
model = keras.Sequential([keras.Input((4096,)), keras.layers.Dense(4096), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(numpy.zeros((64, 4096), "f"), numpy.zeros(64, "f"), batch_size=32, verbose=0)
"""
_SESSION = """
import tensorflow as tf
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    session.run(tf.reduce_sum(tf.random.uniform([60, 1 << 18])))
"""
_STRATEGY = """
import tensorflow as tf
with tf.distribute.OneDeviceStrategy("/GPU:0").scope():
    held = tf.Variable(tf.random.uniform([60, 1 << 18]))
float(tf.reduce_sum(held))
"""
_SECOND_GPU = f"import tensorflow as tf\nwith tf.device('/GPU:1'):\n    {_HOLD.replace(chr(10), chr(10) + '    ')}\n"


def _beside(first: str, second: str) -> str:
    """A program whose first process stays while the second works."""
    return f"""
import subprocess, sys
FIRST = {first!r} + "print('ready', flush=True); import time; time.sleep(60)"
SECOND = {second!r}
first = subprocess.Popen([sys.executable, "-c", FIRST], stdout=subprocess.PIPE)
first.stdout.readline()
code = subprocess.call([sys.executable, "-c", SECOND])
first.kill()
sys.exit(code)
"""


_SPAWNED = f"""
import multiprocessing, sys, time
def work(ready, done):
    exec({_EAGER!r}, {{}})
    ready.set()
    done.wait(60)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    child = context.Process(target=work, args=(ready, done))
    child.start()
    ready.wait(60)
    try:
        exec({_EAGER!r}, {{}})
    finally:
        done.set()
        child.join()
"""
_THREE = _beside(_EAGER, _beside(_FUNCTION, _KERAS))
_OWN_SESSION = """
import tensorflow as tf
config = tf.compat.v1.ConfigProto()
config.gpu_options.per_process_gpu_memory_fraction = 0.05
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    session.run(tf.reduce_sum(tf.random.uniform([600, 1 << 18])))
"""
_OWN_LIMIT = """
import tensorflow as tf
for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=64)])
held = tf.Variable(tf.random.uniform([300, 1 << 18]))
"""
_LEAK = """
import tensorflow as tf
held = []
while True:
    held.append(tf.random.uniform([64, 1 << 18]))
"""
_ONE_TENSOR = "import tensorflow as tf\nprint(tf.reduce_sum(tf.random.uniform([4000, 1 << 18])))\n"
_MODEL = """
import keras, numpy
layers = [keras.layers.Dense(8192) for _ in range(12)]
model = keras.Sequential([keras.Input((8192,)), *layers])
model.compile("adam", "mse")
model.fit(numpy.zeros((8, 8192), "f"), numpy.zeros((8, 8192), "f"), verbose=0)
"""

ONE, TWO = "1x2GiB", "2x2GiB"
SEEDS = {
    "eager beside eager": (ONE, _beside(_EAGER, _EAGER), "growth"),
    "Keras beside eager": (ONE, _beside(_EAGER, _KERAS), "growth"),
    "eager beside Keras": (ONE, _beside(_KERAS, _EAGER), "growth"),
    "tf.function beside tf.function": (ONE, _beside(_FUNCTION, _FUNCTION), "growth"),
    "session beside eager": (ONE, _beside(_EAGER, _SESSION), "growth"),
    "eager beside session": (ONE, _beside(_SESSION, _EAGER), "growth"),
    "strategy beside Keras": (ONE, _beside(_KERAS, _STRATEGY), "growth"),
    "a spawned child": (ONE, _SPAWNED, "growth"),
    "three processes": (ONE, _THREE, "growth"),
    "tf.function beside eager": (ONE, _beside(_EAGER, _FUNCTION), "growth"),
    "both on GPU 1": (TWO, _beside(_SECOND_GPU, _SECOND_GPU), "growth"),
    "eager, another program on GPU 0": (TWO, _EAGER, "visible=1"),
    "Keras, another program on GPU 0": (TWO, _KERAS, "visible=1"),
    "session, another program on GPU 0": (TWO, _SESSION, "visible=1"),
    "strategy, another program on GPU 0": (TWO, _STRATEGY, "visible=1"),
    "a session's own fraction": (ONE, _OWN_SESSION, ""),
    "its own limit": (ONE, _OWN_LIMIT, ""),
    "tensors that are kept": (ONE, _LEAK, ""),
    "one tensor": (ONE, _ONE_TENSOR, ""),
    "a model too large": (ONE, _MODEL, ""),
}


@contextmanager
def _tenant(machine: str, wanted: bool) -> Iterator[None]:
    """Another program that has taken all of GPU 0."""
    if not wanted:
        yield
        return
    code = _EAGER + "print('ready', flush=True); import time; time.sleep(3000)"
    command = [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save", "--sim", machine, "--", sys.executable]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0"}
    holder = subprocess.Popen(
        [*command, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
    finally:
        holder.terminate()
        holder.wait(30)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", SEEDS)
def test_what_is_called_verified_passes_again(name: str, tmp_path: Path) -> None:
    shape, text, expected = SEEDS[name]
    machine = f"{shape}@{uuid.uuid4().hex[:8]}"
    script = tmp_path / "train.py"
    script.write_text(text)
    command = [sys.executable, str(script)]
    with _tenant(machine, expected == "visible=1"):
        found = document("--recover", "--share", "--budget", "6min", "--sim", machine, "--", *command)
        answer = found["answer"]
        assert answer.get("best", "") == expected, answer
        if not expected:
            assert not any(entry["verified"] for entry in found["recover"])
            return
        variables = dict(line.removeprefix("export ").split("=", 1) for line in answer["code"])
        again = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save", "--sim", machine, "--", *command],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert again.returncode == 0, again.stderr[-2000:]

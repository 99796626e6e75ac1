"""The loops of the workloads, written by hand without gpuwatch, and the probe's number beside them.

``python -m tests.probes.by_hand [matmul|mlp]`` prints both and their ratio. Benchmarks use
:func:`compare`; nothing asserts on it, because a busy machine moves both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

from gpuwatch.experiment.probing.probe_scripts import probe_folder

_MATMUL = """
import sys, time
import tensorflow as tf
n, seconds = int(sys.argv[1]), float(sys.argv[2])
a, b = tf.random.uniform([n, n]), tf.random.uniform([n, n])
def steps(count):
    began = time.perf_counter()
    for _ in range(count):
        c = tf.matmul(a, b)
    c[0, 0].numpy()
    return (time.perf_counter() - began) / count
"""
_MLP = """
import sys, time
import tensorflow as tf
n, seconds = int(sys.argv[1]), float(sys.argv[2])
batch = max(32, n // 8)
model = tf.keras.Sequential([
    tf.keras.Input([64]),
    tf.keras.layers.Dense(n, activation="relu"),
    tf.keras.layers.Dense(n, activation="relu"),
    tf.keras.layers.Dense(1),
])
model.compile(optimizer=tf.keras.optimizers.SGD(0.01), loss="mse", jit_compile=False)
x, y = tf.random.uniform([batch, 64]), tf.random.uniform([batch, 1])
def steps(count):
    began = time.perf_counter()
    for _ in range(count):
        model.train_on_batch(x, y)
    return (time.perf_counter() - began) / count
"""
_LOOP = """
steps(5)
count = max(1, int(0.04 / steps(5)))
until = time.perf_counter() + 0.3 * seconds
while time.perf_counter() < until:
    steps(count)
blocks, until = [], time.perf_counter() + seconds
while len(blocks) < 20 or time.perf_counter() < until:
    blocks.append(steps(count))
print(sorted(blocks)[len(blocks) // 2])
"""
_BY_HAND = {"matmul": _MATMUL + _LOOP, "mlp": _MLP + _LOOP}


class Comparison(NamedTuple):
    """Seconds per step, each that of its quietest round."""

    by_hand: float
    probe: float

    @property
    def ratio(self) -> float:
        """Above 1: the probe says that a step takes longer than it does by hand."""
        return self.probe / self.by_hand


def compare(
    workload: str, *, python: str = sys.executable, size: int = 1024, seconds: float = 2.0, rounds: int = 5
) -> Comparison:
    """Both in turn, ``rounds`` times; the best of each, because what else the machine does only adds."""
    hand, probe = [], []
    for _ in range(rounds):
        hand.append(_loop(workload, python, size, seconds))
        probe.append(_probe(workload, python, size, seconds))
    return Comparison(min(hand), min(probe))


def _loop(workload: str, python: str, size: int, seconds: float) -> float:
    command = [python, "-c", _BY_HAND[workload], str(size), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _probe(workload: str, python: str, size: int, seconds: float) -> float:
    read, write = os.pipe()
    options = {"size": size, "seconds": seconds, "workload": workload}
    environment = {**os.environ, "GPUWATCH_EVENT_FD": str(write), "GPUWATCH_PROBE_OPTIONS": json.dumps(options)}
    command = [python, str(probe_folder() / "default.py")]
    with subprocess.Popen(
        command, env=environment, pass_fds=(write,), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ):
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            events = [json.loads(line) for line in stream]
    (throughput,) = (event["data"] for event in events if event["kind"] == "throughput")
    return float(throughput["median_step_seconds"])


if __name__ == "__main__":
    for name in sys.argv[1:] or _BY_HAND:
        found = compare(name)
        print(
            f"{name:8} by hand {found.by_hand * 1e3:.3f} ms, probe {found.probe * 1e3:.3f} ms, ratio {found.ratio:.3f}"
        )

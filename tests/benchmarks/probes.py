"""What the probes and ``run`` cost: ``python -m tests.benchmarks.probes``. Prints ratios, tests nothing.

Throughput beside the same loop written by hand (bar: within 3 %), probes forked from a template beside
fresh interpreters (bar: 4 times, aim: 6), a training under ``gpuwatch run`` beside itself (bar: 2 %).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.probes import by_hand

_GROUPS = ("--group", "memory", "--group", "visibility", "--group", "placement")
_TRAIN = """
import sys, time
import tensorflow as tf
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Dense(512, activation="relu"), tf.keras.layers.Dense(10)])
model.compile(optimizer="adam", loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
x = tf.random.stateless_uniform([8192, 256], seed=[1, 2])
y = tf.cast(tf.reduce_sum(x, 1), tf.int32) % 10
model.fit(x, y, batch_size=64, epochs=2, verbose=0)
began = time.perf_counter()
model.fit(x, y, batch_size=64, epochs=int(sys.argv[1]), verbose=0)
print(time.perf_counter() - began)
"""


def fresh_and_forked(environment: dict[str, str], rounds: int) -> None:
    """The best of each: the first run of a round may wait for memory that a virtual machine has given back."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    count = 0
    for fresh in (False, True) * rounds:
        began = time.monotonic()
        arguments = ["probe", *_GROUPS, "--seconds", "0.05", "--json", *(["--fresh"] if fresh else [])]
        done = subprocess.run(
            [sys.executable, "-m", "gpuwatch", *arguments], env=environment, capture_output=True, check=True
        )
        seconds[fresh].append(time.monotonic() - began)
        count = len(json.loads(done.stdout)["runs"])
    best = {fresh: min(taken) for fresh, taken in seconds.items()}
    pairs = sorted(slow / fast for slow, fast in zip(seconds[True], seconds[False], strict=True))
    print(
        f"{count} probes: fresh {best[True]:.1f} s / forked {best[False]:.1f} s = {best[True] / best[False]:.1f} times"
    )
    print(f"    the pairs: {' '.join(f'{ratio:.1f}' for ratio in pairs)} (bar 4, aim 6)", flush=True)


def watched(rounds: int, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(_TRAIN)
        command = [sys.executable, str(script), str(epochs)]
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for under in (False, True):
                prefix = [sys.executable, "-m", "gpuwatch", "run", "-q", "--"] if under else []
                done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=True)
                times[under].append(float(done.stdout))
    ratio = min(times[True]) / min(times[False])
    spread = statistics.median(times[False]) / min(times[False])
    print(f"a training under gpuwatch run / alone: {ratio:.3f} (bar 1.02; alone varies by {spread:.2f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    machine = SimMachine.open(SimShape.parse("2x24GiB"), name=f"benchmark-{os.getpid()}")
    try:
        fresh_and_forked(machine.environment(os.environ), arguments.rounds)
    finally:
        machine.remove()
    for workload in ("matmul", "mlp"):
        found = by_hand.compare(workload, rounds=arguments.rounds)
        print(f"{workload}: a probe's step / by hand = {found.ratio:.3f} (bar 1.03)", flush=True)
    watched(arguments.rounds, arguments.epochs)


if __name__ == "__main__":
    main()

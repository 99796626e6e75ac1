"""What ``gpuwatch run`` costs a program: ``python -m tests.benchmarks.watch``. Prints ratios, tests nothing.

The same program alone and watched, by turns (ABBA…), so that a machine on which others work gives a bound
all the same: each ratio is of two neighbours, and the median of the ratios stands beside their quartiles.

* ``best``: wall time of the fastest epoch of a real Keras training, as the training measures it: what others do on
  the machine does not reach it
* ``step``: the median epoch in its steady state
* ``step CPU``: processor seconds of the training's own process for it (its watching thread included)
* ``wall``, ``CPU``: the whole program with start and end; CPU of every process, gpuwatch's own included

* ``host memory``: the largest resident set of the training's own process

Bar: a step 2 % slower at most. ``--short`` measures what ``python -c pass`` costs, ``--memory`` what ``run --memory``
costs more than ``run``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine

_TRAIN = """
import json, sys, time
import tensorflow as tf

epochs, width, verbose = map(int, sys.argv[1:4])
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Dense(width, activation="relu"), tf.keras.layers.Dense(10)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, jit_compile=False)
x = tf.random.stateless_uniform([4096, 256], seed=[1, 2])
y = tf.cast(tf.reduce_sum(x, 1), tf.int32) % 10
marks = []


class Mark(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        marks.append((time.perf_counter(), time.process_time()))


model.fit(x, y, batch_size=64, epochs=epochs, verbose=verbose, callbacks=[Mark()])
import resource
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
gaps = [[after[k] - before[k] for before, after in zip(marks[2:], marks[3:])] for k in (0, 1)]
open(sys.argv[4], "w").write(json.dumps([*gaps, rss]))
"""

Costs = dict[str, float]


def measure(command: list[str], environment: dict[str, str], result: Path | None) -> Costs:
    """One execution: wall and processor seconds, and what the program measured itself."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        done = subprocess.run(command, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
        wall = time.perf_counter() - began
        if done.returncode:
            out.seek(0)
            sys.exit(f"{command} ended with {done.returncode}: {out.read()[-2000:].decode('utf-8', 'replace')}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    costs = {"wall": wall, "CPU": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}
    if result is not None:
        steps, cpu, rss = json.loads(result.read_text())
        costs |= {
            "best": min(steps),
            "step": statistics.median(steps),
            "step CPU": statistics.median(cpu),
            "host memory": rss / 1024,
        }
    return costs


RUN = [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save"]


def by_turns(
    name: str,
    command: list[str],
    environment: dict[str, str],
    rounds: int,
    result: Path | None,
    *,
    memory: bool = False,
) -> None:
    """``memory``: compares ``run --memory`` with ``run`` instead of ``run`` with the program alone."""
    watched = [*RUN, *(["--memory"] if memory else []), "--", *command]
    plain = [*RUN, "--", *command] if memory else command
    ratios: dict[str, list[float]] = {}
    alone: dict[str, list[float]] = {}
    for number in range(rounds):
        order = (False, True) if number % 2 == 0 else (True, False)
        pair = {under: measure(watched if under else plain, environment, result) for under in order}
        for what, seconds in pair[False].items():
            ratios.setdefault(what, []).append(pair[True][what] / seconds)
            alone.setdefault(what, []).append(seconds)
    print(f"{name}: {rounds} pairs")
    for what, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        note = "  (bar 1.02)" if what in {"best", "step"} and not memory else ""
        base = statistics.median(alone[what])
        unit = "MiB" if what == "host memory" else "s"
        print(
            f"  {what:11} x {middle:.3f}  (quartiles {low:.3f} to {high:.3f}; alone {base:.4f} {unit}){note}",
            flush=True,
        )


def own(python: str, environment: dict[str, str], seconds: int = 20) -> None:
    """What a machine full of others cannot blur: processor seconds of gpuwatch itself per second of watching."""
    run = [sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save", "--"]
    spent = {n: measure([*run, "sleep", str(n)], environment, None)["CPU"] for n in (1, 1 + seconds)}
    print(f"gpuwatch's processes: {100 * (spent[1 + seconds] - spent[1]) / seconds:.2f} % of a core", end="")
    print(f", and {spent[1]:.2f} s to start and end")
    code = _THREAD.replace("SECONDS", str(seconds))
    done = subprocess.run([*run, python, "-c", code], env=environment, capture_output=True, text=True, check=True)
    print(f"its thread in the program: {100 * float(done.stdout.split()[-1]):.2f} % of a core", flush=True)


# The thread that looks is the second of the process: it starts before TensorFlow has any.
_THREAD = """
import os, time
import tensorflow as tf
thread = sorted(map(int, os.listdir("/proc/self/task")))[1]
@tf.function
def step(x):
    return tf.matmul(x, x)
x = step(tf.random.uniform([512, 512])) * 1e-9
def spent():
    fields = open("/proc/self/task/%d/stat" % thread).read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
time.sleep(30)  # it looks more often at first
before, began = spent(), time.monotonic()
while time.monotonic() - began < SECONDS:
    step(x)
print((spent() - before) / SECONDS)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--width", type=int, default=512, help="of the hidden layer: how long a step takes")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has TensorFlow")
    parser.add_argument("--verbose", type=int, default=1, help="Keras's progress: 1 is the bar")
    parser.add_argument(
        "--short", action="store_true", help="only a program that does nothing, and gpuwatch's own part"
    )
    parser.add_argument(
        "--memory", action="store_true", help="what run --memory costs more than run, on simulated GPUs"
    )
    options = parser.parse_args()
    if not options.memory:
        own(options.python, dict(os.environ))
        by_turns("python -c pass", [options.python, "-c", "pass"], dict(os.environ), 4 * options.rounds, None)
    if options.short:
        return
    with tempfile.TemporaryDirectory() as folder:
        script, result = Path(folder) / "train.py", Path(folder) / "result.json"
        script.write_text(_TRAIN)
        numbers = [str(options.epochs), str(options.width), str(options.verbose)]
        command = [options.python, str(script), *numbers, str(result)]
        if not options.memory:
            by_turns("training on the CPU", command, dict(os.environ), options.rounds, result)
        machine = SimMachine.open(SimShape.parse("1x8GiB"), tier="plugin", name=f"watch-{os.getpid()}")
        try:
            environment = machine.environment(os.environ, tier="plugin")
            name = "training on a simulated GPU (it computes on this CPU)"
            by_turns(name, command, environment, options.rounds, result, memory=options.memory)
        finally:
            machine.remove()


if __name__ == "__main__":
    main()

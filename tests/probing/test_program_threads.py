"""What a program does that no log tells: traces, waits for its input, steps that stop, workers that are killed."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.forked import gpuwatch_forked, start_gpuwatch_forked
from tests.probing.test_watcher import load
from tests.probing.watched import read, started, watched, with_torch

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
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(_TRACES)
    command = ("run", "-q", "--no-save", "-o", str(out), "--", sys.executable, str(script))
    done = gpuwatch_forked(*command, environment=dict(os.environ))
    assert done.code == 0, done.err
    run = read(out)
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
    assert "note" not in done.err


_WAITS = """
import queue, sys, time
import tensorflow as tf

weight = tf.Variable(tf.ones([4, 1]))
numbers = queue.Queue()


@tf.function
def step(x):
    return weight.assign_sub(0.01 * weight)


def batches():
    for _ in range(40):
        time.sleep(0.15)
        yield tf.ones([2, 4])


def fetch():
    return numbers.get()


for batch in batches():
    step(batch)
print("last step", flush=True)
fetch()
"""


@pytest.mark.tensorflow
def test_a_generator_that_is_slow_and_then_a_queue_that_stays_empty(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(_WAITS)
    command = ("run", "-q", "--no-save", "-o", str(out), "--", sys.executable, str(script))
    process = start_gpuwatch_forked(*command, environment=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline() == "last step\n"
    time.sleep(18)  # steps have stopped for longer than is reported as a stall
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    run = read(out)
    assert run["waiting"]["places"][0].startswith("train.py:16 in batches")
    assert run["waiting"]["input_seconds"] > 0.6 * run["waiting"]["looked_seconds"]
    (stopped,) = [one for one in run["findings"] if one["id"] == "program.stalled"]
    assert stopped["title"].endswith(" at train.py:21 in fetch")
    assert any("queue.py" in line for line in stopped["evidence"])


# Looks, without a framework


class _Stub:
    """What Threads needs of the watcher."""

    def __init__(self) -> None:
        self.count = 10
        self.thread = threading.main_thread().ident
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.lines = load("_gpuwatch_program_lines")

    def steps(self) -> int:
        return self.count

    progress = steps

    def stepping_thread(self) -> int | None:
        return self.thread

    def emit(self, kind: str, **data: Any) -> None:
        self.sent.append((kind, data))

    def changed(self, key: str, kind: str, **data: Any) -> None:
        self.emit(kind, **data)


def _library(folder: Path, path: str, code: str) -> dict[str, Any]:
    """A module of a framework, as far as its file's name tells."""
    names: dict[str, Any] = {}
    file = folder / "site-packages" / path
    exec(compile(code, str(file), "exec"), names)
    return names


def _apart(look: Callable[[], object]) -> None:
    """Looks from another thread, as the watcher does."""
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()


def _looked(body: Callable[[Callable[[], None]], None]) -> dict[str, Any]:
    """What is told of a program: ``body`` calls what it is given where it is looked at, with a step after each look."""
    stub = _Stub()
    threads = load("_gpuwatch_thread_stacks").Threads(stub)
    _apart(threads.look)

    def look() -> None:
        time.sleep(0.002)  # between two looks time passes
        _apart(threads.look)
        stub.count += 1
        _apart(threads.look)

    body(look)
    threads.tell(None)
    return stub.sent[-1][1]


def _share(told: dict[str, Any]) -> float:
    return float(told["input_seconds"]) / float(told["looked_seconds"])


def test_a_generator_is_input_unless_it_makes_the_steps(tmp_path: Path) -> None:
    calls = _library(tmp_path, "eager/polymorphic_function/polymorphic_function.py", "def call(f): f()")

    def batches(look: Callable[[], None]) -> Iterator[None]:
        for _ in range(5):
            look()
            yield

    def training(look: Callable[[], None]) -> Iterator[None]:
        for _ in range(5):
            look()
            calls["call"](look)
            yield

    def elsewhere(look: Callable[[], None]) -> None:
        for _ in iter(range(5)):
            look()

    told = _looked(lambda look: list(batches(look)) and None)
    assert _share(told) > 0.8
    assert "in _apart" in told["places"][0]
    assert _share(_looked(lambda look: list(training(look)) and None)) == 0.0
    assert _share(_looked(elsewhere)) == 0.0


def test_an_iterator_of_a_framework_is_input_and_a_dataset_that_runs_python_feeds(tmp_path: Path) -> None:
    loader = _library(tmp_path, "torch/utils/data/dataloader.py", "def __next__(f): f()\ndef _reset(f): f()")
    assert _share(_looked(loader["__next__"])) > 0.5
    assert _share(_looked(loader["_reset"])) == 0.0
    feeds = _library(tmp_path, "tensorflow/python/ops/script_ops.py", "def call(f): f()")
    entered, over = threading.Event(), threading.Event()

    def rows() -> None:
        entered.set()
        over.wait(10)

    thread = threading.Thread(target=feeds["call"], args=(rows,))
    thread.start()
    entered.wait(10)
    told = _looked(lambda look: look())
    over.set()
    thread.join()
    assert told["feeding_seconds"] == pytest.approx(told["looked_seconds"])
    assert "in rows" in told["feeds"][0]
    assert told["input_seconds"] == 0.0


def test_code_of_the_program_between_steps_is_told_unless_it_saves_or_is_a_frameworks(tmp_path: Path) -> None:
    def load_batch(look: Callable[[], None]) -> None:
        look()

    def save_weights(look: Callable[[], None]) -> None:
        look()

    told = _looked(load_batch)
    assert told["between_seconds"] == pytest.approx(told["looked_seconds"])
    assert _looked(save_weights)["between_seconds"] == 0.0
    for path in ("tensorflow/python/ops/io_ops.py", "keras/src/trainers/trainer.py", "torch/optim/optimizer.py"):
        assert _looked(_library(tmp_path, path, "def read(f): f()")["read"])["between_seconds"] == 0.0


def test_a_program_in_a_folder_named_as_pythons_is_no_library() -> None:
    lines = load("_gpuwatch_program_lines")
    own = (f"/home/u/python{sys.version_info[0]}.{sys.version_info[1]}/train.py", "train.py", "<string>", "<stdin>")
    assert [file for file in own if lines.is_library(file)] == []
    others = (os.__file__, threading.__file__, pytest.__file__, lines.__file__, "<frozen runpy>", "/x/keras/src/a.py")
    assert [file for file in others if not lines.is_library(file)] == []
    assert lines.innermost_place(sys._getframe()).startswith("test_program_threads.py:")


def test_threads_are_told_once_steps_stop_and_no_more_when_they_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("_gpuwatch_thread_stacks")
    monkeypatch.setattr(module, "_MIN_STOPPED_SECONDS", 0.02)
    monkeypatch.setattr(module, "_REPORT_EVERY_SECONDS", 0.0)
    stub = _Stub()
    threads = module.Threads(stub)

    def looks() -> None:
        for _ in range(12):
            threads.look()
            time.sleep(0.01)  # longer than _STOPPED in all

    _apart(looks)
    kind, standing = stub.sent[-1]
    assert kind == "standing"
    assert standing["steps"] == 10
    (main,) = (one for one in standing["threads"] if one["name"] == "MainThread")
    assert main["place"].rpartition(" ")[2] == "_apart"
    assert not any("looks" in one["place"] for one in standing["threads"]), "not that of the watcher"
    stub.count += 1
    threads.look()
    assert stub.sent[-1] == ("standing", {"since": None})


def test_a_look_keeps_nothing_of_the_program_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that live longer than without gpuwatch would take GPU memory."""
    module = load("_gpuwatch_thread_stacks")
    monkeypatch.setattr(module, "_MIN_STOPPED_SECONDS", 0.0)
    monkeypatch.setattr(module, "_REPORT_EVERY_SECONDS", 0.0)
    threads = module.Threads(_Stub())

    def work() -> weakref.ref[Any]:
        tensor = type("Tensor", (), {})()
        _apart(lambda: [threads.look() for _ in range(4)])
        return weakref.ref(tensor)

    gc.disable()
    try:
        assert work()() is None
    finally:
        gc.enable()


# Children that are killed

_CHILDREN = """
import multiprocessing, os, signal, subprocess, sys


def work(number):
    import torch
    torch.hold(1)
    os.kill(os.getpid(), number)


if __name__ == "__main__":
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = multiprocessing.get_context("spawn").Process(target=work, args=(number,))
        process.start()
        process.join()
        print(process.pid)
    crash = "import os, time, torch; torch.hold(1); time.sleep(0.5); os.kill(os.getpid(), 11)"
    process = subprocess.Popen([sys.executable, "-c", crash])
    print(process.pid, process.returncode is None, hasattr(subprocess.Popen, "returncode"), process.wait())
    wait = "import time, torch; torch.hold(1); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    print(process.pid, process.wait())
    subprocess.run(["sh", "-c", "kill -9 $$"])
"""


def test_a_child_that_a_signal_ended_although_its_parent_exits_with_0(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_CHILDREN)
    arguments = ("--no-save", "-o", "run.json", "--", sys.executable, "train.py")
    done = watched(*arguments, cwd=tmp_path, env=with_torch(tmp_path))
    assert done.returncode == 0, done.stderr
    killed, _, crashed, _ = (line.split() for line in done.stdout.decode().splitlines())
    assert crashed[1:] == ["True", "False", "-11"]
    run = read(tmp_path / "run.json")
    found = {one["pid"]: (one["signal"], one["framework"]) for one in run["killed_children"]}
    assert found == {int(killed[0]): (9, found[int(killed[0])][1]), int(crashed[0]): (11, True)}
    (told,) = [one for one in run["findings"] if one["id"] == "unknown"]
    assert f" process {killed[0]} and 1 more" in told["title"]
    assert any(f"process {crashed[0]}: SIGSEGV" in line for line in told["evidence"])
    assert run["verdict_reason"].startswith("It exited with code 0, ")


# Stages of datasets


def test_the_busiest_stage_of_a_dataset_by_what_tensorflow_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parallel calls that work 1.8 s of a second each are busy nine tenths of it; validation's iterator rests."""
    module = load("_gpuwatch_pipelines")

    class EagerTensor:
        def __init__(self) -> None:
            self.elements, self.worked = 0, {1: 0.0, 2: 0.0}

        def numpy(self) -> EagerTensor:
            return self

    class OwnedIterator:
        def __init__(self, resource: EagerTensor, enabled: bool | None = None) -> None:
            self._iterator_resource = resource
            self._dataset = SimpleNamespace(options=lambda: SimpleNamespace(autotune=SimpleNamespace(enabled=enabled)))
            if resource is not unmade:
                self._get_next_call_count = 0  # set when TensorFlow has made the iterator

    asked = []

    def ask(resource: EagerTensor) -> EagerTensor:
        asked.append(resource)
        return resource

    def model(read: EagerTensor) -> SimpleNamespace:
        parallel = [SimpleNamespace(name="parallelism", state_value=0.0, value=2.0)]
        nodes = {
            1: SimpleNamespace(num_elements=read.elements, processing_time=0, parameters=[], name="Root"),
            2: SimpleNamespace(num_elements=0, processing_time=read.worked[2] * 1e9, parameters=parallel, name="Map"),
        }
        return SimpleNamespace(nodes=nodes, output=1)

    proto = SimpleNamespace(FromString=model)
    monkeypatch.setitem(sys.modules, module._PROTO, SimpleNamespace(ModelProto=proto))
    monkeypatch.setitem(sys.modules, module._OPS, SimpleNamespace(iterator_get_model_proto=ask))
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(module, "time", clock)
    stub = _Stub()
    stub.context = lambda: SimpleNamespace(log_device_placement=False)  # type: ignore[attr-defined]
    stub.started_before_fork = False  # type: ignore[attr-defined]
    pipelines = module.Pipelines(stub)
    pipelines.actions[module._ITERATORS](SimpleNamespace(OwnedIterator=OwnedIterator))
    read, resting, unmade, untuned = EagerTensor(), EagerTensor(), EagerTensor(), EagerTensor()
    kept = [OwnedIterator(read), OwnedIterator(resting), OwnedIterator(unmade), OwnedIterator(untuned, enabled=False)]
    for look in range(6):
        stub.count = 18 + look * 2  # the first look is too early
        pipelines.tell(None)
        clock.now += 1.0
        read.elements += 5
        read.worked[2] += 1.8
    assert stub.sent[-1] == ("pipeline", {"seconds": 4.0, "busy_seconds": 3.6, "stage": "Map"})
    assert {*map(id, asked)} == {id(read), id(resting)}
    kept.clear()
    pipelines.tell(None)
    stub.started_before_fork = True  # type: ignore[attr-defined]
    kept.append(OwnedIterator(read))
    for _ in range(3):
        clock.now += 1.0
        pipelines.tell(None)
    assert len(stub.sent) == 4


_SLOW_MAP = """
import tensorflow as tf

def load(number):
    made = tf.random.stateless_uniform([500, 500], [1, tf.cast(number, tf.int32)])
    for _ in range(40):
        made = tf.linalg.matmul(made, made) / 500.0
    return tf.fill([16, 1], tf.reduce_sum(made)), tf.ones([16, 1])

model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
model.fit(tf.data.Dataset.range(400).map(load), verbose=0)
"""


@pytest.mark.long
@pytest.mark.tensorflow
def test_a_slow_map_in_a_graph(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_SLOW_MAP)
    sim = ("--sim", "1x4GiB", "--sim-tier", "plugin")
    process = started("-q", "--no-save", *sim, "-o", "run.json", "--", sys.executable, "train.py", cwd=tmp_path)
    assert process.wait(300) == 0
    (found,) = [one for one in read(tmp_path / "run.json")["findings"] if one["id"] == "input.bound"]
    assert "the dataset's stage" in found["title"]

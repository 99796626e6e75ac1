"""Small programs that request devices; each says which of its ops cannot have been there.

``python placement_programs.py FILE`` runs each in a fork, so that TensorFlow is imported once, and writes to FILE what
is true of each: its lines, and (op, requested, actual) by the device of the tensor, variable or table itself.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

Told = set[tuple[str, str, str]]
PROGRAMS: dict[str, Callable[[Told], None]] = {}
BOTH = ("AsString", "StringJoin")
"""Ops on strings, which have no GPU kernel."""


def program(function: Callable[[Told], None]) -> Callable[[Told], None]:
    PROGRAMS[function.__name__] = function
    return function


def where(thing: Any) -> str:
    spec = tf.DeviceSpec.from_string(thing if isinstance(thing, str) else thing.device)
    return f"{spec.device_type}:{spec.device_index}"


def words(value: Any) -> Any:
    return tf.strings.join(["n", tf.as_string(value)])


def on_cpu(told: Told, *gpus: int, ops: tuple[str, ...] = BOTH) -> None:
    told.update((op, f"GPU:{gpu}", "CPU:0") for gpu in gpus for op in ops)


@program
def op_without_a_kernel(told: Told) -> None:
    with tf.device("/GPU:0"):
        text = tf.strings.upper("a")
    told.add(("StringUpper", "GPU:0", where(text)))


@program
def gpu_that_is_not_there(told: Told) -> None:
    value = tf.ones([2, 2])
    with tf.device("/device:GPU:6"):
        product = value @ value
    told.add(("MatMul", "GPU:6", where(product)))


@program
def nobody_asked(told: Told) -> None:
    words(1.0)
    tf.function(words)(2.0)


@program
def cpu_was_asked(told: Told) -> None:
    with tf.device("/GPU:0"), tf.device("CPU:0"):
        words(1.0)
    with tf.device("/GPU:0"), tf.device(None):
        words(1.0)


@program
def scope_by_hand(told: Told) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(tf.device("/GPU:1"))
        words(3.0)
    on_cpu(told, 1)


@program
def whole_number_variable(told: Told) -> None:
    with tf.device("/GPU:0"):
        kept = tf.Variable("x")
    told.add(("VarHandleOp", "GPU:0", where(kept)))
    told.add(("AssignVariableOp", "GPU:0", where(kept)))


@program
def used_from_the_other_gpu(told: Told) -> None:
    with tf.device("/GPU:1"):
        kept = tf.Variable(1.0)
    with tf.device("/GPU:0"):
        kept.assign_add(1.0, read_value=False)
    told.add(("AssignAddVariableOp", "GPU:0", where(kept)))


@program
def table_of_strings(told: Told) -> None:
    with tf.device("/GPU:0"):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    table.insert(["a"], [1])
    made = where(table.resource_handle)
    told.update((op, "GPU:0", made) for op in ("MutableHashTableV2", "LookupTableExportV2"))  # it reads its shapes


@program
def scope_in_a_function(told: Told) -> None:
    @tf.function
    def inside(value: Any) -> Any:
        with tf.device("/GPU:1"):
            return words(value)

    inside(tf.constant(1.0))
    on_cpu(told, 1)


@program
def scope_around_a_function(told: Told) -> None:
    traced = tf.function(lambda value: words(value))
    value = tf.constant(1.0)
    traced(value)
    with tf.device("/GPU:1"):
        traced(value)
    on_cpu(told, 1)


@program
def one_of_two_alike(told: Told) -> None:
    @tf.function
    def asks(value: Any) -> Any:
        with tf.device("/GPU:0"):
            return words(value)

    @tf.function
    def asks_not(value: Any) -> Any:
        return words(value)

    asks_not(tf.constant(1.0))
    asks(tf.constant(1.0))
    on_cpu(told, 0)


@program
def function_called_twice(told: Told) -> None:
    called = tf.function(lambda value: words(value))

    @tf.function
    def outer(value: Any) -> Any:
        with tf.device("/GPU:0"):
            first = called(value)
        with tf.device("/GPU:1"):
            return first, called(value + 1.0)  # equal ops on one device would be merged

    outer(tf.constant(1.0))
    on_cpu(told, 0, 1)


@program
def loop_and_branch(told: Told) -> None:
    @tf.function
    def turns(number: Any) -> Any:
        text = tf.constant("")
        for _ in tf.range(number):
            if number > 1:
                with tf.device("/GPU:0"):
                    text = tf.strings.join([text, "a"])
        return text

    turns(tf.constant(3))
    on_cpu(told, 0, ops=("StringJoin",))


@program
def function_that_is_not_inlined(told: Told) -> None:
    called = tf.function(lambda value: words(value), experimental_attributes={"_noinline": True})

    @tf.function
    def outer(value: Any) -> Any:
        with tf.device("/GPU:1"):
            return called(value)

    outer(tf.constant(1.0))
    on_cpu(told, 1)


@program
def map_of_a_dataset(told: Told) -> None:
    def add(text: Any) -> Any:
        with tf.device("/GPU:0"):
            return tf.strings.join([text, "b"])

    list(tf.data.Dataset.from_tensor_slices(["a", "c"]).map(add))
    on_cpu(told, 0, ops=("StringJoin",))


@program
def thread_of_its_own(told: Told) -> None:
    def work() -> None:
        with tf.device("/GPU:0"):
            words(1.0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    on_cpu(told, 0)


@program
def session_of_version_1(told: Told) -> None:
    v1 = tf.compat.v1
    for device in ("/GPU:0", None):
        with tf.Graph().as_default():
            with tf.device(device):
                text = words(v1.placeholder(tf.float32, [], name="p"))
            with v1.Session(config=v1.ConfigProto(allow_soft_placement=True)) as session:
                session.run(text, {"p:0": 1.0})
    on_cpu(told, 0)


@program
def replicas(told: Told) -> None:
    strategy = tf.distribute.MirroredStrategy(["/GPU:0", "/GPU:1"])
    with strategy.scope():
        tf.Variable(1)

    @tf.function
    def step() -> Any:
        def one() -> Any:
            with tf.device("/GPU:0"):
                return words(tf.random.uniform([]))

        return strategy.run(one)

    step()
    on_cpu(told, 0)


def _one(name: str, queue: Any) -> None:
    told: Told = set()
    PROGRAMS[name](told)
    first = PROGRAMS[name].__code__.co_firstlineno
    queue.put((name, first, sorted(entry for entry in told if entry[1] != entry[2])))


def main() -> None:
    context = multiprocessing.get_context("fork")
    truth = []
    for name in PROGRAMS:
        queue = context.SimpleQueue()
        process = context.Process(target=_one, args=(name, queue))
        process.start()
        process.join(60)
        if process.exitcode != 0:
            sys.exit(f"{name} failed")
        truth.append(queue.get())
    Path(sys.argv[1]).write_text(json.dumps(truth))


if __name__ == "__main__":
    main()

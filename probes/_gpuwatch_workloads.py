"""The workloads that probes measure, in TensorFlow 2, Keras and TF1 sessions.

* ``matmul``: a float32 matrix product, in FLOP/s.
* ``mlp``, ``conv``, ``lstm``: Keras trains a small network, in examples/s; the loss must fall.
* ``copy``: copies from host to device, device to host, device to device, in bytes/s.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time

import _gpuwatch_timing as timing

NAMES = ("matmul", "mlp", "conv", "lstm", "copy")
TRAINING = ("mlp", "conv", "lstm")
FLOAT_BYTES = 4

# Graph nodes that do no work themselves.
_PLUMBING = ("_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv")
_PLUMBING += ("Const", "NoOp", "Identity", "Placeholder", "StatefulPartitionedCall", "PartitionedCall", "While")
_PLUMBING += ("SyncDevice", "Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond", "VariableShape")

# Nodes of input pipelines and loops.
_DATA = re.compile("Dataset|Iterator|^Optional|^TensorList|^EmptyTensorList|^__")


def sizes(workload, options):
    """The sizes of a workload, all derived from ``size``."""
    size = int(options.get("size", 1024))
    if workload == "matmul":
        return {"size": size}
    if workload == "copy":
        return {"bytes": int(options.get("bytes", min(256 << 20, 16 * FLOAT_BYTES * size * size)))}
    found = {"batch": max(16, size // 16), "learning_rate": 0.01, "jit_compile": False}
    if workload == "mlp":
        found.update(batch=max(32, size // 8), features=64, units=size)
    elif workload == "conv":
        found.update(image=16 if size <= 1024 else 64, filters=max(8, size // 64))
    elif workload == "lstm":
        found.update(timesteps=16, features=8, units=max(16, size // 16))
    else:
        return {}
    return {name: options.get(name, default) for name, default in found.items()}


def run(probe, tf, workload, device=None):
    """Runs and reports ``workload``; returns the device where it ran."""
    probe.options.update(sizes(workload, probe.options))
    if workload == "matmul":
        return _matmul(probe, tf, device)
    if workload == "copy":
        return _copy(probe, tf, device)
    if workload in TRAINING:
        with scope(tf, device):
            model = keras_model(tf, workload, probe.options)
        return train(probe, tf, model, device)
    raise ValueError("no such workload: %s" % workload)


# -- matmul -----------------------------------------------------------------------------------------


def _matmul(probe, tf, device):
    n = int(probe.options["size"])
    with tf.device("/CPU:0"):
        seeds = [tf.random.uniform([n, n], seed=seed) for seed in (1, 2)]
    with scope(tf, device):
        # One copy to the device now, so that no step pays for it.
        a, b = (tf.identity(seed) for seed in seeds)
        step = lambda: tf.matmul(a, b)  # noqa: E731
        ran_on = _first_step(probe, tf, step).device
        probe.emit("placement", op="MatMul", dtype="float32", requested=device, actual=ran_on, count=1)
        probe.memory(tf)
        probe.emit("throughput", device=ran_on, execution="eagerly", **_measure(probe, tf, step, flops=2.0 * n**3))
    probe.memory(tf)
    return ran_on


def session_matmul(probe, tf, session, device=None, name="product"):
    """``matmul`` in a TF1 session, in the session's graph; ``name``: that of its op.

    Placement and memory come from the session's step statistics: TensorFlow 2's functions would start the devices
    again, with other options.
    """
    v1 = tf.compat.v1
    n = int(probe.options["size"])
    with scope(tf, device):
        a = v1.get_variable(name + "_a", initializer=tf.random.uniform([n, n], seed=1))
        b = v1.get_variable(name + "_b", initializer=tf.random.uniform([n, n], seed=2))
        product = tf.matmul(a, b, name=name)
    session.run([a.initializer, b.initializer])
    step = session.make_callable(product.op)  # runs the op and fetches nothing
    began = time.monotonic()
    step()
    probe.emit("phase", name="first_step", seconds=time.monotonic() - began)

    traced = v1.RunOptions(trace_level=v1.RunOptions.SOFTWARE_TRACE, output_partition_graphs=True)
    metadata = v1.RunMetadata()
    session.run(product.op, options=traced, run_metadata=metadata)
    ran_on = ""
    for graph in metadata.partition_graphs:
        for node in graph.node:
            if node.name == name:
                ran_on = node.device
                probe.emit("placement", op=plain_op(node.op), dtype="float32", requested=device, actual=ran_on, count=1)
    for entry in session_memory(metadata):
        probe.emit("memory", **entry)
    # A session's run returns when the device is done.
    measured = timing.measure(
        step, lambda result: None, float(probe.options["seconds"]), probe.progress, flops=2.0 * n**3
    )
    probe.emit("throughput", device=ran_on, execution="in a TF1 session", **measured)
    return ran_on


def session_ran_on(tf, session, tensor):
    """Runs ``tensor``; returns the device on which TensorFlow placed its op."""
    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    session.run(tensor, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    places = {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}
    return places.get(tensor.op.name)


def session_memory(metadata):
    """Peak memory of each GPU's allocator during a traced step."""
    held = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            for use in node.memory:
                if "GPU" in device.device and use.allocator_bytes_in_use > 0:
                    held[device.device] = max(held.get(device.device, 0), use.allocator_bytes_in_use)
    return [{"device": name, "current": most, "peak": most} for name, most in held.items()]


def session_devices(probe, session):
    """Reports the devices of a session."""
    names = [device.name for device in session.list_devices()]
    probe.emit("devices", physical=[], visible=[], virtual=[], logical=names)
    return names


def session_fraction(probe, session):
    """Reports the memory limit of each GPU that a session got for ``per_process_gpu_memory_fraction``."""
    limits = [device.memory_limit_bytes for device in session.list_devices() if device.device_type == "GPU"]
    probe.setting(
        "per_process_gpu_memory_fraction",
        asked=probe.options["fraction"],
        effective=["%d MB" % (limit >> 20) for limit in limits] or None,
        note="" if limits else "no GPU",
    )


# -- training ---------------------------------------------------------------------------------------


def mlp(tf, options):
    """A dense network, dominated by matrix products."""
    return [
        tf.keras.layers.Dense(options["units"], activation="relu"),
        tf.keras.layers.Dense(options["units"], activation="relu"),
    ]


def conv(tf, options):
    """A small convolutional network."""
    return [
        tf.keras.layers.Conv2D(options["filters"], 3, padding="same", activation="relu"),
        tf.keras.layers.MaxPooling2D(),
        tf.keras.layers.Conv2D(2 * options["filters"], 3, padding="same", activation="relu"),
        tf.keras.layers.GlobalAveragePooling2D(),
    ]


def lstm(tf, options):
    """A recurrent network."""
    return [tf.keras.layers.LSTM(options["units"], **lstm_arguments(tf))]


_HIDDEN_LAYERS = {"mlp": mlp, "conv": conv, "lstm": lstm}


def lstm_arguments(tf):
    """Keras uses cuDNN's LSTM on any GPU, but PluggableDevices have no cuDNN."""
    if int(tf.keras.__version__.split(".")[0]) < 3:  # Keras 2 has no argument for it, and checks the device itself
        return {}
    return {"use_cudnn": False} if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") else {}


def keras_model(tf, workload, options):
    """The compiled model of a workload."""
    hidden = _HIDDEN_LAYERS[workload](tf, options)
    model = tf.keras.Sequential([tf.keras.Input(example_shape(options)), *hidden, tf.keras.layers.Dense(1)])
    model.compile(
        optimizer=tf.keras.optimizers.SGD(options["learning_rate"]),
        loss="mse",
        # The same on every device: Keras would use XLA on one GPU but not on several, and PluggableDevices have no
        # XLA compiler.
        jit_compile=options["jit_compile"],
    )
    return model


def example_shape(options):
    """Shape of one example."""
    if "image" in options:
        return [options["image"], options["image"], 3]
    return [options["timesteps"], options["features"]] if "timesteps" in options else [options["features"]]


def data(tf, options):
    """A batch of random examples; the target is the mean of the features."""
    batch = options["batch"]
    with tf.device("/CPU:0"):
        x = tf.random.stateless_uniform([batch, *example_shape(options)], seed=[1, 2])
        y = tf.reshape(tf.reduce_mean(x, axis=list(range(1, len(x.shape)))), [batch, 1]) * 4.0
    # Copy to the device now, so that no step has to.
    return tf.identity(x), tf.identity(y)


def train(probe, tf, model, device=None):
    """Times training on one batch with Keras; the loss must fall. Returns where the products ran."""
    with scope(tf, device):
        x, y = data(tf, probe.options)
        return _train(probe, tf, model, lambda: model.train_on_batch(x, y), device)


def train_distributed(probe, tf, strategy, model):
    """The same for a model of a strategy, with the batch shared by the replicas. The step is that of ``model.fit``."""
    dataset = tf.data.Dataset.from_tensors(data(tf, probe.options)).repeat()
    batches = iter(strategy.experimental_distribute_dataset(dataset))
    model.make_train_function()
    return _train(probe, tf, model, lambda: model.train_function(batches))


def _train(probe, tf, model, step, device=None):
    logs, first, ran_on = first_steps(probe, tf, step, device)
    loss_first = _loss(logs)
    probe.memory(tf)
    measured = _measure(probe, tf, step, examples=probe.options["batch"])
    measured["compile_seconds"] = max(0.0, first - measured["median_step_seconds"])
    probe.emit("throughput", device=ran_on, **measured)
    probe.memory(tf)
    model.reset_metrics()  # Keras reports the mean over the steps since then
    learned(probe, loss_first, _loss(step()))
    return ran_on


def _loss(logs):
    if isinstance(logs, dict):
        logs = logs["loss"]
    return float(logs[0] if isinstance(logs, (list, tuple)) else logs)


def learned(probe, first, last):
    """Reports the loss before and after training; ArithmeticError if it did not fall."""
    probe.result("loss_first", first)
    probe.result("loss_last", last)
    if not (math.isfinite(last) and last < first):
        raise ArithmeticError("training had no effect: the loss was %g before and %g after" % (first, last))


def first_steps(probe, tf, step, device=None, synchronise=None):
    """Runs two steps, in which TensorFlow traces and compiles, and reports where their ops ran.

    Returns the first step's result and seconds, and the devices of the products. Placements come from the partitioned
    graphs, which TensorFlow exports when it builds them: a function with variables is traced twice, so the second
    step's graphs are preferred.
    """
    # The public function (tf.summary.trace_on) writes files.
    from tensorflow.python.eager import context

    wait = synchronise or (lambda result: _synchronise(tf, result))
    context.enable_run_metadata()
    try:
        began = time.monotonic()
        result = step()
        wait(result)
        seconds = time.monotonic() - began
        collected = [context.export_run_metadata()]
        wait(step())
        collected.insert(0, context.export_run_metadata())
    finally:
        context.disable_run_metadata()
    probe.emit("phase", name="first_step", seconds=seconds)
    counts = next((found for found in (_ops(tf, metadata) for metadata in collected) if found), {})
    for (op, dtype, actual), count in sorted(counts.items(), key=str):
        probe.emit("placement", op=op, dtype=dtype, requested=device, actual=actual, count=count)
    products = {actual for op, _, actual in counts if "MatMul" in op or "Conv2D" in op}
    return result, seconds, ", ".join(sorted(products)) or None


def _ops(tf, metadata):
    """``{(op, dtype, device): count}`` of the partitioned graphs of functions."""
    counts = {}
    for graph in (graph for function in metadata.function_graphs for graph in function.partition_graphs):
        bodies = [graph.node, *(function.node_def for function in graph.library.function)]
        for node in (node for body in bodies for node in body):
            if not node.device or node.op in _PLUMBING or _DATA.search(node.op):
                continue
            kind = node.attr["T"].type if "T" in node.attr else node.attr["dtype"].type
            key = (plain_op(node.op), tf.dtypes.as_dtype(kind).name if kind else None, node.device)
            counts[key] = counts.get(key, 0) + 1
    return counts


def plain_op(op):
    """``_MklFusedMatMul`` is a MatMul: oneDNN's and Grappler's names for the same op."""
    for prefix in ("_MklNativeFused", "_MklFused", "_MklNative", "_Mkl", "_Fused"):
        if op.startswith(prefix):
            return op[len(prefix) :]
    return op


# -- copy -------------------------------------------------------------------------------------------


def _copy(probe, tf, device):
    gpus = tf.config.list_logical_devices("GPU")
    if not gpus:
        probe.skip("there is no GPU to copy to")
    target = device or gpus[0].name
    count = max(1, int(probe.options["bytes"]) // FLOAT_BYTES)
    with tf.device("/CPU:0"):
        here = tf.random.uniform([count], seed=1)
    with tf.device(target):
        there = tf.identity(here)
    _synchronise(tf, there)
    ways = [("host_to_device", here, target), ("device_to_host", there, "/CPU:0")]
    if len(gpus) > 1:
        ways.append(("device_to_device", there, gpus[1].name))
    for name, source, goal in ways:
        measured = _copy_rate(probe, tf, source, goal, count * FLOAT_BYTES)
        probe.result(name + "_bytes_per_second", measured["bytes_per_second"])
        if name == "host_to_device":
            probe.emit("placement", op="Identity", dtype="float32", requested=device, actual=there.device, count=1)
            probe.emit("throughput", device=there.device, **measured)
    probe.memory(tf)
    return there.device


def _copy_rate(probe, tf, source, goal, amount):
    # In a function, because TensorFlow caches copies made by eager ops.
    @tf.function
    def step():
        with tf.device(goal):
            return tf.identity(source)

    _first_step(probe, tf, step)
    return _measure(probe, tf, step, bytes_moved=amount)


# -- shared -----------------------------------------------------------------------------------------


def scope(tf, device):
    """``tf.device(device)``; without a device, TensorFlow chooses."""
    return tf.device(device) if device else contextlib.nullcontext()


def measure(probe, tf, step, device=None, **amounts):
    """Times any ``step()``; ``amounts``: ``flops``, ``examples`` or ``bytes_moved`` of one step.

    Returns the first step's result.
    """
    result = _first_step(probe, tf, step)
    probe.memory(tf)
    probe.emit("throughput", device=device, **_measure(probe, tf, step, **amounts))
    probe.memory(tf)
    return result


def _first_step(probe, tf, step):
    began = time.monotonic()
    result = step()
    _synchronise(tf, result)
    probe.emit("phase", name="first_step", seconds=time.monotonic() - began)
    return result


def _measure(probe, tf, step, **amounts):
    return timing.measure(
        step, lambda result: _synchronise(tf, result), float(probe.options["seconds"]), probe.progress, **amounts
    )


def _synchronise(tf, result):
    """Waits until the devices have finished: GPU steps return early."""
    sync = getattr(getattr(tf.test, "experimental", None), "sync_devices", None)
    if sync is not None:
        sync()
    elif hasattr(result, "device"):  # before 2.12
        tf.reshape(result, [-1])[0].numpy()

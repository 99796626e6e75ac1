"""The small works that the probes measure, in TensorFlow 2, Keras and TF1 sessions.

* ``matmul``: a float32 matrix product; FLOP/s. Needs the least of a device.
* ``mlp``, ``conv``, ``lstm``: Keras trains a small network; examples/s. Its loss must fall.
* ``copy``: host to device, device to host, device to device; bytes/s.
"""

from __future__ import annotations

import contextlib
import math
import time

import _gpuwatch_timing as timing

NAMES = ("matmul", "mlp", "conv", "lstm", "copy")
TRAINING = ("mlp", "conv", "lstm")
FLOAT_BYTES = 4

# Nodes of a graph that do no work of their own.
_PLUMBING = ("_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv")
_PLUMBING += ("Const", "NoOp", "Identity", "Placeholder", "StatefulPartitionedCall", "PartitionedCall", "While")


def sizes(workload, options):
    """The sizes of a workload, all from ``size``, so that one number fits it to a device."""
    size = int(options.get("size", 1024))
    if workload == "matmul":
        return {"size": size}
    if workload == "copy":
        return {"bytes": int(options.get("bytes", FLOAT_BYTES * size * size * 4))}
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
    """Does ``workload`` and says what it did; returns the device where it ran."""
    probe.options.update(sizes(workload, probe.options))
    if workload == "matmul":
        return _matmul(probe, tf, device)
    if workload == "copy":
        return _copy(probe, tf, device)
    if workload in TRAINING:
        with scope(tf, device):
            model = MODELS[workload](tf, probe.options)
            x, y = data(tf, model, probe.options["batch"])
        return train(probe, tf, model, x, y, device)
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
        probe.emit("throughput", device=ran_on, **_measure(probe, tf, step, flops=2.0 * n**3))
    probe.memory(tf)
    return ran_on


def session_matmul(probe, tf, session, device=None, name="product"):
    """``matmul`` in a TF1 session, inside the graph that ``session`` was made for.

    The placement and the memory come from the session's own step statistics: asking TensorFlow 2
    for them would start the devices a second time, with other options.
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
                probe.emit("placement", op=node.op, dtype="float32", requested=device, actual=ran_on, count=1)
    for entry in session_memory(metadata):
        probe.emit("memory", **entry)
    # A session's run returns when the device is done.
    measured = timing.measure(
        step, lambda result: None, float(probe.options["seconds"]), _teller(probe), flops=2.0 * n**3
    )
    probe.emit("throughput", device=ran_on, **measured)
    return ran_on


def session_ran_on(tf, session, tensor):
    """Runs ``tensor`` and returns the device on which TensorFlow put its op."""
    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    session.run(tensor, options=v1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
    places = {node.name: node.device for graph in metadata.partition_graphs for node in graph.node}
    return places.get(tensor.op.name)


def session_memory(metadata):
    """What the allocator of each GPU had in use during a traced step."""
    held = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            for use in node.memory:
                if "GPU" in device.device and use.allocator_bytes_in_use > 0:
                    held[device.device] = max(held.get(device.device, 0), use.allocator_bytes_in_use)
    return [{"device": name, "current": most, "peak": most} for name, most in held.items()]


def session_devices(probe, session):
    """The devices of a session, with the limit of each allocator."""
    names = [device.name for device in session.list_devices()]
    probe.emit("devices", physical=[], visible=[], virtual=[], logical=names)
    return names


# -- training ---------------------------------------------------------------------------------------


def mlp(tf, options):
    """A dense network: its time goes into matrix products."""
    return _compiled(
        tf,
        options,
        [
            tf.keras.Input([options["features"]]),
            tf.keras.layers.Dense(options["units"], activation="relu"),
            tf.keras.layers.Dense(options["units"], activation="relu"),
            tf.keras.layers.Dense(1),
        ],
    )


def conv(tf, options):
    """A small convolutional network."""
    return _compiled(
        tf,
        options,
        [
            tf.keras.Input([options["image"], options["image"], 3]),
            tf.keras.layers.Conv2D(options["filters"], 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Conv2D(2 * options["filters"], 3, padding="same", activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(1),
        ],
    )


def lstm(tf, options):
    """A recurrent network."""
    return _compiled(
        tf,
        options,
        [
            tf.keras.Input([options["timesteps"], options["features"]]),
            tf.keras.layers.LSTM(options["units"], **lstm_arguments(tf)),
            tf.keras.layers.Dense(1),
        ],
    )


MODELS = {"mlp": mlp, "conv": conv, "lstm": lstm}


def lstm_arguments(tf):
    """Keras takes cuDNN's LSTM wherever it sees a GPU; a PluggableDevice has no cuDNN."""
    if int(tf.keras.__version__.split(".")[0]) < 3:  # Keras 2 cannot be told, and asks the device
        return {}
    return {"use_cudnn": bool(tf.test.is_built_with_cuda()) and not _plugged_in()}


def _plugged_in():
    import os

    return bool(os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH"))


def _compiled(tf, options, layers):
    model = tf.keras.Sequential(layers)
    model.compile(
        optimizer=tf.keras.optimizers.SGD(options["learning_rate"]),
        loss="mse",
        # The same code on every device: Keras would take XLA on one GPU, and not on several, and a
        # PluggableDevice has no XLA compiler.
        jit_compile=options["jit_compile"],
    )
    return model


def data(tf, model, batch):
    """A batch of made-up examples with something to learn: the mean of the features."""
    with tf.device("/CPU:0"):
        x = tf.random.stateless_uniform([batch, *model.input_shape[1:]], seed=[1, 2])
        y = tf.reshape(tf.reduce_mean(x, axis=list(range(1, len(x.shape)))), [batch, 1]) * 4.0
    # One copy to the device now, so that no step pays for it.
    return tf.identity(x), tf.identity(y)


def train(probe, tf, model, x, y, device=None):
    """Trains with Keras on one batch, timed; the loss must fall. Returns where the products ran."""
    losses = []
    batch = int(x.shape[0])

    def step():
        loss = model.train_on_batch(x, y)
        losses.append(float(loss))  # waits for the device
        del losses[1:-1]
        return loss

    with scope(tf, device):
        began = time.monotonic()
        step()
        first = time.monotonic() - began
        probe.emit("phase", name="first_step", seconds=first)
        ran_on = placements(probe, tf, step, device)
        probe.memory(tf)
        measured = _measure(probe, tf, step, examples=batch)
    measured["compile_seconds"] = max(0.0, first - measured["median_step_seconds"])
    probe.emit("throughput", device=ran_on, **measured)
    probe.memory(tf)
    learned(probe, losses[0], losses[-1])
    return ran_on


def learned(probe, first, last):
    """Says the loss before and after; one that did not fall is an error, whatever the speed."""
    probe.result("loss_first", first)
    probe.result("loss_last", last)
    if not (math.isfinite(last) and last < first):
        raise ArithmeticError("training did not learn: the loss was %g and is %g" % (first, last))


def placements(probe, tf, step, device=None):
    """Runs one step and says where each of its ops ran; returns the device of most products.

    TensorFlow tells it in the graphs that it partitioned for the devices.
    """
    # The public way to them (tf.summary.trace_on) writes files.
    from tensorflow.python.eager import context

    context.enable_run_metadata()
    try:
        step()
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    graphs = list(metadata.partition_graphs)
    for function in metadata.function_graphs:
        graphs += function.partition_graphs
    counts = {}
    for graph in graphs:
        bodies = [graph.node] + [function.node_def for function in graph.library.function]
        for node in (node for body in bodies for node in body):
            if node.op not in _PLUMBING and node.device and not node.op.startswith("__"):
                kind = node.attr["T"].type if "T" in node.attr else node.attr["dtype"].type
                key = (plain_op(node.op), tf.dtypes.as_dtype(kind).name if kind else None, node.device)
                counts[key] = counts.get(key, 0) + 1
    heavy = {}
    for (op, dtype, actual), count in sorted(counts.items(), key=str):
        probe.emit("placement", op=op, dtype=dtype, requested=device, actual=actual, count=count)
        if "MatMul" in op or "Conv2D" in op:
            heavy[actual] = heavy.get(actual, 0) + count
    return max(heavy, key=heavy.get) if heavy else None


def plain_op(op):
    """``_MklFusedMatMul`` is a MatMul: oneDNN's and Grappler's names for the same op."""
    for prefix in ("_MklNative", "_Mkl", "_Fused"):
        if op.startswith(prefix):
            op = op[len(prefix) :]
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
    def step():
        with tf.device(goal):
            return tf.identity(source)

    _first_step(probe, tf, step)
    return _measure(probe, tf, step, bytes_moved=amount)


# -- shared -----------------------------------------------------------------------------------------


def scope(tf, device):
    """``tf.device(device)``, or nothing where TensorFlow may choose."""
    return tf.device(device) if device else contextlib.nullcontext()


def _first_step(probe, tf, step):
    began = time.monotonic()
    result = step()
    _synchronise(tf, result)
    probe.emit("phase", name="first_step", seconds=time.monotonic() - began)
    return result


def _measure(probe, tf, step, **amounts):
    return timing.measure(
        step, lambda result: _synchronise(tf, result), float(probe.options["seconds"]), _teller(probe), **amounts
    )


def _teller(probe):
    def tell(steps, elapsed):
        probe.emit("progress", steps=steps, seconds=elapsed, of_seconds=float(probe.options["seconds"]))

    return tell


def _synchronise(tf, result):
    """Waits until the devices have done everything; a GPU step returns before it is done."""
    sync = getattr(getattr(tf.test, "experimental", None), "sync_devices", None)
    if sync is not None:
        sync()
    elif hasattr(result, "device"):  # before 2.12
        tf.reshape(result, [-1])[0].numpy()

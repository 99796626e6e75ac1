"""Two processes on one GPU, each needing 30 % of its memory: with defaults, growth and fractions.

With the defaults, the first process takes nearly all memory and the second fails. With memory growth, or a fraction of
0.4 each, both run and share the GPU; the speed of each is compared with its speed when running alone. With two GPUs,
another round with one GPU each shows what sharing costs.
"""

import _gpuwatch_nvml as nvml
import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workers as workers
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "contention",
    "title": "Two processes on one GPU",
    "group": "sharing",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "oom",
    "processes": 2,
    "measurements": 10,
    "options": {"fraction": 0.4, "need": 0.3},
}

EXAMPLE = """\
import multiprocessing
import sys


def work(name, together):
    import tensorflow as tf

    gpu_options = tf.compat.v1.GPUOptions(
        # Without this line, the first process takes nearly all memory, and none is left for the second.
        # The alternative is allow_growth=True: each process takes memory as it needs it.
        per_process_gpu_memory_fraction=$fraction,
        visible_device_list="0",  # both on the same GPU
    )
    config = tf.compat.v1.ConfigProto(gpu_options=gpu_options)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        for device in session.list_devices():
            print(f"{name} may have {device.memory_limit_bytes >> 20} MB of {device.name}")
        together.wait(60)  # until both hold their memory
        product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
        print(f"{name} computed {session.run(product)}")


if __name__ == "__main__":
    # Not forked: a process that has used TensorFlow cannot be forked.
    fresh = multiprocessing.get_context("spawn")
    together = fresh.Barrier(2)
    pair = [fresh.Process(target=work, args=(name, together)) for name in ("first", "second")]
    for process in pair:
        process.start()
    for process in pair:
        process.join()
    sys.exit(any(process.exitcode for process in pair))
"""


def configure(tf, probe):
    """Each process configures itself: see take_part()."""


def work(tf, probe):
    fraction = probe.options["fraction"]
    rounds = [
        ("default", {}, (0, 0)),
        ("growth", {"allow_growth": True}, (0, 0)),
        ("fraction %g" % fraction, {"per_process_gpu_memory_fraction": fraction}, (0, 0)),
    ]
    gpus = 0
    for setting, gpu_options, places in rounds:
        gpus = one_round(tf, probe, setting, gpu_options, places)
    if gpus > 1:
        one_round(tf, probe, "own GPU", {}, (0, 1))


def one_round(tf, probe, setting, gpu_options, places):
    """Runs both processes, each alone and then together; returns the number of GPUs."""
    workers_pair = []
    alone = []
    try:
        for number, name in enumerate(("first", "second")):
            options = {"visible_device_list": str(places[number]), **gpu_options}
            probe.options["gpu_options"] = options
            workers_pair.append(workers.Worker(tf, probe, name, take_part, setting))
            ready = workers_pair[-1].wait("result", "ready")
            if workers_pair[-1].data("skip"):
                probe.skip(workers_pair[-1].data("skip")[0]["reason"])
            if ready is None:
                break
            probe.options["need_bytes"] = ready["value"]  # the same for all other processes
            workers_pair[-1].order("work")
            alone.append(workers_pair[-1].wait("throughput"))
        together = [None] * len(workers_pair)
        if len(alone) == 2:
            for worker in workers_pair:
                worker.order("work")
            together = [worker.wait("throughput") for worker in workers_pair]
    finally:
        workers.finish_all(workers_pair)
    probe.result("need_bytes", probe.options.get("need_bytes"))
    conclude(probe, workers_pair, together, [*alone, None])
    gpu_counts = workers_pair[0].data("result", "gpus")
    return gpu_counts[0]["value"] if gpu_counts else 0


def conclude(probe, pair, together, alone):
    first = pair[0]
    for number, worker in enumerate(pair):
        shared, single = together[number], alone[number]
        worker.report(together=shared, alone=single)
        if worker.failure is None:
            continue
        # With the defaults, the second process is expected to run out of memory.
        expected = worker is not first and worker.setting == "default" and worker.verdict == "oom"
        worker.report_failure(expected)
    if first.setting == "default":
        for event in first.events:
            if event["kind"] in ("devices", "placement", "memory") or event["data"] in alone:
                probe.emit(event["kind"], **event["data"])


def take_part(tf, probe, next_order):
    """One process: takes its memory, then works on each order."""
    options = tf.compat.v1.GPUOptions(**probe.options["gpu_options"])
    config = tf.compat.v1.ConfigProto(gpu_options=options)
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs and other PluggableDevices

    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        devices = session.list_devices()
        gpus = [device for device in devices if device.device_type == "GPU"]
        if not gpus:
            probe.skip("needs a GPU to share, and TensorFlow has none")
        workloads.session_devices(probe, session)
        probe.result("gpus", len(nvml.gpus()) or len(gpus))
        probe.result("granted_bytes", gpus[0].memory_limit_bytes)
        need = probe.options.get("need_bytes") or needed_bytes(probe, gpus[0].memory_limit_bytes)
        held_variables = held_memory(tf, need)
        for piece in held_variables:
            session.run(piece.initializer)
        probe.result("ready", need)
        round_number = 0
        while next_order() is not None:
            round_number += 1
            workloads.session_matmul(probe, tf, session, name="product_%d" % round_number)


def needed_bytes(probe, granted):
    """Bytes that each process needs; computed in the first one, which is granted nearly all memory."""
    machine = nvml.gpus()
    total = machine[0][1] if machine else granted
    need = int(probe.options["need"] * total)
    if probe.simulation == "plugin":
        # The memory of such a device is really used on the host, so take no more than necessary.
        need = min(need, max(1 << 30, int(1.25 * (total - granted))))
    return need


def held_memory(tf, amount):
    """Uninitialized variables with this many bytes in total, like the weights of a network.

    In pieces, because the allocator cannot split one large allocation.
    """
    row, pieces = 1 << 16, 32
    shape = [max(1, amount // (4 * row * pieces)), row]
    return [
        tf.compat.v1.get_variable(
            "held_%d" % number, initializer=tf.raw_ops.Empty(shape=shape, dtype=tf.float32, init=False)
        )
        for number in range(pieces)
    ]


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

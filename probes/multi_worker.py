"""Two workers on this machine train one model: MultiWorkerMirroredStrategy with a custom training loop.

Each worker is a process with TF_CONFIG in its environment, which lists all workers and this one's index. They must do
the same number of steps, or one waits forever. Keras 3 does not support ``fit`` with this strategy.
"""

import json
import os
import socket

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_timing as timing
import _gpuwatch_workers as workers
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "multi-worker",
    "title": "Two workers on this machine",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "linear model",
    "own_work": True,
    "processes": 2,
    "tier": "plugin",
    "options": {"batch": 256, "units": 256, "learning_rate": 0.05},
}

EXAMPLE = """\
import json
import multiprocessing
import os
import socket
from concurrent.futures import ProcessPoolExecutor


def worker(index, addresses):
    # All workers, and this one's index. On several machines, each has its own address.
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # its own GPU if there are enough, and only the memory that it needs
        mine = gpus[index % len(gpus)]
        tf.config.set_visible_devices(mine, "GPU")
        tf.config.experimental.set_memory_growth(mine, True)
    # RING works over the network and with any device; the alternative, NCCL, needs a GPU per worker.
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)

    with strategy.scope():
        weights = tf.Variable(tf.zeros([$units, 1]))
    x = tf.random.stateless_normal([$batch, $units], seed=[index, 1])  # its share of the data
    y = tf.reduce_mean(x, axis=1, keepdims=True)

    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        gradient = tape.gradient(loss, weights)
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        weights.assign_sub($learning_rate * gradient)
        return loss

    @tf.function
    def step():
        return strategy.run(replica)

    # Keras 3 does not support fit() with this strategy.
    losses = [float(step()) for _ in range(20)]  # the same number in each worker, or one waits forever
    return strategy.num_replicas_in_sync, losses[0], losses[-1]


if __name__ == "__main__":
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    addresses = ["localhost:%d" % one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()

    # Not forked: a process that has used TensorFlow cannot be forked.
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as team:
        for replicas, first, last in team.map(worker, range(2), [addresses] * 2):
            print("%d replicas, loss %g -> %g" % (replicas, first, last))
"""


def configure(tf, probe):
    """Each worker configures itself: see train()."""


def work(tf, probe):
    addresses = ["localhost:%d" % port for port in free_ports(2)]
    team = []
    try:
        for index in range(2):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            name = "worker %d" % index
            environment = {"TF_CONFIG": json.dumps(config)}
            team.append(workers.Worker(tf, probe, name, train, "TF_CONFIG", environment))
        probe.setting("TF_CONFIG", asked={"cluster": {"worker": addresses}})
        follow(probe, team)
    finally:
        workers.finish_all(team)
    conclude(probe, team)


def follow(probe, team):
    """Orders a number of steps, from the time that the first worker measured."""
    calibrated = [worker.wait("result", "step_seconds") for worker in team]
    if None in calibrated:
        return
    per_block = max(1, int(probe.options["seconds"] / timing.BLOCKS / calibrated[0]["value"]))
    for worker in team:
        worker.order(str(per_block))
    for worker in team:
        worker.wait("end")


def conclude(probe, team):
    for worker in team:
        measured = worker.data("throughput")
        worker.report(together=measured[0] if measured else None)
    for event in team[0].events:
        if event["kind"] in ("devices", "placement", "memory", "throughput", "result"):
            probe.emit(event["kind"], **event["data"])
    for worker in team:
        if worker.data("skip"):
            probe.skip(worker.data("skip")[0]["reason"])
        if worker.failure is not None:
            raise RuntimeError("%s: %s: %s" % (worker.name, *worker.failure))


def train(tf, probe, next_order):
    """One worker."""
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:  # its own GPU if there are enough, and only the memory that it needs
        mine = gpus[index % len(gpus)]
        tf.config.set_visible_devices(mine, "GPU")
        tf.config.experimental.set_memory_growth(mine, True)
    # RING works over the network and with any device; the alternative, NCCL, needs a real GPU per worker.
    ring = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    probe.devices(tf)
    probe.result("replicas", strategy.num_replicas_in_sync)

    options = probe.options
    with strategy.scope():
        weights = tf.Variable(tf.zeros([options["units"], 1]))
    x = tf.random.stateless_normal([options["batch"], options["units"]], seed=[index, 1])
    y = tf.reduce_mean(x, axis=1, keepdims=True)

    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
        gradient = tape.gradient(loss, weights)
        gradient = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        weights.assign_sub(options["learning_rate"] * gradient)
        return loss

    @tf.function
    def step():
        return strategy.run(replica)

    first, _, ran_on = workloads.first_steps(probe, tf, step, synchronise=float)
    probe.result("step_seconds", timing.block(step, float, 10) / 10)
    order = next_order()
    if order is None:
        return
    measured = timing.fixed(step, float, int(order), examples=options["batch"])
    probe.emit("throughput", device=ran_on, **measured)
    probe.memory(tf)
    workloads.learned(probe, float(first), float(step()))


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    try:
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""One tower per GPU, summed on the CPU: several GPUs without a strategy.

``tf.device`` places the same work on each GPU, and the results are combined on the CPU. The GPUs run at the same time,
because ops return before their device has finished.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "towers",
    "title": "One tower per GPU",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "gpus": 2,
}

EXAMPLE = """\
import tensorflow as tf

gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
with tf.device("/CPU:0"):
    a = tf.random.uniform([1024, 1024])

products = []
for gpu in gpus:
    with tf.device(gpu):
        products.append(tf.matmul(a, a))  # returns before the GPU has finished, so all run at once
with tf.device("/CPU:0"):
    total = tf.add_n(products)  # waits for them

print([product.device for product in products], total.device)
"""


def configure(tf, probe):
    """No settings."""


def work(tf, probe):
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    n = probe.options["size"]
    inputs = {}
    for gpu in gpus:
        with tf.device("/CPU:0"):
            seed = tf.random.uniform([n, n], seed=1)
        with tf.device(gpu):
            inputs[gpu] = tf.identity(seed)

    def step():
        products = []
        for gpu, a in inputs.items():
            with tf.device(gpu):
                products.append(tf.matmul(a, a))
        with tf.device("/CPU:0"):
            return products, tf.add_n(products)

    products, total = workloads.measure(probe, tf, step, device=", ".join(gpus), flops=2.0 * n**3 * len(gpus))
    for number, product in enumerate(products):
        probe.emit("placement", op="MatMul", dtype="float32", requested=gpus[number], actual=product.device, count=1)
    probe.emit("placement", op="AddN", dtype="float32", requested="/CPU:0", actual=total.device, count=1)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

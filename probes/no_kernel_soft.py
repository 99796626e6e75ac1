"""Ops without a GPU kernel on the GPU, with soft placement: silently moved to the CPU.

Integer matrix products and string ops have no GPU kernel. tf.cast, which is in older lists of such ops, now has one.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "no-kernel-soft",
    "title": "No GPU kernel, soft placement",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "fallback",
    "gpus": 1,
}

EXAMPLE = """\
import tensorflow as tf

tf.config.set_soft_device_placement(True)  # the default
tf.debugging.set_log_device_placement(True)  # without this line, the log does not say where ops run

with tf.device("/GPU:0"):
    integers = tf.Variable([[1, 2], [3, 4]])
    print(integers.device)
    print(tf.matmul(integers, integers).device)  # no GPU kernel for integers
    print(tf.strings.join(["no", "kernel"]).device)  # no GPU kernel for strings
    print(tf.cast(tf.constant([1.0, 2.0], tf.float64), tf.float32).device)  # stays on the GPU
"""


def configure(tf, probe):
    tf.config.set_soft_device_placement(True)

    probe.setting("soft placement", asked=True, effective=tf.config.get_soft_device_placement())


def work(tf, probe):
    with tf.device("/GPU:0"):
        counter = tf.Variable([[1, 2], [3, 4]], name="counter")  # int32
        results = [
            ("VarHandleOp", "int32", counter),
            ("MatMul", "int32", tf.matmul(counter, counter)),
            ("StringJoin", "string", tf.strings.join(["no", "kernel"])),
            ("Cast", "float32", tf.cast(tf.constant([1.0, 2.0], tf.float64), tf.float32)),
        ]
    for op, dtype, result in results:
        probe.emit("placement", op=op, dtype=dtype, requested="/GPU:0", actual=result.device, count=1)
    probe.run(tf, "/GPU:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""No device named: TensorFlow chooses.

An op goes to GPU:0 when it has a kernel for GPUs, and to the CPU otherwise. The other GPUs of the
machine stay idle, although their memory is taken.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "auto",
    "title": "TensorFlow chooses the device",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
}

EXAMPLE = """\
import tensorflow as tf

# To GPU:0 where it has a kernel for GPUs.
a = tf.random.uniform([64, 64])
print("MatMul", tf.matmul(a, a).device)
print("AddV2", tf.add(a, a).device)
# No GPU has a kernel for strings: to the CPU.
print("StringJoin", tf.strings.join(["a", "b"]).device)
"""


def configure(tf, probe):
    probe.setting("soft placement", asked="default", effective=tf.config.get_soft_device_placement())


def work(tf, probe):
    with tf.device("/CPU:0"):
        a = tf.random.uniform([64, 64])
    for op, result in (
        ("MatMul", tf.matmul(a, a)),
        ("AddV2", tf.add(a, a)),
        # No GPU has a kernel for strings: the CPU is where they belong, and this is no fallback.
        ("StringJoin", tf.strings.join(["a", "b"])),
    ):
        probe.emit("placement", op=op, dtype=result.dtype.name, requested=None, actual=result.device, count=1)
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""No device in the program: TensorFlow chooses.

Ops with a GPU kernel run on GPU:0, all others on the CPU. The machine's other GPUs stay idle, although TensorFlow
takes their memory too.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "auto",
    "title": "TensorFlow chooses the device",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import tensorflow as tf

# Ops with a GPU kernel run on GPU:0.
a = tf.random.uniform([64, 64])
print("MatMul", tf.matmul(a, a).device)
print("AddV2", tf.add(a, a).device)
# There is no GPU kernel for strings: this runs on the CPU.
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
        # There is no GPU kernel for strings: they belong on the CPU, so this is not a fallback.
        ("StringJoin", tf.strings.join(["a", "b"])),
    ):
        probe.emit("placement", op=op, dtype=result.dtype.name, requested=None, actual=result.device, count=1)
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

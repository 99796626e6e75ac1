"""Devices named in the program: constants on the CPU, the product on the GPU.

``with tf.device(...)`` sets the device of the ops inside. TensorFlow automatically copies a tensor that is on another
device, which takes time. Its device policy ``warn`` logs each such copy for eager ops.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "manual",
    "title": "Devices named in the program",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import tensorflow as tf

tf.config.experimental.set_device_policy("warn")  # logs every automatic copy
with tf.device("/CPU:0"):
    a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
with tf.device("/GPU:0"):
    c = tf.matmul(a, b)  # TensorFlow copies a and b to the GPU by itself

for tensor in (a, b, c):
    print(tensor.device)
"""


def configure(tf, probe):
    probe.setting("soft placement", asked="default", effective=tf.config.get_soft_device_placement())
    tf.config.experimental.set_device_policy("warn")
    policy = tf.config.experimental.get_device_policy()
    probe.setting("device policy", asked="warn", effective=policy, note="TensorFlow logs every automatic copy")


def work(tf, probe):
    with tf.device("/CPU:0"):
        a = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        b = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.device("/GPU:0"):
        c = tf.matmul(a, b)

    for op, tensor, asked in (("Const", a, "/CPU:0"), ("Const", b, "/CPU:0"), ("MatMul", c, "/GPU:0")):
        probe.emit("placement", op=op, dtype="float32", requested=asked, actual=tensor.device, count=1)
    tf.config.experimental.set_device_policy("silent")  # as it was, for what is measured
    probe.run(tf, "/GPU:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

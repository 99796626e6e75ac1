"""TensorFlow's defaults: no settings at all.

At the first op, TensorFlow takes nearly all free memory of every visible GPU, regardless of what the work needs. No
memory is left for a second process.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "default",
    "title": "TensorFlow's defaults",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import tensorflow as tf

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    """No settings."""


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

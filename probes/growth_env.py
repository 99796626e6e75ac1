"""Memory growth by environment variable: TF_FORCE_GPU_ALLOW_GROWTH=true.

The same as memory growth, without changing the program. It overrides the program's own setting. TensorFlow reads it
when it first uses a GPU.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "growth-env",
    "title": "Memory growth by environment variable",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
}

ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}

EXAMPLE = """\
import os

os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"

import tensorflow as tf

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    """Set by the environment."""


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

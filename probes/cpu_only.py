"""Hide all GPUs: CUDA_VISIBLE_DEVICES=-1.

The usual way to force work onto the CPU. If left set in a shell, it is a common reason why TensorFlow "does not find" a
GPU.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "cpu-only",
    "title": "All GPUs hidden",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
}

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1"}

EXAMPLE = """\
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    probe.setting("GPUs left", asked=None, note="by CUDA_VISIBLE_DEVICES", effective=probe.visible_gpus(tf, most=0))


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

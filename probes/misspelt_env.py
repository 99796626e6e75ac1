"""A misspelled variable, CUDA_VISIBLE_DIVICES=-1: it has no effect, and there is no error.

It should have hidden all GPUs, but the driver reads only CUDA_VISIBLE_DEVICES. Check which devices the program got.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "misspelt-env",
    "title": "Misspelled environment variable",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
}

ENVIRONMENT = {"CUDA_VISIBLE_DIVICES": "-1"}

EXAMPLE = """\
import os

os.environ["CUDA_VISIBLE_DIVICES"] = "-1"

import tensorflow as tf

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    gpus = tf.config.list_physical_devices("GPU")
    probe.setting("GPUs hidden", asked=True, effective=not gpus, note="nothing reads CUDA_VISIBLE_DIVICES")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

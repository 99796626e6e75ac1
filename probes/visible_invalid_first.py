"""An invalid number first in the list: CUDA_VISIBLE_DEVICES=-1,0.

CUDA reads the list in order and stops at the first invalid entry, so this hides all GPUs although 0 is listed. For the
same reason, "0,-1,1" leaves only GPU 0.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "visible-invalid-first",
    "title": "CUDA_VISIBLE_DEVICES=-1,0",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "fallback",
}

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1,0"}

EXAMPLE = """\
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "-1,0"

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

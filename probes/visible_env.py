"""Choose GPUs by the environment: CUDA_VISIBLE_DEVICES.

A list of indices or UUIDs ("1,0" or "GPU-4fb3…"), in the order in which the program shall count
them: its GPU:0 is the first of the list. Without CUDA_DEVICE_ORDER=PCI_BUS_ID the indices are not
those of nvidia-smi on a machine with different cards; UUIDs mean the same everywhere. Here all GPUs
are listed by UUID, the last one first.
"""

import os

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "visible-env",
    "title": "GPUs chosen by the environment",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
    "options": {"visible": "reversed"},
}

ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}

EXAMPLE = """\
import os

# Indices or UUIDs ("GPU-4fb3..."); TensorFlow's GPU:0 is the first of the list.
os.environ["CUDA_VISIBLE_DEVICES"] = $visible
# Without this, indices are not those of nvidia-smi on a machine with different cards.
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"

import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    print(gpu.name, tf.config.experimental.get_device_details(gpu).get("device_name"))
a = tf.random.uniform([1024, 1024])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    value = os.environ["CUDA_VISIBLE_DEVICES"]
    probe.setting("GPUs, in this order", asked=value, effective=probe.visible_gpus(tf, most=value.count(",") + 1))


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

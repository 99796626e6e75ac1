"""Choose GPUs by environment variable: CUDA_VISIBLE_DEVICES.

A list of indices or UUIDs ("1,0" or "GPU-4fb3…"); the program's GPU:0 is the first in the list. On a machine with
different cards, indices can differ from nvidia-smi's unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set; UUIDs are always the
same. Here all GPUs are listed by UUID, in reverse order.
"""

import os

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "visible-env",
    "title": "GPUs chosen by environment variable",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "options": {"visible": "reversed"},
}

ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}

EXAMPLE = """\
import os

# Indices or UUIDs ("GPU-4fb3..."); TensorFlow's GPU:0 is the first in the list.
os.environ["CUDA_VISIBLE_DEVICES"] = $visible
# Without this, indices can differ from nvidia-smi's on a machine with different cards.
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

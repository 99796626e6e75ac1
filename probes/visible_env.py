"""Choose GPUs by the environment: CUDA_VISIBLE_DEVICES.

A list of indices or UUIDs ("1,0" or "GPU-4fb3…"), in the order in which the program shall count
them: its GPU:0 is the first of the list. Without CUDA_DEVICE_ORDER=PCI_BUS_ID the indices are not
those of nvidia-smi on a machine with different cards.
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
    "options": {"visible": "0"},
}

ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}


def configure(tf, probe):
    gpus = tf.config.list_physical_devices("GPU")
    probe.setting("visible GPUs", asked=os.environ["CUDA_VISIBLE_DEVICES"], effective=[gpu.name for gpu in gpus])


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

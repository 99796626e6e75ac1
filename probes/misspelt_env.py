"""A misspelt variable, CUDA_VISIBLE_DIVICES=-1: it does nothing, and nobody says so.

Meant to hide every GPU. The driver reads CUDA_VISIBLE_DEVICES only, and an environment has no errors:
look at the devices that the program got, not at the line that should have chosen them.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "misspelt-env",
    "title": "A misspelt variable",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
}

ENVIRONMENT = {"CUDA_VISIBLE_DIVICES": "-1"}


def configure(tf, probe):
    gpus = tf.config.list_physical_devices("GPU")
    probe.setting("GPUs hidden", asked=True, effective=not gpus, note="nothing reads CUDA_VISIBLE_DIVICES")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

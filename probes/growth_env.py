"""Memory growth by the environment: TF_FORCE_GPU_ALLOW_GROWTH=true.

The same as the growth configuration without touching the program, for code that is not yours. It
wins over what the program itself sets. TensorFlow reads it when the first GPU is used.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "growth-env",
    "title": "Memory growth by the environment",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
}

ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def configure(tf, probe):
    """The environment has done it."""


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

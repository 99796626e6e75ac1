"""TensorFlow as it comes: no setting at all.

At the first op TensorFlow maps nearly all the free memory of every visible GPU, whatever the work
needs. Whoever comes second finds the device full.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "default",
    "title": "TensorFlow as it comes",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
}


def configure(tf, probe):
    """Nothing: that is the point."""


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

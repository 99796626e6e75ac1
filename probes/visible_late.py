"""CUDA_VISIBLE_DEVICES set in the program: before the first use of a GPU, and after it.

The driver reads the variable once, when the process first asks for GPUs. os.environ in the program
works until then, even after the import of TensorFlow, and has no effect from then on. Set it in the
first lines of the program, or outside.
"""

import os

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "visible-late",
    "title": "CUDA_VISIBLE_DEVICES set in the program",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
}

EXAMPLE = """\
import os

import tensorflow as tf

os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # in time: no GPU was asked for yet
print(tf.config.list_logical_devices("GPU"))

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too late: the driver reads it once
print(tf.config.list_logical_devices("GPU"))
"""


def configure(tf, probe):
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # in time: TensorFlow is imported, no GPU was used yet

    probe.setting("CUDA_VISIBLE_DEVICES", asked="0", effective=probe.visible_gpus(tf, most=1))


def work(tf, probe):
    before = [device.name for device in tf.config.list_logical_devices("GPU")]

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too late

    after = [device.name for device in tf.config.list_logical_devices("GPU")]
    probe.setting("CUDA_VISIBLE_DEVICES, later", asked="-1", effective=after, note="too late: nothing changed")
    if after != before:
        raise AssertionError("the devices changed from %s to %s after they had been started" % (before, after))
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

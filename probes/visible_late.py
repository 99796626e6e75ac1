"""CUDA_VISIBLE_DEVICES set in the program: before the first use of a GPU, and after it.

The driver reads the variable once, when the process first uses GPUs. Setting os.environ works until then, even after
the import of TensorFlow, and has no effect afterwards. Set it in the first lines of the program, or outside it.
"""

import os

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "visible-late",
    "title": "CUDA_VISIBLE_DEVICES set in the program",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import os

import tensorflow as tf

os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # in time: no GPU has been used yet
print(tf.config.list_logical_devices("GPU"))

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too late: the driver has already read it
print(tf.config.list_logical_devices("GPU"))
"""


def configure(tf, probe):
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # in time: TensorFlow is imported, but no GPU has been used yet

    probe.setting("CUDA_VISIBLE_DEVICES", asked="0", effective=probe.visible_gpus(tf, most=1))


def work(tf, probe):
    before = [device.name for device in tf.config.list_logical_devices("GPU")]

    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # too late

    after = [device.name for device in tf.config.list_logical_devices("GPU")]
    probe.setting("CUDA_VISIBLE_DEVICES, later", asked="-1", effective=after, note="too late: nothing changed")
    if after != before:
        raise AssertionError("the devices changed from %s to %s after they had been initialized" % (before, after))
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

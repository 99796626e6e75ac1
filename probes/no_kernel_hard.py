"""An op without a GPU kernel on the GPU, without soft placement: an error.

TensorFlow has no GPU kernel for integer matrix products. The error looks like the one for a missing device, but the
device is in its list of available devices, and its type is not in the list of supported types.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "no-kernel-hard",
    "title": "No GPU kernel, hard placement",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "gpus": 1,
}

EXAMPLE = """\
import tensorflow as tf

tf.config.set_soft_device_placement(False)

with tf.device("/CPU:0"):
    a = tf.constant([[1, 2], [3, 4]])
try:
    with tf.device("/GPU:0"):
        tf.matmul(a, a)
except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
    print(error)
"""


def configure(tf, probe):
    tf.config.set_soft_device_placement(False)

    probe.setting("soft placement", asked=False, effective=tf.config.get_soft_device_placement())


def work(tf, probe):
    with tf.device("/CPU:0"):
        a = tf.constant([[1, 2], [3, 4]])
    probe.result("op", "MatMul")
    probe.result("dtype", a.dtype.name)
    probe.result("requested", "/GPU:0")
    try:
        with tf.device("/GPU:0"):
            tf.matmul(a, a)
    except (tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("an int32 matrix product ran on the GPU although it has no kernel there")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

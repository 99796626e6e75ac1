"""An op without a GPU kernel, asked for on the GPU, without soft placement: refused.

No GPU multiplies integer matrices in TensorFlow. The error looks like that of a missing device: the
difference is that the device is in its list of available ones, and its type is not among the
supported ones.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "no-kernel-hard",
    "title": "No kernel for the GPU, hard placement",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
    "gpus": 1,
}


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

"""Request a GPU that does not exist, without soft placement: an error.

The error lists the available devices. Soft placement, which is on by default, would silently move the op: turn it off
to find wrong device names.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "hard-missing",
    "title": "Missing device, hard placement",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import tensorflow as tf

tf.config.set_soft_device_placement(False)

device = $missing_device
try:
    with tf.device(device):
        tf.matmul([[1.0]], [[1.0]])
except (tf.errors.InvalidArgumentError, RuntimeError) as error:  # RuntimeError before 2.2
    print(error)
"""


def configure(tf, probe):
    tf.config.set_soft_device_placement(False)

    probe.setting("soft placement", asked=False, effective=tf.config.get_soft_device_placement())


def work(tf, probe):
    device = probe.options["missing_device"]
    probe.setting("device", asked=device)
    try:
        with tf.device(device):
            tf.matmul([[1.0]], [[1.0]])
    except (tf.errors.InvalidArgumentError, RuntimeError) as error:  # RuntimeError before 2.2
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("an op on %s ran although soft placement is off" % device)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

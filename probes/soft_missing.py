"""Request a GPU that does not exist, with soft placement: TensorFlow silently moves the op.

Soft placement is the default since TensorFlow 2.0. The op runs on a device that exists, and the log does not mention
the requested one.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "soft-missing",
    "title": "Missing device, soft placement",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "fallback",
}

EXAMPLE = """\
import tensorflow as tf

tf.config.set_soft_device_placement(True)

device = $missing_device
with tf.device(device):
    a = tf.random.uniform([$size, $size])
    product = tf.matmul(a, a)
print(product.device)
"""


def configure(tf, probe):
    tf.config.set_soft_device_placement(True)

    probe.setting("soft placement", asked=True, effective=tf.config.get_soft_device_placement())


def work(tf, probe):
    device = probe.options["missing_device"]
    probe.setting("device", asked=device)
    probe.run(tf, device)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

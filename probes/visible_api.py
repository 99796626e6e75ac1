"""Choose GPUs in the program: tf.config.set_visible_devices, here the last one only.

TensorFlow then does not use other GPUs or take memory there. Its GPU:0 is now the last physical GPU: logical devices
are renumbered.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "visible-api",
    "title": "One GPU chosen in the program",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[-1:], "GPU")

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[-1:], "GPU")

    visible = tf.config.get_visible_devices("GPU")
    probe.setting("visible devices", asked=[gpu.name for gpu in gpus[-1:]], effective=[gpu.name for gpu in visible])


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""Memory growth: start small, and take more memory as needed.

TensorFlow then holds only what the work needs, but does not return it before it exits. The upper limit is the same as
with the defaults. It must be set in the same way for all GPUs, before the first one is used.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "growth",
    "title": "Memory growth",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)

    granted = [tf.config.experimental.get_memory_growth(gpu) for gpu in gpus]
    probe.setting("memory growth", asked=True, effective=all(granted) if granted else None)


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

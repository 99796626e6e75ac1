"""Memory growth on one GPU of several: ValueError.

TensorFlow requires the same growth setting for all visible GPUs, and checks this late, when it initializes the
devices. Set it in a loop over all of them, or hide the others first.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "mixed-growth",
    "title": "Memory growth on only one of several GPUs",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "gpus": 2,
}

EXAMPLE = """\
import tensorflow as tf

first, *others = tf.config.list_physical_devices("GPU")
tf.config.experimental.set_memory_growth(first, True)

try:
    tf.config.list_logical_devices()  # or any op
except ValueError as error:
    print(error)
# What the error asks for:
for gpu in others:
    tf.config.experimental.set_memory_growth(gpu, True)

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    first, *others = tf.config.list_physical_devices("GPU")
    tf.config.experimental.set_memory_growth(first, True)

    probe.setting("memory growth", asked={first.name: True, **{gpu.name: False for gpu in others}})
    try:
        tf.config.list_logical_devices()  # or any op
    except ValueError as error:
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("memory growth on %s alone was accepted" % first.name)
    # What the error asks for:
    for gpu in others:
        tf.config.experimental.set_memory_growth(gpu, True)


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

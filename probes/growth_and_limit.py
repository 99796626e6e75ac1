"""A memory limit and set_memory_growth on the same GPU: ValueError.

A limit creates a logical device, and set_memory_growth rejects a GPU that has one. For growth up to a limit, set
TF_FORCE_GPU_ALLOW_GROWTH=true with memory_limit (configuration grow-to-limit).
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "growth-and-limit",
    "title": "A limit and set_memory_growth together",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "gpus": 1,
    "options": {"memory_limit": 1024},
}

EXAMPLE = """\
import tensorflow as tf

limit = $memory_limit  # MB
gpu = tf.config.list_physical_devices("GPU")[0]

tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
try:
    tf.config.experimental.set_memory_growth(gpu, True)
except ValueError as error:
    print(error)

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    limit = probe.options["memory_limit"]  # MB
    gpu = tf.config.list_physical_devices("GPU")[0]
    if probe.undivided(tf):
        probe.setting("memory_limit", asked=limit, note="TensorFlow ignores it on a PluggableDevice")
        probe.skip("this GPU is a PluggableDevice, where TensorFlow ignores memory_limit")

    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])
    probe.setting("memory_limit", asked=limit, effective=limit)
    try:
        tf.config.experimental.set_memory_growth(gpu, True)
    except ValueError as error:
        probe.setting("memory growth", asked=True, effective=False, note=str(error))
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("memory growth was accepted on a GPU with a memory limit")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""A memory limit: TensorFlow takes this much of the GPU and no more.

One logical device of this size: all of it is taken at once. With TF_FORCE_GPU_ALLOW_GROWTH=true in the environment, it
is taken as needed (configuration grow-to-limit). The CUDA context needs a few hundred MB more.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "limit",
    "title": "Memory limit",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "options": {"memory_limit": 1024},
}

EXAMPLE = """\
import tensorflow as tf

limit = $memory_limit  # MB
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    limit = probe.options["memory_limit"]  # MB
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])

    if gpus and probe.undivided(tf):
        probe.setting("memory_limit", asked=limit, note="TensorFlow ignores it on a PluggableDevice")
        probe.skip("this GPU is a PluggableDevice, where TensorFlow ignores memory_limit")
    kept = [part.memory_limit for gpu in gpus for part in tf.config.get_logical_device_configuration(gpu)]
    probe.setting("memory_limit", asked=limit, effective=kept[0] if kept else None, note="" if kept else "no GPU")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

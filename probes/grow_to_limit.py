"""A memory limit that is grown to: TF_FORCE_GPU_ALLOW_GROWTH=true beside memory_limit.

The setting for a shared GPU: the process takes what it needs, when it needs it, and is refused more than
its limit. set_memory_growth cannot be called on a GPU that has a limit; the variable can be set. The CUDA
context (some hundred MB) comes on top.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "grow-to-limit",
    "title": "Growth up to a limit",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
    "options": {"memory_limit": 1024},
}

ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def configure(tf, probe):
    limit = probe.options["memory_limit"]  # MB
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=limit)])

    if gpus and probe.undivided(tf):
        probe.setting("memory_limit", asked=limit, note="TensorFlow ignores it on a PluggableDevice")
        probe.skip("TensorFlow ignores memory_limit on a PluggableDevice, which is what this GPU is")
    kept = [part.memory_limit for gpu in gpus for part in tf.config.get_logical_device_configuration(gpu)]
    probe.setting("memory_limit", asked=limit, effective=kept[0] if kept else None, note="" if kept else "no GPU")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

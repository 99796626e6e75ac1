"""Settings made after the first use of a device: RuntimeError.

Growth, logical devices and visible devices are fixed when TensorFlow initializes its devices: at the first op, the
first tensor or list_logical_devices(). Later tf.config calls fail. This is a common mistake in notebooks: restart the
kernel and make these calls first.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "late-config",
    "title": "Settings made too late",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
}

EXAMPLE = """\
import tensorflow as tf

tf.constant(1.0)  # the first use of a device: from here on, its settings are fixed

gpu = tf.config.list_physical_devices("GPU")[0]
try:
    tf.config.experimental.set_memory_growth(gpu, True)
except RuntimeError as error:
    print("memory growth:", error)
try:
    limited = tf.config.LogicalDeviceConfiguration(memory_limit=1024)
    tf.config.set_logical_device_configuration(gpu, [limited])
except RuntimeError as error:
    print("logical devices:", error)
try:
    tf.config.set_visible_devices([], "GPU")
except RuntimeError as error:
    print("visible devices:", error)

# Make these calls right after the import; in a notebook, restart the kernel first.
"""


def configure(tf, probe):
    """See work(): the settings are made too late."""


def work(tf, probe):
    tf.constant(1.0)  # the first use of a device

    gpus = tf.config.list_physical_devices("GPU")
    device = (gpus or tf.config.list_physical_devices("CPU"))[0]
    logical = tf.config.LogicalDeviceConfiguration(memory_limit=1024 if gpus else None)
    attempts = [
        ("logical devices", lambda: tf.config.set_logical_device_configuration(device, [logical, logical])),
        ("visible devices", lambda: tf.config.set_visible_devices([], device.device_type)),
    ]
    if gpus:
        attempts.insert(0, ("memory growth", lambda: tf.config.experimental.set_memory_growth(gpus[0], True)))
    for name, attempt in attempts:
        try:
            attempt()
        except RuntimeError as error:
            probe.setting(name, asked="after the first use", effective="unchanged", note=str(error))
            probe.error(error, expected=True)
        else:
            probe.did_not_fail("%s could be set after the devices had been initialized" % name)
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

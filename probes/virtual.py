"""One GPU as several: logical devices, each with a part of the memory.

Lets you test a program for several GPUs on one. Each part takes its memory at once; the parts share the GPU's
processors, so nothing gets faster.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "virtual",
    "title": "One GPU as several logical devices",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "matmul",
    "tier": "driver-first",
    "options": {"virtual": 2, "memory_limit": 1024},
}

EXAMPLE = """\
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
part = tf.config.LogicalDeviceConfiguration(memory_limit=$memory_limit)  # MB, taken at once
tf.config.set_logical_device_configuration(gpus[0], [part] * $virtual)
tf.config.set_visible_devices(gpus[0], "GPU")  # otherwise the other GPUs are used too

for device in tf.config.list_logical_devices("GPU"):
    with tf.device(device.name):
        product = tf.matmul([[1.0]], [[2.0]])
    print(product.device)
"""


def configure(tf, probe):
    number, limit = probe.options["virtual"], probe.options["memory_limit"]  # limit of each part, in MB
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        parts = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * number
        tf.config.set_logical_device_configuration(gpus[0], parts)

    if gpus and probe.undivided(tf):
        probe.setting("logical devices", asked=number, effective=1, note="TensorFlow ignores them on a PluggableDevice")
        probe.skip("this GPU is a PluggableDevice, which TensorFlow cannot split into logical devices")
    # Otherwise the other GPUs are used too.
    tf.config.set_visible_devices(gpus[:1], "GPU")


def work(tf, probe):
    parts = [device.name for device in tf.config.list_logical_devices("GPU")]
    limit = probe.options["memory_limit"]
    probe.setting("logical devices", asked=probe.options["virtual"], effective=len(parts), note="of %d MB each" % limit)
    for name in parts[1:]:
        with tf.device(name):
            product = tf.matmul([[1.0]], [[2.0]])
        probe.emit("placement", op="MatMul", dtype="float32", requested=name, actual=product.device, count=1)
    probe.run(tf, "/GPU:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

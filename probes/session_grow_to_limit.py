"""Growth up to a fraction in a TF1 session: per_process_gpu_memory_fraction with allow_growth.

The setting for a shared GPU: the process takes what it needs, when it needs it, and is refused more than
its fraction of all the memory. In TensorFlow 2 it is memory_limit with TF_FORCE_GPU_ALLOW_GROWTH=true.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "session-grow-to-limit",
    "title": "Growth up to a fraction (TF1 session)",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
    "options": {"fraction": 0.4},
}

EXAMPLE = """\
import tensorflow as tf

# Of all memory of the GPU. Without allow_growth all of it is taken at once.
gpu_options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=$fraction, allow_growth=True)
config = tf.compat.v1.ConfigProto(gpu_options=gpu_options)

# A session runs a graph; outside of this block TensorFlow 2 computes at once.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    for device in session.list_devices():
        print(device.name, "may have", device.memory_limit_bytes >> 20, "MB")
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
"""


def configure(tf, probe):
    fraction = probe.options["fraction"]
    gpu_options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=fraction, allow_growth=True)
    config = tf.compat.v1.ConfigProto(gpu_options=gpu_options)
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs, and others that are plug-ins

    probe.session_config = config
    probe.setting("allow_growth", asked=True, effective=config.gpu_options.allow_growth)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        probe.session_devices(session)
        limits = [device.memory_limit_bytes for device in session.list_devices() if device.device_type == "GPU"]
        probe.setting(
            "per_process_gpu_memory_fraction",
            asked=probe.options["fraction"],
            effective=["%d MB" % (limit >> 20) for limit in limits] or None,
            note="" if limits else "no GPU",
        )
        probe.session_matmul(tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

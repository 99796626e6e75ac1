"""Growth up to a fraction in a TF1 session: per_process_gpu_memory_fraction with allow_growth.

The setting for a shared GPU: the process takes memory as it needs it, up to a fraction of the total. In TensorFlow 2,
use memory_limit with TF_FORCE_GPU_ALLOW_GROWTH=true.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "session-grow-to-limit",
    "title": "Growth up to a fraction (TF1 session)",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "options": {"fraction": 0.4},
}

EXAMPLE = """\
import tensorflow as tf

# A fraction of the GPU's total memory. Without allow_growth, all of it is taken at once.
gpu_options = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=$fraction, allow_growth=True)
config = tf.compat.v1.ConfigProto(gpu_options=gpu_options)

# A session runs a graph; outside this block, TensorFlow 2 executes ops eagerly.
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
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs and other PluggableDevices

    probe.session_config = config
    probe.setting("allow_growth", asked=True, effective=config.gpu_options.allow_growth)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        workloads.session_devices(probe, session)
        workloads.session_fraction(probe, session)
        workloads.session_matmul(probe, tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

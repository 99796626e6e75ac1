"""Choose GPUs in a TF1 session: gpu_options.visible_device_list.

A list like CUDA_VISIBLE_DEVICES, with indices into the GPUs that CUDA shows to the process. The session's /gpu:0 is the
first in the list; here the last GPU is chosen.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "session-visible",
    "title": "One GPU chosen for a TF1 session",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import tensorflow as tf

# A list like "1,0", with indices into the GPUs that CUDA_VISIBLE_DEVICES leaves: here the last one.
gpus = tf.config.list_physical_devices("GPU")
config = tf.compat.v1.ConfigProto()
config.gpu_options.visible_device_list = str(len(gpus) - 1)

# A session runs a graph; outside this block, TensorFlow 2 executes ops eagerly.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    print([device.name for device in session.list_devices()])  # its GPU:0 is the chosen GPU
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
"""


def configure(tf, probe):
    count = len(tf.config.list_physical_devices("GPU"))
    chosen = str(max(0, count - 1))
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.visible_device_list = chosen
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs and other PluggableDevices

    probe.session_config = config
    probe.setting("visible_device_list", asked=chosen, effective=config.gpu_options.visible_device_list)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        workloads.session_devices(probe, session)
        workloads.session_matmul(probe, tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

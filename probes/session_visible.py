"""Choose GPUs in a TF1 session: gpu_options.visible_device_list.

A list like that of CUDA_VISIBLE_DEVICES, counted among the GPUs that CUDA shows to the process. The
session's /gpu:0 is the first of the list; here the last GPU is chosen.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "session-visible",
    "title": "One GPU chosen for a TF1 session",
    "group": "visibility",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
}

EXAMPLE = """\
import tensorflow as tf

# A list like "1,0", counted among the GPUs that CUDA_VISIBLE_DEVICES leaves: here the last of them.
gpus = tf.config.list_physical_devices("GPU")
config = tf.compat.v1.ConfigProto()
config.gpu_options.visible_device_list = str(len(gpus) - 1)

# A session runs a graph; outside of this block TensorFlow 2 computes at once.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    print([device.name for device in session.list_devices()])  # its GPU:0 is the GPU chosen
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
"""


def configure(tf, probe):
    count = len(tf.config.list_physical_devices("GPU"))
    chosen = str(max(0, count - 1))
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.visible_device_list = chosen
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs, and others that are plug-ins

    probe.session_config = config
    probe.setting("visible_device_list", asked=chosen, effective=config.gpu_options.visible_device_list)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        probe.session_devices(session)
        probe.session_matmul(tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

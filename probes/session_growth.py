"""Memory growth in a TF1 session: gpu_options.allow_growth.

The same as set_memory_growth in TensorFlow 2. The first session of a process decides for all later ones.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "session-growth",
    "title": "Memory growth (TF1 session)",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import tensorflow as tf

# The first session of a process decides for all later ones.
config = tf.compat.v1.ConfigProto()
config.gpu_options.allow_growth = True  # start small, take more memory as needed

# A session runs a graph; outside this block, TensorFlow 2 executes ops eagerly.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
"""


def configure(tf, probe):
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs and other PluggableDevices

    probe.session_config = config
    probe.setting("allow_growth", asked=True, effective=config.gpu_options.allow_growth)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        workloads.session_devices(probe, session)
        workloads.session_matmul(probe, tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

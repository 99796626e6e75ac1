"""Memory growth in a TF1 session: gpu_options.allow_growth.

What tf.config.experimental.set_memory_growth is in TensorFlow 2. The first session of a process
decides for all later ones.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "session-growth",
    "title": "Memory growth (TF1 session)",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
}

EXAMPLE = """\
import tensorflow as tf

# The first session of a process decides for all later ones.
config = tf.compat.v1.ConfigProto()
config.gpu_options.allow_growth = True  # start small, take more when it is needed

# A session runs a graph; outside of this block TensorFlow 2 computes at once.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
"""


def configure(tf, probe):
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs, and others that are plug-ins

    probe.session_config = config
    probe.setting("allow_growth", asked=True, effective=config.gpu_options.allow_growth)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        probe.session_devices(session)
        probe.session_matmul(tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

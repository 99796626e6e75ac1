"""Devices in a TF1 session: log_device_placement, and an op on /gpu:1.

log_device_placement prints the device of every op when the graph is first run. Without soft placement
(the default of sessions) an op that names /gpu:1 fails where there is one GPU.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "session-placement",
    "title": "Devices named in a TF1 session",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
    "gpus": 2,
}

EXAMPLE = """\
import tensorflow as tf

# Prints the device of every op when the graph is first run.
config = tf.compat.v1.ConfigProto(log_device_placement=True)

# A session runs a graph; outside of this block TensorFlow 2 computes at once.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    with tf.device("/cpu:0"):
        a = tf.constant([[1.0, 2.0]], name="a")
        b = tf.constant([[3.0], [4.0]], name="b")
    with tf.device("/gpu:1"):  # where there is one GPU, this fails: sessions have no soft placement
        product = tf.matmul(a, b, name="product")
    print(session.run(product))
"""


def configure(tf, probe):
    probe.session_config = tf.compat.v1.ConfigProto(log_device_placement=True)

    probe.setting("log_device_placement", asked=True, effective=True)
    probe.setting("device", asked="/gpu:1")


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        probe.session_devices(session)
        probe.session_matmul(tf, session, "/gpu:1")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

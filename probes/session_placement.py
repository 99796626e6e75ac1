"""Devices in a TF1 session: log_device_placement, and an op on /gpu:1.

log_device_placement prints the device of every op when the graph is first run. Sessions have no soft placement by
default, so an op on /gpu:1 fails if there is only one GPU.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "session-placement",
    "title": "Devices named in a TF1 session",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "gpus": 2,
}

EXAMPLE = """\
import tensorflow as tf

# Prints the device of every op when the graph is first run.
config = tf.compat.v1.ConfigProto(log_device_placement=True)

# A session runs a graph; outside this block, TensorFlow 2 executes ops eagerly.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    with tf.device("/cpu:0"):
        a = tf.constant([[1.0, 2.0]], name="a")
        b = tf.constant([[3.0], [4.0]], name="b")
    with tf.device("/gpu:1"):  # fails with only one GPU: sessions have no soft placement by default
        product = tf.matmul(a, b, name="product")
    print(session.run(product))
"""


def configure(tf, probe):
    probe.session_config = tf.compat.v1.ConfigProto(log_device_placement=True)

    probe.setting("log_device_placement", asked=True, effective=True)
    probe.setting("device", asked="/gpu:1")


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        workloads.session_devices(probe, session)
        workloads.session_matmul(probe, tf, session, "/gpu:1")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""Soft placement in a TF1 session: allow_soft_placement.

With it, an op on a device that does not exist, or that has no kernel for it, runs elsewhere instead of failing. It is
off by default in sessions, and on in TensorFlow 2.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "session-soft",
    "title": "Soft placement (TF1 session)",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import tensorflow as tf

# Off by default in a session, on by default in TensorFlow 2.
config = tf.compat.v1.ConfigProto(
    allow_soft_placement=True,
    log_device_placement=True,  # prints where each op runs
)

# A session runs a graph; outside this block, TensorFlow 2 executes ops eagerly.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    with tf.device($missing_device):  # there is no such GPU
        moved = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]], name="moved")
    print(session.run(moved))
"""


def configure(tf, probe):
    probe.session_config = tf.compat.v1.ConfigProto(allow_soft_placement=True)

    probe.setting("allow_soft_placement", asked=True, effective=True)


def work(tf, probe):
    missing = probe.options["missing_device"]
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        workloads.session_devices(probe, session)
        with tf.device(missing):
            # Not constants: TensorFlow would fold them before placement.
            moved = tf.matmul(tf.random.uniform([2, 2]), tf.random.uniform([2, 2]), name="moved")
        ran_on = workloads.session_ran_on(tf, session, moved)
        probe.setting("device", asked=missing, effective=ran_on, note="moved by allow_soft_placement" if ran_on else "")
        # The measured work uses a device that exists if there is a GPU.
        workloads.session_matmul(probe, tf, session, "/gpu:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

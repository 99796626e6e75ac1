"""Soft placement in a TF1 session: allow_soft_placement.

With it, an op on a device that does not exist, or without a kernel there, runs elsewhere instead of
failing. Sessions have it off by default, TensorFlow 2 has it on.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "session-soft",
    "title": "Soft placement (TF1 session)",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
}

EXAMPLE = """\
import tensorflow as tf

# Off by default in a session, on by default in TensorFlow 2.
config = tf.compat.v1.ConfigProto(
    allow_soft_placement=True,
    log_device_placement=True,  # prints where each op runs in the end
)

# A session runs a graph; outside of this block TensorFlow 2 computes at once.
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
        probe.session_devices(session)
        with tf.device(missing):
            # Of constants alone there would be nothing left to run: they are computed before the placement shows.
            moved = tf.matmul(tf.random.uniform([2, 2]), tf.random.uniform([2, 2]), name="moved")
        ran_on = probe.session_ran_on(tf, session, moved)
        probe.setting("device", asked=missing, effective=ran_on, note="moved by allow_soft_placement" if ran_on else "")
        # The measured work names a device that exists where there is a GPU.
        probe.session_matmul(tf, session, "/gpu:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

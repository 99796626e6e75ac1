"""An int32 variable on the GPU in a TF1 session: InvalidArgumentError with a colocation report.

A variable and the ops that read and write it must be on the same device, and integer variables have no GPU kernel. The
report lists the group, the requested device and the device types that each op supports. Put the variable on the CPU,
or allow soft placement.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "session-no-kernel",
    "title": "No GPU kernel (TF1 session)",
    "group": "placement",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
    "gpus": 1,
}

EXAMPLE = """\
import tensorflow as tf

config = tf.compat.v1.ConfigProto(allow_soft_placement=False)  # True would move it to the CPU

# A session runs a graph; outside this block, TensorFlow 2 executes ops eagerly.
with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
    # A variable and the ops that read and write it must be on the same device, and integer variables
    # have no GPU kernel: with "/cpu:0" this works.
    with tf.device("/gpu:0"):
        counter = tf.compat.v1.get_variable("counter", initializer=tf.constant([1, 2, 3]), use_resource=False)
    try:
        session.run(counter.initializer)
    except tf.errors.InvalidArgumentError as error:
        print(error)
"""


def configure(tf, probe):
    probe.session_config = tf.compat.v1.ConfigProto(allow_soft_placement=False)

    probe.setting("allow_soft_placement", asked=False, effective=False)


def work(tf, probe):
    with tf.Graph().as_default(), tf.compat.v1.Session(config=probe.session_config) as session:
        workloads.session_devices(probe, session)
        with tf.device("/gpu:0"):
            counter = tf.compat.v1.get_variable("counter", initializer=tf.constant([1, 2, 3]), use_resource=False)
        probe.result("op", "VariableV2")
        probe.result("dtype", "int32")
        probe.result("requested", "/gpu:0")
        try:
            session.run(counter.initializer)
        except tf.errors.InvalidArgumentError as error:
            probe.error(error, expected=True)
        else:
            probe.did_not_fail("an int32 variable was placed on the GPU although it has no kernel there")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

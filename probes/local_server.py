"""A TF1 session on a server in the same process: tf.compat.v1.train.Server.create_local_server().

The smallest form of distributed TensorFlow 1: the session is a client, and the devices belong to the server. So the
server's GPU options apply; those of the session have no effect.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "local-server",
    "title": "A session on a local server",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import tensorflow as tf

# The devices belong to the server: its options apply, and those of a session have no effect.
config = tf.compat.v1.ConfigProto()
config.gpu_options.allow_growth = True
server = tf.compat.v1.train.Server.create_local_server(config=config)

# The session is a client of the server.
with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
    print([device.name for device in session.list_devices()])
    product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]])
    print(session.run(product))
"""


def configure(tf, probe):
    config = tf.compat.v1.ConfigProto()
    config.gpu_options.allow_growth = True
    gpuwatch_probe.also_for_plugins(config)  # only for simulated GPUs and other PluggableDevices

    probe.session_config = config
    probe.setting("allow_growth (server)", asked=True, effective=config.gpu_options.allow_growth)


def work(tf, probe):
    server = tf.compat.v1.train.Server.create_local_server(config=probe.session_config)
    probe.result("target", server.target)
    with tf.Graph().as_default(), tf.compat.v1.Session(server.target) as session:
        workloads.session_devices(probe, session)
        workloads.session_matmul(probe, tf, session)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

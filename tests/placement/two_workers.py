"""Two workers of a MultiWorkerMirroredStrategy with a GPU each, started as a launcher starts them."""

import json
import os
import socket
import subprocess
import sys

STEP = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    kept = tf.Variable(1.0)

@tf.function
def step():
    def one():
        with tf.device("/GPU:0"):
            text = tf.strings.join(["a", tf.as_string(kept)])
        return tf.cast(tf.strings.length(text), tf.float32)

    return strategy.reduce("SUM", strategy.run(one), axis=None)

step()
"""
held = [socket.create_server(("localhost", 0)) for _ in range(2)]
workers = [f"localhost:{one.getsockname()[1]}" for one in held]
for one in held:
    one.close()
started = []
for index in range(2):
    task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    environment = {**os.environ, "TF_CONFIG": json.dumps(task), "CUDA_VISIBLE_DEVICES": str(index)}
    started.append(subprocess.Popen([sys.executable, "-c", STEP], env=environment))
sys.exit(max(abs(process.wait()) for process in started))

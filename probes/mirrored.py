"""MirroredStrategy: a copy of the model on every GPU, each with a share of the batch.

The gradients are summed over the GPUs after each step. Create variables inside ``strategy.scope()``. A device in its
list that does not exist is not an error: that replica silently runs on the CPU, so check the list.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "mirrored",
    "title": "MirroredStrategy",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "mlp",
    "own_work": True,
    "gpus": 2,
    "tier": "plugin",
}

EXAMPLE = """\
import tensorflow as tf

# All GPUs is also the default. A replica on a device that does not exist would silently run on the CPU.
gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
strategy = tf.distribute.MirroredStrategy(gpus)
print(strategy.num_replicas_in_sync, "replicas")

with strategy.scope():  # everything that creates variables
    model = tf.keras.Sequential(
        [
            tf.keras.Input([64]),
            tf.keras.layers.Dense(256, activation="relu"),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="sgd", loss="mse")

x = tf.random.uniform([1024, 64])
y = tf.reduce_mean(x, axis=1, keepdims=True)
batch = 64 * strategy.num_replicas_in_sync  # shared by the replicas
model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(batch), epochs=3)
"""


def configure(tf, probe):
    """No settings."""


def work(tf, probe):
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if probe.simulation:  # a simulated GPU has no NCCL, which is the default
        strategy = tf.distribute.MirroredStrategy(gpus, cross_device_ops=tf.distribute.ReductionToOneDevice())
    else:
        strategy = tf.distribute.MirroredStrategy(gpus)
    probe.setting("replicas", asked=len(gpus), effective=strategy.num_replicas_in_sync)

    with strategy.scope():
        model = workloads.keras_model(tf, probe.workload, probe.options)
    workloads.train_distributed(probe, tf, strategy, model)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

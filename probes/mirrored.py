"""MirroredStrategy: a copy of the model on every GPU, each with a share of the batch.

The gradients are summed over the GPUs after each step. Everything that makes variables belongs into
``strategy.scope()``. A device in its list that does not exist is no error: the replica then runs on
the CPU in silence, so the list is worth checking.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "mirrored",
    "title": "MirroredStrategy",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "mlp",
    "own_work": True,
    "verdict": "ok",
    "gpus": 2,
    "tier": "plugin",
}

EXAMPLE = """\
import tensorflow as tf

# All GPUs are the default too; a name of the list that does not exist would run on the CPU in silence.
gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
strategy = tf.distribute.MirroredStrategy(gpus)
print(strategy.num_replicas_in_sync, "replicas")

with strategy.scope():  # whatever makes variables
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
batch = 64 * strategy.num_replicas_in_sync  # each replica gets its share of it
model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(batch), epochs=3)
"""


def configure(tf, probe):
    """The strategy takes the devices as they come."""


def work(tf, probe):
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    if probe.simulation:  # a simulated GPU has no NCCL, which is the default
        strategy = tf.distribute.MirroredStrategy(gpus, cross_device_ops=tf.distribute.ReductionToOneDevice())
    else:
        strategy = tf.distribute.MirroredStrategy(gpus)
    probe.setting("replicas", asked=len(gpus), effective=strategy.num_replicas_in_sync)

    with strategy.scope():
        model = probe.keras_model(tf)
    probe.train_distributed(tf, strategy, model)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

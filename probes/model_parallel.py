"""One model on two GPUs: two branches of a Keras model, each with its own device.

The branches run at the same time, and their results are combined on the first GPU. In Keras, set the device where the
layers are called, in ``call``: setting it while a functional model is built, as in old examples, no longer has an
effect. The backward pass has no device, so TensorFlow runs it on the first GPU.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workloads as workloads

CONFIG = {
    "name": "model-parallel",
    "title": "Two branches of a model on two GPUs",
    "group": "devices",
    "framework": "tensorflow",
    "workload": "lstm",
    "own_work": True,
    "gpus": 2,
    "tier": "plugin",
}

EXAMPLE = """\
import tensorflow as tf

left, right = [device.name for device in tf.config.list_logical_devices("GPU")][:2]


class TwoBranches(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.left = tf.keras.layers.LSTM(64)
        self.right = tf.keras.layers.LSTM(64, go_backwards=True)
        self.head = tf.keras.layers.Dense(1)

    def call(self, x):
        # Set devices where the layers are called: while a functional model is built, tf.device
        # has no effect in Keras 3.
        with tf.device(left):
            a = self.left(x)
        with tf.device(right):
            b = self.right(x)
        with tf.device(left):
            return self.head(tf.concat([a, b], axis=1))


model = TwoBranches()
# Create each branch's weights on its own GPU.
with tf.device(left):
    model.left.build([None, 16, 8])
with tf.device(right):
    model.right.build([None, 16, 8])
model.compile(optimizer="sgd", loss="mse", jit_compile=False)  # XLA compiles for one device

x = tf.random.uniform([256, 16, 8])
y = tf.reshape(tf.reduce_mean(x, axis=[1, 2]), [-1, 1])
model.fit(x, y, epochs=3)
print(model.left.weights[0].value.device, model.right.weights[0].value.device)
"""


def configure(tf, probe):
    """No settings."""


def work(tf, probe):
    left, right = [device.name for device in tf.config.list_logical_devices("GPU")][:2]
    probe.setting("branches", asked={"left": left, "right": right})
    model = two_branches(tf, probe, left, right)
    workloads.train(probe, tf, model)
    probe.setting(
        "branches",
        asked={"left": left, "right": right},
        effective={"left": model.left.weights[0].value.device, "right": model.right.weights[0].value.device},
    )


def two_branches(tf, probe, left, right):
    units, lstm = probe.options["units"], workloads.lstm_arguments(tf)

    class TwoBranches(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.left = tf.keras.layers.LSTM(units, **lstm)
            self.right = tf.keras.layers.LSTM(units, go_backwards=True, **lstm)
            self.head = tf.keras.layers.Dense(1)

        def call(self, x):
            with tf.device(left):
                a = self.left(x)
            with tf.device(right):
                b = self.right(x)
            with tf.device(left):
                return self.head(tf.concat([a, b], axis=1))

    model = TwoBranches()
    with tf.device(left):
        model.left.build([None, probe.options["timesteps"], probe.options["features"]])
    with tf.device(right):
        model.right.build([None, probe.options["timesteps"], probe.options["features"]])
    model.compile(
        optimizer=tf.keras.optimizers.SGD(probe.options["learning_rate"]),
        loss="mse",
        jit_compile=False,  # XLA compiles for one device
    )
    return model


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

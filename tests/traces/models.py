"""Ten small Keras programs, none written for gpuwatch: what a recording of their memory must explain.

By hand, on a simulated GPU: ``python -m tests.traces.models`` prints the shares of each.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.forked import gpuwatch_forked

_START = """
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np, keras, tensorflow as tf
from keras import layers
keras.utils.set_random_seed(1)
random = np.random.default_rng(1)
def images(count, side, channels): return random.random((count, side, side, channels)).astype("float32")
def classes(count, most=10): return random.integers(0, most, count)
crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""
MODELS: dict[str, str] = {
    "dense": """
model = keras.Sequential([layers.Input((784,)), layers.Dense(1024, "relu"), layers.Dense(512, "relu"),
    layers.Dense(10)])
model.compile("adam", crossentropy)
model.fit(random.random((1024, 784)).astype("float32"), classes(1024), batch_size=64, verbose=0)
""",
    "conv": """
model = keras.Sequential([layers.Input((32, 32, 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
    layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(), layers.Dense(64),
    layers.Dense(10)])
model.compile("sgd", crossentropy)
model.fit(images(256, 32, 3), classes(256), batch_size=32, verbose=0)
""",
    "lstm": """
model = keras.Sequential([layers.Input((20, 16)), layers.LSTM(64, return_sequences=True), layers.LSTM(32),
    layers.Dense(1)])
model.compile("rmsprop", "mse")
model.fit(random.random((256, 20, 16)).astype("float32"), random.random((256, 1)), batch_size=32, verbose=0)
""",
    "transformer": """
x = inputs = layers.Input((32,), dtype="int32")
x = layers.Embedding(2000, 64)(x) + layers.Embedding(32, 64)(np.arange(32))
for _ in range(2):
    y = layers.MultiHeadAttention(4, 16)(x, x)
    x = layers.LayerNormalization()(x + y)
    y = layers.Dense(64)(layers.Dense(256, "gelu")(x))
    x = layers.LayerNormalization()(x + y)
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))
model.compile(keras.optimizers.AdamW(1e-3), crossentropy)
model.fit(random.integers(0, 2000, (256, 32)), classes(256), batch_size=32, verbose=0)
""",
    "autoencoder": """
encoder = keras.Sequential([layers.Input((28, 28, 1)),
    layers.Conv2D(16, 3, strides=2, padding="same", activation="relu"),
    layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")])
decoder = keras.Sequential([layers.Input((7, 7, 8)), layers.Conv2DTranspose(8, 3, strides=2, padding="same"),
    layers.Conv2DTranspose(16, 3, strides=2, padding="same"), layers.Conv2D(1, 3, padding="same")])
inputs = layers.Input((28, 28, 1))
model = keras.Model(inputs, decoder(encoder(inputs)))
model.compile("adam", "mse")
x = images(256, 28, 1)
model.fit(x, x, batch_size=64, epochs=2, verbose=0)
""",
    "embedding": """
model = keras.Sequential([layers.Input((50,), dtype="int32"), layers.Embedding(20000, 64),
    layers.GlobalAveragePooling1D(), layers.Dense(64, "relu"), layers.Dense(2)])
model.compile("adam", crossentropy)
model.fit(random.integers(0, 20000, (512, 50)), classes(512, 2), batch_size=64, verbose=0)
""",
    "batch-norm": """
x = inputs = layers.Input((32, 32, 3))
for width in (16, 32):
    x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(x))
    y = layers.Conv2D(width, 3, padding="same", use_bias=False)(y)
    x = layers.ReLU()(layers.Add()([x, layers.BatchNormalization()(y)]))
model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), crossentropy)
data = tf.data.Dataset.from_tensor_slices((images(256, 32, 3), classes(256))).shuffle(256).batch(32).prefetch(2)
model.fit(data, epochs=1, verbose=0)
""",
    "custom-loop": """
model = keras.Sequential([layers.Input((256,)), layers.Dense(512, "relu"), layers.Dropout(0.2), layers.Dense(10)])
optimizer = keras.optimizers.Adam()
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = crossentropy(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
for _ in range(40):
    step(tf.constant(random.random((64, 256)), tf.float32), tf.constant(classes(64)))
""",
    "eager-loop": """
model = keras.Sequential([layers.Input((256,)), layers.Dense(512, "relu"), layers.Dense(512, "relu"), layers.Dense(10)])
optimizer = keras.optimizers.SGD(0.1)
for _ in range(20):
    x, y = tf.constant(random.random((64, 256)), tf.float32), tf.constant(classes(64))
    with tf.GradientTape() as tape:
        loss = crossentropy(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
""",
    "mixed-inputs": """
picture, numbers = layers.Input((24, 24, 1)), layers.Input((12,))
x = layers.Flatten()(layers.Conv2D(24, 3, activation="relu")(picture))
x = layers.Concatenate()([layers.Dense(64, "relu")(x), layers.Dense(64, "tanh")(numbers)])
model = keras.Model([picture, numbers], [layers.Dense(5)(x), layers.Dense(1)(x)])
model.compile("nadam", [crossentropy, "mae"])
model.fit([images(256, 24, 1), random.random((256, 12)).astype("float32")], [classes(256, 5), random.random((256, 1))],
    batch_size=32, verbose=0)
model.predict([images(256, 24, 1), random.random((256, 12)).astype("float32")], batch_size=128, verbose=0)
""",
}
"""Programs by name. XLA is off, as it is on simulated GPUs."""


def profile(name: str, folder: Path, python: str = sys.executable) -> dict[str, Any]:
    """The first memory profile of one program, under ``gpuwatch run --memory`` on a simulated GPU."""
    script, output = folder / f"{name}.py", folder / f"{name}.json"
    script.write_text(_START + MODELS[name])
    options = ["-q", "--no-save", "--sim", "1x4GiB", "--memory", "--json", "-o", str(output)]
    command = ("run", *options, "--", python, str(script))
    done = gpuwatch_forked(*command, environment=dict(os.environ), timeout=300, tier="plugin")
    assert done.code == 0, done.err[-3000:]
    run = json.loads(output.read_text())
    assert run["memory_profiles"], run["problems"]
    found: dict[str, Any] = run["memory_profiles"][0]
    return found


def shares(found: dict[str, Any]) -> tuple[float, float]:
    """Percent of the bytes in use at the peak that belong to a named op, and that also have a shape."""
    return 100 * found["named_bytes"] / found["peak_bytes"], 100 * found["shaped_bytes"] / found["peak_bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--python", default=os.environ.get("GPUWATCH_TENSORFLOW_PYTHON", sys.executable))
    options = parser.parse_args()
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            found = profile(name, Path(folder), options.python)
        named, shaped = shares(found)
        groups = ", ".join(
            f"{group} {100 * held / found['peak_bytes']:.0f} %" for group, held in found["groups"].items()
        )
        peak = found["peak_bytes"] / (1 << 20)
        print(f"{name:12} peak {peak:6.1f} MiB  op {named:5.1f} %  shape {shaped:5.1f} %  {groups}", flush=True)


if __name__ == "__main__":
    main()

"""The largest batch that fits under a memory limit.

A batch is limited by what the forward pass keeps for the backward pass: every layer's output for every example. The
batch grows by a quarter until memory runs out; the last one that fit is the result.
"""

import _gpuwatch_memory_limit as limits
import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "largest-batch",
    "title": "Largest batch that fits",
    "group": "limits",
    "framework": "tensorflow",
    "workload": "forward pass",
    "own_work": True,
    "options": {"memory_limit": 512, "layers": 4, "units": 256},
}

EXAMPLE = """\
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limited = tf.config.LogicalDeviceConfiguration(memory_limit=$memory_limit)  # MB
tf.config.set_logical_device_configuration(gpu, [limited])
tf.config.set_visible_devices(gpu, "GPU")

units, layers = $units, $layers
weights = [tf.random.uniform([units, units]) for _ in range(layers)]


def forward(batch):
    # What training keeps for its backward pass: every layer's output for every example.
    kept = [tf.zeros([batch, units])]
    for weight in weights:
        kept.append(tf.matmul(kept[-1], weight))


largest = 0
batch = ($memory_limit << 20) // (4 * units * (layers + 1)) // 4  # far below the limit
while True:
    try:
        forward(batch)
    except tf.errors.ResourceExhaustedError as error:
        print("batch %d: %s" % (batch, error))
        break
    largest = batch
    batch += max(1, batch // 4)
print("largest batch that fitted:", largest)
"""


def configure(tf, probe):
    limits.limit_memory(tf, probe)


def work(tf, probe):
    units, layers = probe.options["units"], probe.options["layers"]
    with tf.device("/CPU:0"):
        seeds = [tf.random.uniform([units, units], seed=layer) for layer in range(layers)]
        example = tf.random.uniform([1, units], seed=layers)
    weights = [tf.identity(seed) for seed in seeds]
    per_example = 4 * units * (layers + 1)
    # Far below the limit.
    batch = max(1, (probe.options["memory_limit"] << 20) // per_example // 4)
    largest, refused, ran_on = 0, None, None
    while refused is None:
        try:
            ran_on = forward(tf, example, weights, batch)
            largest = batch
            probe.emit("progress", batch=batch, steps=batch, seconds=0.0, of_seconds=0.0)
            batch += max(1, batch // 4)
        except tf.errors.ResourceExhaustedError as error:
            refused = batch
            probe.error(error, expected=True)
    probe.emit("placement", op="MatMul", dtype="float32", requested=None, actual=ran_on or "none", count=layers)
    probe.memory(tf)
    probe.result("largest_batch", largest)
    probe.result("first_refused_batch", refused)
    probe.result("bytes_per_example", per_example)
    if not largest:
        probe.did_not_fail("not even the first batch of %d fitted" % refused)


def forward(tf, example, weights, batch):
    """A forward pass that keeps what training needs; returns where it ran."""
    kept = [tf.tile(example, [batch, 1])]
    for weight in weights:
        kept.append(tf.matmul(kept[-1], weight))
    return kept[-1].device


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""Out of memory although enough is free: the free memory is fragmented.

The allocator cannot move what is in use. Here every second block is freed, half of the memory, and a tensor of two
blocks does not fit. Keep batch shapes constant, or try TF_GPU_ALLOCATOR=cuda_malloc_async.
"""

import _gpuwatch_memory_limit as limits
import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "fragmentation",
    "title": "Fragmented memory",
    "group": "limits",
    "framework": "tensorflow",
    "workload": "blocks",
    "own_work": True,
    "verdict": "oom",
    "options": {"memory_limit": 512, "blocks": 16},
}

EXAMPLE = """\
import tensorflow as tf

gpu = tf.config.list_physical_devices("GPU")[0]
limited = tf.config.LogicalDeviceConfiguration(memory_limit=$memory_limit)  # MB
tf.config.set_logical_device_configuration(gpu, [limited])
tf.config.set_visible_devices(gpu, "GPU")

# Fills the memory with blocks of the same size, except for a little that is already in use.
length = ($memory_limit << 20) // $blocks // 4  # float32 has 4 bytes
blocks = [tf.zeros([length]) for _ in range($blocks - 1)]

del blocks[1::2]  # every second one: half of the memory is free now, in small pieces
print(tf.config.experimental.get_memory_info("GPU:0"))
try:
    tf.zeros([2 * length])  # does not fit into any of them, and used memory cannot be moved
except tf.errors.ResourceExhaustedError as error:
    print(error)

# Keep the shapes of batches constant, or try TF_GPU_ALLOCATOR=cuda_malloc_async.
"""


def configure(tf, probe):
    limits.limit_memory(tf, probe)


def work(tf, probe):
    number = probe.options["blocks"]
    # A little memory is already in use, so one block fewer.
    rows = (probe.options["memory_limit"] << 20) // number // limits.ROW_BYTES
    blocks = [limits.block(tf, rows) for _ in range(number - 1)]
    place = blocks[0].device
    probe.result("block_bytes", rows * limits.ROW_BYTES)
    probe.emit("placement", op="AddV2", dtype="float32", requested=None, actual=place, count=len(blocks))
    probe.memory(tf)

    del blocks[1::2]  # every second one, but not the last, which has free memory after it
    probe.result("free_bytes_at_least", (number - len(blocks) - 1) * rows * limits.ROW_BYTES)
    probe.memory(tf)
    try:
        limits.block(tf, 2 * rows)
    except tf.errors.ResourceExhaustedError as error:
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("a tensor of two blocks fitted between single ones")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

"""CUDA's own allocator instead of TensorFlow's: TF_GPU_ALLOCATOR=cuda_malloc_async.

A memory pool in the driver, which starts small and fragments less. It prints no list of chunks when memory runs out.
Needs CUDA 11.2 or newer. TensorFlow reads the variable when it first uses a GPU.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "async-allocator",
    "title": "CUDA's asynchronous allocator",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "tier": "driver",
}

ENVIRONMENT = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}

EXAMPLE = """\
import os

os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc_async"

import tensorflow as tf

a = tf.random.uniform([$size, $size])
print(tf.matmul(a, a).device)
"""


def configure(tf, probe):
    if probe.pluggable(tf):
        probe.setting(
            "allocator", asked="cuda_malloc_async", note="TensorFlow ignores TF_GPU_ALLOCATOR on a PluggableDevice"
        )
        probe.skip("cuda_malloc_async needs CUDA, and this GPU is a PluggableDevice")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

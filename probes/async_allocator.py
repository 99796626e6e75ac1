"""CUDA's own allocator instead of TensorFlow's: TF_GPU_ALLOCATOR=cuda_malloc_async.

A memory pool of the driver, which fragments less and starts small. It has no report of its chunks
when memory runs out. Needs CUDA 11.2 or newer; read when the first GPU is used.
"""

import _gpuwatch_probe as gpuwatch_probe

CONFIG = {
    "name": "async-allocator",
    "title": "CUDA's asynchronous allocator",
    "group": "memory",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "ok",
    "tier": "driver",
}

ENVIRONMENT = {"TF_GPU_ALLOCATOR": "cuda_malloc_async"}


def configure(tf, probe):
    if probe.pluggable(tf):
        probe.setting(
            "allocator", asked="cuda_malloc_async", note="TensorFlow ignores TF_GPU_ALLOCATOR on a PluggableDevice"
        )
        probe.skip("cuda_malloc_async is CUDA's, and this GPU is a PluggableDevice")


def work(tf, probe):
    probe.run(tf)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)

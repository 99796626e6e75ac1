"""A GPU that another process has filled: not even a CUDA context can be created.

A context needs a few hundred MB of GPU memory, in addition to every limit and fraction. The error comes at the first
use of the GPU, and in most versions does not say which process holds the memory.
"""

import ctypes
import sys

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_workers as workers

CONFIG = {
    "name": "occupied",
    "title": "GPU filled by another process",
    "group": "sharing",
    "framework": "tensorflow",
    "workload": "matmul",
    "verdict": "oom",
    "processes": 2,
    "tier": "driver",
}

_SMALLEST = 1 << 20

EXAMPLE = '''\
import ctypes
import multiprocessing


def fill(filled, finished):
    """Takes all memory of the first GPU, as another user's program might."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuInit(0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    piece = 1 << 40
    while piece >= 1 << 20:
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(piece)) != 0:
            piece //= 2  # too much: try half
    filled.set()
    finished.wait()


# Forking is safe as long as this process has not used a GPU itself.
context = multiprocessing.get_context("fork")
filled, finished = context.Event(), context.Event()
other = context.Process(target=fill, args=(filled, finished))
other.start()
filled.wait(60)

import tensorflow as tf

try:
    # TensorFlow needs some hundred MB for its CUDA context, in addition to every limit and fraction.
    print(tf.config.list_logical_devices("GPU"))
except (RuntimeError, tf.errors.OpError) as error:
    print("%s: %s" % (type(error).__name__, error))
finally:
    finished.set()
    other.join()
'''


def configure(tf, probe):
    """No settings: the other process fills the GPU."""


def work(tf, probe):
    if probe.simulation == "plugin":
        probe.skip("simulated GPUs of the plug-in tier have no CUDA context")
    other = workers.Worker(tf, probe, "first", fill, "takes all memory")
    try:
        filled = other.wait("result", "granted_bytes")
        if other.data("skip"):
            probe.skip(other.data("skip")[0]["reason"])
        if filled is None:
            raise RuntimeError("the other process could not fill the GPU: %s: %s" % other.failure)
        probe.setting("memory held by another process", asked="all", effective=filled["value"], note="bytes")
        try:
            probe.devices(tf)
        except (RuntimeError, tf.errors.OpError) as error:
            print("%s: %s" % (type(error).__name__, error), file=sys.stderr)  # as an uncaught exception would
            probe.error(error, expected=workers.exhausted(error))
        else:
            # TensorFlow before about 2.13 drops the GPU instead, and the work runs on the CPU.
            probe.run(tf)
    finally:
        other.finish()
        other.report()


def fill(_, probe, next_order):
    """Takes all memory of the first visible GPU, through the driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        probe.skip("needs a GPU, but there is no CUDA driver: %s" % error)
    if cuda.cuInit(0):
        probe.skip("needs a GPU, but the CUDA driver has none")
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    free, total, pointer = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    taken, piece = 0, free.value
    while piece >= _SMALLEST:
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(piece)) == 0:
            taken += piece
        else:
            piece //= 2
    probe.result("granted_bytes", taken)
    next_order()


def check(code, call):
    if code:
        raise RuntimeError("%s failed with CUDA error %d" % (call, code))


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)

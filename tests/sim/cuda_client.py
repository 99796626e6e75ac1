"""A small client of the simulated CUDA driver, for processes that the tests start. Standard library only."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_uint64, c_void_p

cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemFree_v2.argtypes = [c_uint64]
cuda.cuMemcpyHtoD_v2.argtypes = [c_uint64, c_void_p, c_size_t]
cuda.cuMemcpyDtoH_v2.argtypes = [c_void_p, c_uint64, c_size_t]
cuda.cuMemsetD32_v2.argtypes = [c_uint64, ctypes.c_uint32, c_size_t]
cuda.cuCtxSetCurrent.argtypes = [c_void_p]


def check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA error {code}")


def use(ordinal: int = 0) -> int:
    """Initialize, and make the primary context of a device current."""
    check(cuda.cuInit(0))
    context = c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(byref(context), ordinal))
    check(cuda.cuCtxSetCurrent(context))
    return context.value or 0


def allocate(size: int) -> tuple[int, int]:
    """The error code, and the address."""
    address = c_uint64()
    code = cuda.cuMemAlloc_v2(byref(address), c_size_t(size))
    return code, address.value


def memory() -> tuple[int, int]:
    """Free and total bytes of the current device."""
    free, total = c_size_t(), c_size_t()
    check(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value, total.value


def pci_bus_ids() -> list[str]:
    """Of the visible devices, in CUDA's order."""
    count = c_int()
    check(cuda.cuDeviceGetCount(byref(count)))
    ids = []
    for ordinal in range(count.value):
        text = ctypes.create_string_buffer(32)
        check(cuda.cuDeviceGetPCIBusId(text, 32, ordinal))
        ids.append(text.value.decode())
    return ids


def floats(values: list[float]) -> ctypes.Array[c_float]:
    return (c_float * len(values))(*values)

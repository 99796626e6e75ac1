"""UUID and memory of each GPU from NVML, which does not create a CUDA context."""

from __future__ import annotations

import ctypes


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def gpus():
    """``[(uuid, total_bytes), …]`` in the order of nvidia-smi; empty without a driver."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2():
        return []
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    uuids_and_bytes = []
    for index in range(count.value):
        handle, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(96), _Memory()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            continue  # a lost GPU, which is still counted
        nvml.nvmlDeviceGetUUID(handle, uuid, ctypes.c_uint(len(uuid)))
        nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        uuids_and_bytes.append((uuid.value.decode(), memory.total))
    return uuids_and_bytes

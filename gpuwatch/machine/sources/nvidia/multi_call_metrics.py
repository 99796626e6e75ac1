"""Metrics that need more than one NVML call, and calls whose form depends on the driver.

Errors are NVML's own exceptions (``NVMLError``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.machine.sources.nvidia.decode_answers import FABRIC_STATES, NOT_AVAILABLE, UNION_MEMBERS, fabric_health

_MAX_INSTANCES = 64
"""More MIG devices no GPU has (seven today)."""
_NODE_WORDS = 16
"""Room for 1024 NUMA nodes, the most that Linux has."""


def memory_info(lib: Any, handle: Any) -> Any:
    """``nvmlDeviceGetMemoryInfo``, v2 if possible: v1 counts the driver's reserve as used."""
    try:
        return lib.nvmlDeviceGetMemoryInfo(handle, lib.nvmlMemory_v2)
    except lib.NVMLError as error:
        if error.value not in (lib.NVML_ERROR_FUNCTION_NOT_FOUND, lib.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
            raise
        return lib.nvmlDeviceGetMemoryInfo(handle)


def count_nvlinks(lib: Any, handle: Any) -> tuple[int, int]:
    """Number of NVLinks, and how many of them are up.

    A disabled link can fail in the middle of the list; a device without NVLinks fails for link 0 with
    ``NVML_ERROR_NOT_SUPPORTED``.
    """
    links = up = 0
    for link in range(lib.NVML_NVLINK_MAX_LINKS):
        try:
            up += bool(lib.nvmlDeviceGetNvLinkState(handle, link))
        except lib.NVMLError as error:
            if error.value == lib.NVML_ERROR_INVALID_ARGUMENT and link:
                break  # beyond the last
            if error.value != lib.NVML_ERROR_NOT_SUPPORTED or not link:
                raise
            continue
        links += 1
    return links, up


def sum_over_nvlinks(lib: Any, handle: Any, fields: Sequence[int], links: int) -> int:
    """A counter summed over all links; the largest sum where several fields count the same thing.

    A link that is down, or a field of another generation, is "not supported"; after any other error the sum is unknown.
    """
    asked = [(field, link) for field in fields for link in range(links)]
    sums: dict[int, int] = {}
    refused: int = lib.NVML_ERROR_NOT_SUPPORTED
    for (field, _), value in zip(asked, lib.nvmlDeviceGetFieldValues(handle, asked), strict=True):
        code, member = value.nvmlReturn, UNION_MEMBERS.get(value.valueType)
        if code in (lib.NVML_ERROR_NOT_SUPPORTED, lib.NVML_ERROR_INVALID_ARGUMENT):
            continue
        if code != lib.NVML_SUCCESS:
            raise lib.NVMLError(code)
        number = None if member is None else getattr(value.value, member)
        if number is not None and number not in NOT_AVAILABLE:
            sums[field] = sums.get(field, 0) + number
    if not sums:
        raise lib.NVMLError(refused)
    return max(sums.values())


def sram_errors(lib: Any, handle: Any) -> tuple[int, int, int]:
    """Uncorrected SRAM errors since boot and in total, and whether their threshold is exceeded."""
    status = lib.c_nvmlEccSramErrorStatus_v1_t()
    lib.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    exceeded = status.bThresholdExceeded
    return (
        status.volatileUncParity + status.volatileUncSecDed,
        status.aggregateUncParity + status.aggregateUncSecDed,
        exceeded if exceeded in NOT_AVAILABLE else int(bool(exceeded)),
    )


class _FabricInfo(ctypes.Structure):
    """``nvmlGpuFabricInfo_v3_t``; v2 is its first part."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("cluster", ctypes.c_uint8 * 16),
        ("status", ctypes.c_int),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint),
        ("health_mask", ctypes.c_uint32),
        ("health_summary", ctypes.c_uint8),
    )


_FABRIC_VERSIONS = (0x3000028, 0x2000024)
"""Version and size of v3 and v2, combined as NVML does (``NVML_STRUCT_VERSION``)."""


def fabric_state_and_health(lib: Any, handle: Any) -> tuple[str, str]:
    """State of the GPU's registration with the NVLink fabric, and the fabric's health (empty if not reported)."""
    info = _FabricInfo()
    for version in _FABRIC_VERSIONS:
        info.version = version
        try:
            lib.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except lib.NVMLError as error:
            if error.value != lib.NVML_ERROR_ARGUMENT_VERSION_MISMATCH or version == _FABRIC_VERSIONS[-1]:
                raise
        else:
            break
    state = FABRIC_STATES.get(info.state, f"unknown ({info.state})")
    if info.state == 0:
        raise lib.NVMLError(lib.NVML_ERROR_NOT_SUPPORTED)
    if info.status != lib.NVML_SUCCESS:
        state = f"{state}, {lib.NVMLError(info.status)}"
    return state, fabric_health(info.health_mask, info.health_summary)


def mig_handles(lib: Any, handle: Any) -> list[tuple[int, Any]]:
    """The MIG devices with their indices, which can have gaps."""
    if not lib.nvmlDeviceGetMigMode(handle)[0]:
        return []  # the list itself would answer "not supported", which would be taken as permanent
    found = []
    for index in range(min(lib.nvmlDeviceGetMaxMigDeviceCount(handle), _MAX_INSTANCES)):
        try:
            found.append((index, lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
        except lib.NVMLError as error:
            if error.value not in (lib.NVML_ERROR_NOT_FOUND, lib.NVML_ERROR_INVALID_ARGUMENT):
                raise
    return found


def numa_nodes(lib: Any, handle: Any) -> str:
    """The host's NUMA nodes next to the device: ``0``, ``0,1``."""
    words = lib.nvmlDeviceGetMemoryAffinity(handle, _NODE_WORDS, lib.NVML_AFFINITY_SCOPE_NODE)
    return ",".join(str(64 * at + bit) for at, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def call_newest(lib: Any, functions: Sequence[Any], handle: Any, args: Sequence[Any]) -> Any:
    """Calls the newest function that the driver has; the list is newest first."""
    *newer, oldest = functions
    for function in newer:
        try:
            return function(handle, *args)
        except lib.NVMLError as error:
            if error.value != lib.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
    return oldest(handle, *args)


ADAPTERS: dict[str, Callable[[Any, Any], Any]] = {
    "nvmlDeviceGetMemoryInfo": memory_info,
    "nvmlDeviceGetNvLinkState": count_nvlinks,
    "nvmlDeviceGetSramEccErrorStatus": sram_errors,
    "nvmlDeviceGetGpuFabricInfoV": fabric_state_and_health,
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda lib, handle: len(mig_handles(lib, handle)),
    "nvmlDeviceGetMemoryAffinity": numa_nodes,
}
"""Adapters by the NVML function that the table of metrics names."""

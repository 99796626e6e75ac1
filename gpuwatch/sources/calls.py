"""Answers of NVML that take more than one call, and calls whose form depends on the driver.

Each function takes the library first (the module pynvml, or what a test puts in its place), so that
only :mod:`gpuwatch.sources.nvml` imports it. Errors are the library's own exceptions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from gpuwatch.sources.answers import NOT_AVAILABLE, UNION_MEMBERS

NO_INSTANCE = 0xFFFFFFFF
"""What stands for "no GPU instance" in a list of processes."""

_NODE_WORDS = 16
"""Room for 1024 NUMA nodes, the most that Linux has."""
_ROOM = 64
"""Processes for which there is room at first."""
_MOST_KEPT = 256
"""Lists of processes that are kept to be compared with the next."""


def memory_info(lib: Any, handle: Any) -> Any:
    """Memory with the driver's reserve apart (v2); the first version counts it as used."""
    try:
        return lib.nvmlDeviceGetMemoryInfo(handle, lib.nvmlMemory_v2)
    except lib.NVMLError as error:
        if error.value not in (lib.NVML_ERROR_FUNCTION_NOT_FOUND, lib.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
            raise
        return lib.nvmlDeviceGetMemoryInfo(handle)


def field_value(lib: Any, handle: Any, field: tuple[int, int]) -> Any:
    """One field of a device, with its scope."""
    value = lib.nvmlDeviceGetFieldValues(handle, [field])[0]
    if value.nvmlReturn != lib.NVML_SUCCESS:
        raise lib.NVMLError(value.nvmlReturn)
    member = UNION_MEMBERS.get(value.valueType)
    if member is None:
        raise lib.NVMLError(lib.NVML_ERROR_NOT_SUPPORTED)
    return getattr(value.value, member)


def nvlinks(lib: Any, handle: Any) -> tuple[int, int]:
    """How many NVLinks there are, and how many of them are up.

    A link that is switched off can refuse in the middle of the list; a device without any refuses the
    first as not supported.
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


def mig_handles(lib: Any, handle: Any) -> list[tuple[int, Any]]:
    """The MIG devices and their indices. These have gaps: the list goes on behind an empty one."""
    if not lib.nvmlDeviceGetMigMode(handle)[0]:
        return []  # the list itself would say "not supported", which changes with the mode
    found = []
    for index in range(lib.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found.append((index, lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)))
        except lib.NVMLError as error:
            if error.value not in (lib.NVML_ERROR_NOT_FOUND, lib.NVML_ERROR_INVALID_ARGUMENT):
                raise
    return found


def mig_count(lib: Any, handle: Any) -> int:
    """How many MIG devices there are."""
    return len(mig_handles(lib, handle))


def numa_nodes(lib: Any, handle: Any) -> str:
    """The host's NUMA nodes beside the device: ``0``, ``0,1``."""
    words = lib.nvmlDeviceGetMemoryAffinity(handle, _NODE_WORDS, lib.NVML_AFFINITY_SCOPE_NODE)
    return ",".join(str(64 * at + bit) for at, word in enumerate(words) for bit in range(64) if word >> bit & 1)


def first_found(lib: Any, functions: list[Any], handle: Any, args: tuple[Any, ...]) -> Any:
    """The newer name of a function, and the older one where the driver lacks it."""
    for function in functions:
        try:
            return function(handle, *args)
        except lib.NVMLError as error:
            if error.value != lib.NVML_ERROR_FUNCTION_NOT_FOUND or function is functions[-1]:
                raise
    raise lib.NVMLError(lib.NVML_ERROR_FUNCTION_NOT_FOUND)


ADAPTERS: dict[str, Callable[[Any, Any], Any]] = {
    "nvmlDeviceGetMemoryInfo": memory_info,
    "nvmlDeviceGetNvLinkState": nvlinks,
    "nvmlDeviceGetMigDeviceHandleByIndex": mig_count,
    "nvmlDeviceGetMemoryAffinity": numa_nodes,
}
"""Answers that take more than one call, by the function that the table names."""


class _ProcessInfoV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t: before drivers knew MIG."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


class ProcessLists:
    """The lists of processes. Their structs grew with the driver, so what it has is looked up once."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._symbols: dict[str, str | None] = {}
        self._rooms: dict[str, Any] = {}
        """Where answers are written to, by function."""
        self._kept: dict[tuple[int, str], tuple[bytes, list[tuple[int, int | None, int, int]]]] = {}

    def running(self, handle: Any, base: str) -> tuple[list[tuple[int, int | None, int, int]], int]:
        """Rows (pid, bytes, GPU instance, compute instance) and NVML's return code.

        Version 3 is tried, then 2, then the first: drivers differ between 450, 510 and 535. An answer that
        is that of the call before is the same list.
        """
        lib = self._lib
        if base not in self._symbols:
            self._symbols[base] = self._newest(base)
        symbol = self._symbols[base]
        if symbol is None:
            return [], lib.NVML_ERROR_FUNCTION_NOT_FOUND
        call = lib._nvmlGetFunctionPointer(symbol)
        struct = lib.c_nvmlProcessInfo_v2_t if symbol[-3:] in ("_v2", "_v3") else _ProcessInfoV1
        if symbol not in self._rooms:
            self._rooms[symbol] = (struct * _ROOM)()
        while True:
            rows = self._rooms[symbol]
            room = len(rows)
            count = ctypes.c_uint(room)
            code: int = call(handle, ctypes.byref(count), rows)
            if code != lib.NVML_ERROR_INSUFFICIENT_SIZE or room > 1 << 16:
                break
            self._rooms[symbol] = (struct * (max(count.value, room) * 2))()
        if code != lib.NVML_SUCCESS:
            return [], code
        raw = ctypes.string_at(rows, count.value * ctypes.sizeof(struct))
        key = (id(handle), base)  # a handle that another one's place was given to differs in what it answers
        kept = self._kept.get(key)
        if kept is not None and kept[0] == raw:
            return kept[1], 0
        mig = struct is not _ProcessInfoV1
        found: list[tuple[int, int | None, int, int]] = []
        for row in rows[: count.value]:
            used = row.usedGpuMemory
            found.append(
                (
                    row.pid,
                    None if used in NOT_AVAILABLE else used,
                    row.gpuInstanceId if mig else NO_INSTANCE,
                    row.computeInstanceId if mig else NO_INSTANCE,
                )
            )
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[key] = (raw, found)
        return found, 0

    def _newest(self, base: str) -> str | None:
        for suffix in ("_v3", "_v2", ""):
            try:
                self._lib._nvmlGetFunctionPointer(base + suffix)
            except self._lib.NVMLError:
                continue
            return base + suffix
        return None

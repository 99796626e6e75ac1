"""MIG instances of a device: which there are, and what each of them holds.

As in :mod:`gpuwatch.sources.calls` the library comes as an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.model.reading import Missing, Value
from gpuwatch.model.snapshot import MIG_READINGS, MigInstance
from gpuwatch.sources.answers import NOT_AVAILABLE, decode
from gpuwatch.sources.calls import memory_info, mig_handles

Lack = Callable[[int, str], Missing]
"""Makes the reason out of NVML's code and the function's name."""

_NAMED = re.compile(r"\bMIG (\S+)$")
_MIB = 1 << 20
_GIB = 1 << 30
_MEMORY_SLICES = 8
"""Of every GPU that has MIG, whatever its number of compute slices."""


class Instance(msgspec.Struct):
    """A MIG instance of the current layout, as far as it does not change."""

    handle: Any
    facts: MigInstance


def instances(lib: Any, handle: Any, lack: Lack) -> list[Instance]:
    """The instances of a device by index; the library's exception where they cannot be listed."""
    found = mig_handles(lib, handle)
    total = _total(lib, handle) if found else None
    return [Instance(instance, _facts(lib, index, instance, total, lack)) for index, instance in found]


def reading(lib: Any, instance: Instance, lack: Lack) -> MigInstance:
    """The instance with its memory as it is now; the library's exception when the instance is gone."""
    readings: dict[str, Value] = {}
    missing = dict(instance.facts.missing)
    call = "nvmlDeviceGetMemoryInfo"
    try:
        memory = memory_info(lib, instance.handle)
    except lib.NVMLError as error:
        if error.value in (lib.NVML_ERROR_NOT_FOUND, lib.NVML_ERROR_INVALID_ARGUMENT):
            raise
        missing.update(dict.fromkeys(MIG_READINGS, lack(error.value, call)))
    else:
        for name in MIG_READINGS:
            value = getattr(memory, name.removeprefix("memory.").removesuffix("_bytes"), None)
            if value is None or value in NOT_AVAILABLE:
                missing[name] = Missing("not_supported", detail=f"{call}: not available")
            else:
                readings[name] = value
    return msgspec.structs.replace(instance.facts, readings=readings, missing=missing)


def profile(gpu_slices: int, compute_slices: int, memory_bytes: int, total_bytes: int) -> str:
    """The name of a profile: ``1g.10gb``, and ``1c.3g.40gb`` where its compute part is smaller.

    The memory in it is a share of the whole card's in eighths, which is more than the instance can use.
    """
    eighths = round(memory_bytes * _MEMORY_SLICES / total_bytes)
    whole = -(-total_bytes // _GIB)
    name = f"{gpu_slices}g.{round(eighths * whole / _MEMORY_SLICES)}gb"
    return name if compute_slices == gpu_slices else f"{compute_slices}c.{name}"


def _facts(lib: Any, index: int, handle: Any, total: int | None, lack: Lack) -> MigInstance:
    missing: dict[str, Missing] = {}

    def ask(call: str, key: str) -> Any:
        try:
            return getattr(lib, call)(handle)
        except lib.NVMLError as error:
            missing[key] = lack(error.value, call)
            return None

    uuid = ask("nvmlDeviceGetUUID", "uuid")
    gpu = ask("nvmlDeviceGetGpuInstanceId", "gpu_instance")
    compute = ask("nvmlDeviceGetComputeInstanceId", "compute_instance")
    attributes = ask("nvmlDeviceGetAttributes_v2", "profile")
    named = None if attributes is None else _name(lib, handle)
    if attributes is not None and named is None and total:
        slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
        named = profile(*slices, attributes.memorySizeMB * _MIB, total)
    return MigInstance(
        id=f"#{index}" if gpu is None or compute is None else f"{gpu}/{compute}",
        index=index,
        uuid=None if uuid is None else decode(uuid),
        gpu_instance=gpu,
        compute_instance=compute,
        profile=named,
        gpu_slices=None if attributes is None else attributes.gpuInstanceSliceCount,
        compute_slices=None if attributes is None else attributes.computeInstanceSliceCount,
        multiprocessors=None if attributes is None else attributes.multiprocessorCount,
        missing=missing,
    )


def _name(lib: Any, handle: Any) -> str | None:
    """The profile as newer drivers put it into the name of the instance: ``NVIDIA H200 MIG 1g.18gb``."""
    try:
        found = _NAMED.search(decode(lib.nvmlDeviceGetName(handle)))
    except lib.NVMLError:
        return None
    return found and found[1]


def _total(lib: Any, handle: Any) -> int | None:
    try:
        total: int = lib.nvmlDeviceGetMemoryInfo(handle).total
    except lib.NVMLError:
        return None
    return None if total in NOT_AVAILABLE else total

"""MIG instances of a device, with their memory."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import MIG_READINGS, MigInstance
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import NOT_AVAILABLE, number_or_name, text_from_nvml
from gpuwatch.machine.sources.nvidia.multi_call_metrics import memory_info, mig_handles
from gpuwatch.machine.sources.nvidia.nvml_errors import answer_or_none

_PROFILE_IN_NAME = re.compile(r"\bMIG (\S+)$")
_MIB = 1 << 20
_GIB = 1 << 30
MEMORY_SLICES = 8
"""Memory slices of every GPU with MIG, whatever its number of compute slices."""


class ListedInstance(msgspec.Struct):
    """A MIG instance of the current layout: the facts that do not change."""

    handle: Any
    facts: MigInstance


def list_instances(lib: Any, handle: Any) -> list[ListedInstance]:
    """The instances of a device by index. ``NVMLError`` if they cannot be listed."""
    found = mig_handles(lib, handle)
    memory = answer_or_none(lib, lib.nvmlDeviceGetMemoryInfo, handle) if found else None
    total = None if memory is None or memory.total in NOT_AVAILABLE else memory.total
    return [ListedInstance(instance, _read_facts(lib, index, instance, total)) for index, instance in found]


def with_current_memory(lib: Any, instance: ListedInstance) -> MigInstance:
    """The instance with its current memory. ``NVMLError`` if the instance no longer exists."""
    readings: dict[str, Value] = {}
    missing = dict(instance.facts.missing)
    call = "nvmlDeviceGetMemoryInfo"
    try:
        memory = memory_info(lib, instance.handle)
    except lib.NVMLError as error:
        if error.value in (lib.NVML_ERROR_NOT_FOUND, lib.NVML_ERROR_INVALID_ARGUMENT):
            raise
        missing.update(dict.fromkeys(MIG_READINGS, nvml_errors.missing_reading(lib, error.value, call)))
    else:
        for name in MIG_READINGS:
            value = getattr(memory, name.removeprefix("memory.").removesuffix("_bytes"), None)
            found = number_or_name(BY_ID[name], NOT_AVAILABLE[0] if value is None else value)
            if isinstance(found, Missing):
                missing[name] = found
            else:
                readings[name] = found
    return msgspec.structs.replace(instance.facts, readings=readings, missing=missing)


def profile_name(gpu_slices: int, compute_slices: int, memory_bytes: int, total_bytes: int) -> str:
    """The name of a profile: ``1g.10gb``, and ``1c.3g.40gb`` where the compute instance is smaller.

    The memory in the name is in eighths of the whole card, a little more than the instance can use.
    """
    eighths = round(memory_bytes * MEMORY_SLICES / total_bytes)
    whole = -(-total_bytes // _GIB)
    name = f"{gpu_slices}g.{round(eighths * whole / MEMORY_SLICES)}gb"
    return name if compute_slices == gpu_slices else f"{compute_slices}c.{name}"


def _read_facts(lib: Any, index: int, handle: Any, total: int | None) -> MigInstance:
    missing: dict[str, Missing] = {}

    def ask(call: str, key: str) -> Any:
        try:
            return getattr(lib, call)(handle)
        except lib.NVMLError as error:
            missing[key] = nvml_errors.missing_reading(lib, error.value, call)
            return None

    uuid = ask("nvmlDeviceGetUUID", "uuid")
    gpu = ask("nvmlDeviceGetGpuInstanceId", "gpu_instance")
    compute = ask("nvmlDeviceGetComputeInstanceId", "compute_instance")
    attributes = ask("nvmlDeviceGetAttributes_v2", "profile")
    profile = None if attributes is None else _profile_from_name(lib, handle)
    if attributes is not None and profile is None and total:
        slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
        profile = profile_name(*slices, attributes.memorySizeMB * _MIB, total)
    return MigInstance(
        id=f"#{index}" if gpu is None or compute is None else f"{gpu}/{compute}",
        index=index,
        uuid=None if uuid is None else text_from_nvml(uuid),
        gpu_instance=gpu,
        compute_instance=compute,
        profile=profile,
        gpu_slices=None if attributes is None else attributes.gpuInstanceSliceCount,
        compute_slices=None if attributes is None else attributes.computeInstanceSliceCount,
        multiprocessors=None if attributes is None else attributes.multiprocessorCount,
        missing=missing,
    )


def _profile_from_name(lib: Any, handle: Any) -> str | None:
    """The profile from the instance's name, as newer drivers report it: ``NVIDIA H200 MIG 1g.18gb``."""
    name = answer_or_none(lib, lib.nvmlDeviceGetName, handle)
    found = None if name is None else _PROFILE_IN_NAME.search(text_from_nvml(name))
    return found and found[1]

"""Predicts TensorFlow's device map and memory limits before the launch.

A pure function of the snapshot, the environment and the settings. On simulated GPUs every number is known and the
prediction is exact; on real ones the size of a CUDA context is unknown, hence a tolerance. The reserve follows
TensorFlow's ``MinSystemMemory`` in ``gpu_device.cc``, also on GPUs simulated as a PluggableDevice.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuwatch.core.model.run import Framework, PredictedMapping, Run
from gpuwatch.core.model.snapshot import Device, MappedDevice, Snapshot
from gpuwatch.core.model.visible_devices import MIG_PREFIX, visible_devices
from gpuwatch.core.parsing import parse_integer
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import capabilities_of_build, parse_capability

MIB = 1 << 20
_SMALL_FREE_BYTES = 2 << 30
"""Free memory below which the small reserve applies."""
_SMALL_RESERVE_BYTES = 225 * MIB
REAL_CONTEXT_BYTES = (100 * MIB, 800 * MIB)
"""Range of a CUDA context's size on real hardware; it depends on card and driver."""
_REAL_SLACK_BYTES = 64 * MIB
"""Change of a desktop's memory between the snapshot and the start."""

_ALLOCATOR_WITHOUT_POOL = "cuda_malloc"
"""TensorFlow's only allocator without a limit of its own (``gpu_process_state.cc``)."""

_LOGICAL_DEVICE = re.compile(r"GPU:(\d+) part \d+: (\d+)(?:\.0)? MB$")
_GPU_NUMBER = re.compile(r"GPU:(\d+)$")


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """The settings that determine the devices and their memory limits."""

    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; None: not set."""
    order: str | None = None
    """CUDA_DEVICE_ORDER."""
    chosen: tuple[int, ...] | None = None
    """CUDA ordinals that the program chose, in its order; None: all."""
    limits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Limits in MB of the logical devices, by CUDA ordinal."""
    fraction: float | None = None
    reserve_mb: int | None = None
    """TF_DEVICE_MIN_SYS_MEMORY_IN_MB."""
    allocator: str | None = None
    """TF_GPU_ALLOCATOR."""


def requested_devices_of(run: Run) -> RequestedDevices:
    """The settings of a run, as reported by the probes."""
    evidence = Evidence(run=run)
    fraction = evidence.requested("per_process_gpu_memory_fraction")
    reserve = run.environment.get("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "")
    return RequestedDevices(
        visible=evidence.visible_devices,
        order=evidence.variables.get("CUDA_DEVICE_ORDER"),
        chosen=_selected_ordinals(evidence, run),
        limits=_limits(evidence, run),
        fraction=float(fraction) if isinstance(fraction, (int, float)) and fraction else None,
        reserve_mb=parse_integer(reserve),
        allocator=evidence.variables.get("TF_GPU_ALLOCATOR"),
    )


def _selected_ordinals(evidence: Evidence, run: Run) -> tuple[int, ...] | None:
    listed = evidence.requested("visible_device_list")
    if isinstance(listed, str) and listed:
        parts = [part.strip() for part in listed.split(",")]
        return tuple(number for part in parts if (number := parse_integer(part)) is not None)
    names = evidence.requested("visible devices")
    if isinstance(names, (list, tuple)):
        return _gpu_numbers(names)
    physical, visible = _gpu_numbers(run.devices.physical), _gpu_numbers(run.devices.visible)
    return visible if run.devices.physical and visible != physical else None


def _gpu_numbers(names: list[object] | tuple[object, ...]) -> tuple[int, ...]:
    return tuple(int(match[1]) for name in names if (match := _GPU_NUMBER.search(str(name))))


_EVERY_GPU = -1


def _limits(evidence: Evidence, run: Run) -> dict[int, tuple[int, ...]]:
    limits: dict[int, tuple[int, ...]] = {}
    for part in run.devices.virtual:
        if match := _LOGICAL_DEVICE.search(part):
            limits[int(match[1])] = (*limits.get(int(match[1]), ()), int(match[2]))
    limit = evidence.requested("memory_limit")
    if not limits and isinstance(limit, (int, float)) and not isinstance(limit, bool):
        limits[_EVERY_GPU] = (int(limit),)
    return limits


def predict(
    machine: Snapshot,
    requested: RequestedDevices,
    *,
    framework: Framework | None = None,
    simulation: str | None = None,
    context_bytes: Mapping[str, int] | None = None,
) -> tuple[PredictedMapping, ...] | None:
    """The predicted map; None if it cannot be known from outside.

    ``context_bytes`` is the size of a CUDA context by UUID, if known.
    """
    if framework is not None and framework.name != "tensorflow":
        return None
    if (
        machine.driver is None
        or MIG_PREFIX in (requested.visible or "")
        or any(device.has_mig for device in machine.devices)
    ):
        return None
    build = framework.build if framework is not None else {}
    if framework is not None and framework.gpu_build is False and simulation != "plugin":
        return ()
    seen = visible_devices(requested.visible, requested.order, machine.devices)
    if seen.why_unsure:
        return None
    oldest = (
        min((version for _, version in capabilities_of_build(build)), default=None) if simulation != "plugin" else None
    )
    usable = [entry for entry in seen.map if not _too_old(machine.device(entry.uuid), oldest)]
    if requested.chosen is not None:
        by_ordinal = {entry.ordinal: entry for entry in usable}
        if any(ordinal not in by_ordinal for ordinal in requested.chosen):
            return None
        usable = [by_ordinal[ordinal] for ordinal in requested.chosen]
    found: list[PredictedMapping] = []
    for entry in usable:
        device = machine.device(entry.uuid)
        if device is None or device.state != "ok":
            return None
        contexts = context_bytes or {}
        for grant in _grants_on(device, entry, requested, simulation, contexts.get(device.uuid)):
            found.append(
                PredictedMapping(
                    framework_device=f"/device:GPU:{len(found)}",
                    uuid=device.uuid,
                    physical_index=device.index,
                    cuda_ordinal=entry.ordinal,
                    granted_bytes=grant.granted,
                    tolerance_bytes=grant.tolerance,
                    how=grant.how,
                )
            )
    return tuple(found)


def _too_old(device: Device | None, oldest: tuple[int, int] | None) -> bool:
    capability = parse_capability(device.compute_capability) if device is not None else None
    return capability is not None and oldest is not None and capability < oldest


@dataclass(frozen=True, slots=True)
class _Grant:
    granted: int | None
    tolerance: int
    how: str


def _grants_on(
    device: Device, entry: MappedDevice, requested: RequestedDevices, simulation: str | None, context: int | None
) -> tuple[_Grant, ...]:
    limits = requested.limits.get(entry.ordinal, requested.limits.get(_EVERY_GPU, ()))
    if requested.allocator == _ALLOCATOR_WITHOUT_POOL and simulation != "plugin":
        # TensorFlow requests each tensor from the driver, sets no limit and prints 0 MB.
        nothing = _Grant(
            None, 0, f"TF_GPU_ALLOCATOR={_ALLOCATOR_WITHOUT_POOL} keeps no pool, so nothing is granted in advance"
        )
        return (nothing,) * max(len(limits), 1)
    if limits:
        return tuple(_Grant(_as_float32(limit) * MIB, 0, f"memory_limit {limit} MB") for limit in limits)
    if requested.reserve_mb is None and requested.fraction is not None:
        return (_grant_by_fraction(device, requested.fraction),)
    return (_default_grant(device, requested, context),)


def _grant_by_fraction(device: Device, fraction: float) -> _Grant:
    total = device.number("memory.total_bytes")
    if total is None:
        return _Grant(None, 0, "NVML does not report the device's total memory")
    if fraction > 1:
        return _Grant(None, 0, "a fraction above 1 requests unified memory")
    granted = int(total * fraction)
    how = f"fraction {fraction:g} × total {total / MIB:.0f} MiB"
    if device.simulated:
        return _Grant(granted // MIB * MIB, 0, f"{how} = {granted // MIB} MiB")
    reserved = device.number("memory.reserved_bytes")
    if reserved is None:
        middle, tolerance = int(granted - 0.01 * total * fraction), int(0.01 * total * fraction)
    else:
        # CUDA's total excludes what NVML counts as reserved by the driver: exact on an H200 with driver 580.
        middle, tolerance = int((total - reserved) * fraction), int(reserved * fraction)
    return _Grant(middle // MIB * MIB, tolerance + MIB, f"{how}, less the driver's share, ≈ {middle // MIB} MiB")


def _default_grant(device: Device, requested: RequestedDevices, context: int | None) -> _Grant:
    free = _free_bytes(device)
    if free is None:
        return _Grant(None, 0, "NVML does not report free memory")
    capability = parse_capability(device.compute_capability)
    if capability is None and requested.reserve_mb is None:
        return _Grant(None, 0, "the compute capability, on which TensorFlow's reserve depends, is unknown")
    major = capability[0] if capability is not None else 0
    start = f"free {free // MIB} MiB"
    if context is not None and device.simulated:
        left, reserve = free - context, _reserve_bytes(free - context, major, requested.reserve_mb)
        granted = max(left - reserve, 0) if reserve < left else max(left, 0)
        parts = f" − CUDA context {context // MIB} − reserve {left - granted >> 20}"
        return _Grant(granted // MIB * MIB, 0, f"{start}{parts} = {granted // MIB} MiB")
    low, high = (
        free - size - _reserve_bytes(free - size, major, requested.reserve_mb) for size in REAL_CONTEXT_BYTES[::-1]
    )
    low, high = min(low, high), max(low, high)
    middle = max((low + high) // 2, 0)
    around = f"{REAL_CONTEXT_BYTES[0] // MIB}-{REAL_CONTEXT_BYTES[1] // MIB}"
    reserve = _reserve_bytes(free - sum(REAL_CONTEXT_BYTES) // 2, major, requested.reserve_mb)
    how = f"{start} − CUDA context {around} − reserve {reserve // MIB} ≈ {middle // MIB} MiB"
    return _Grant(middle // MIB * MIB, (high - low) // 2 + _REAL_SLACK_BYTES, how)


def _reserve_bytes(free: int, major: int, asked_mb: int | None) -> int:
    if asked_mb is not None:
        return asked_mb * MIB
    if free < _SMALL_FREE_BYTES:
        return _SMALL_RESERVE_BYTES
    return (500 if major <= 6 else 1050 if major == 7 else 1536 if major == 8 else 1800) * MIB


def _free_bytes(device: Device) -> int | None:
    free = device.number("memory.free_bytes")
    if free is not None:
        return int(free)
    total, used = device.number("memory.total_bytes"), device.number("memory.used_bytes")
    if total is None or used is None:
        return None
    return int(total - used - (device.number("memory.reserved_bytes") or 0))


def _as_float32(limit: int) -> int:
    """A limit in MB as TensorFlow stores it: ``memory_limit_mb`` of GPUOptions is a 32-bit float."""
    return int(struct.unpack("f", struct.pack("f", limit))[0])

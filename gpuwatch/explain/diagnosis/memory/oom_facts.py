"""What the run, the log and the machine add to the numbers of an out-of-memory failure.

:func:`oom_facts` gathers them for :mod:`gpuwatch.explain.diagnosis.memory.oom_verdict`, which names the cause. Where
NVML was not asked, a GPU's memory is what the log states, or at least what its name implies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from gpuwatch.core.model.run import HOST_ALLOCATORS, Oom, Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_growth import Growth, steady_growth
from gpuwatch.explain.diagnosis.memory.memory_holders import (
    concurrent_holders,
    is_negligible,
    others_memory,
    samples_of,
    with_concurrent_holders,
)
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.log_facts import LogFacts

_GIB = 1 << 30
_USABLE_SHARE = 0.92
"""Share of the size in a name: decimal gigabytes, less ECC and the driver's part."""
_IN_NAME = re.compile(r"(?<![\w.])(\d{1,3}) ?Gi?B\b", re.IGNORECASE)

# Longer names first: an "RTX 3060 Ti" is not an RTX 3060.
_BY_MODEL: tuple[tuple[str, int], ...] = (
    ("RTX 2080 Ti", 11), ("RTX 3060 Ti", 8), ("RTX 3070 Ti", 8), ("RTX 3080 Ti", 12), ("RTX 3090 Ti", 24),
    ("RTX 4060 Ti", 8), ("RTX 4070 Ti", 12), ("GTX 1080 Ti", 11), ("GTX 1070 Ti", 8), ("GTX 1050 Ti", 4),
    ("GTX 1660 Ti", 6), ("RTX 2060", 6), ("RTX 2070", 8), ("RTX 2080", 8), ("RTX 3050", 4), ("RTX 3060", 6),
    ("RTX 3070", 8), ("RTX 3080", 10), ("RTX 3090", 24), ("RTX 4060", 8), ("RTX 4070", 8), ("RTX 4080", 12),
    ("RTX 4090", 16), ("RTX 5090", 24), ("GTX 1060", 3), ("GTX 1070", 8), ("GTX 1080", 8), ("GTX 970", 4),
    ("GTX 980 Ti", 6), ("GTX 980", 4), ("TITAN RTX", 24), ("TITAN Xp", 12), ("TITAN V", 12), ("TITAN X", 12),
    ("Tesla T4", 15), ("Tesla K80", 12), ("Tesla K40", 12), ("Tesla P4", 8), ("Tesla M60", 8), ("Tesla V100", 16),
    ("A10G", 24), ("NVIDIA A10", 24), ("NVIDIA L4", 24), ("NVIDIA L40", 45), ("NVIDIA A40", 45), ("A6000", 48),
    ("NVIDIA H200", 140),
)  # fmt: skip


def min_memory_of_model(name: str | None) -> int | None:
    """Minimum bytes of a GPU with this name; None if the name does not say."""
    if not name:
        return None
    if match := _IN_NAME.search(name):
        return int(int(match[1]) * _GIB * _USABLE_SHARE)
    for model, gib in _BY_MODEL:
        if re.search(rf"(?<!\w){re.escape(model)}(?!\w)", name):
            return int(gib * _GIB * _USABLE_SHARE)
    return None


def gpu_memory_in_log(log: LogFacts, framework_device: str | None) -> tuple[int | None, bool]:
    """Bytes of the GPU behind ``GPU:0``, and whether the log states them (else they follow from the name)."""
    wanted = device_name(framework_device) if framework_device else None
    mapping = next((entry for entry in log.device_map if device_name(entry.framework_device) == wanted), None)
    if mapping is None:
        return None, False
    totals = [gpu.total_bytes for gpu in log.gpus if gpu.total_bytes and gpu.pci_bus_id == mapping.pci_bus_id]
    if totals and mapping.pci_bus_id is not None:
        return totals[-1], True
    return min_memory_of_model(mapping.name), False


_ROUNDING_SHARE = 0.01
"""Share by which a limit in a log may differ from the one that was set."""
_LIMIT_SETTINGS = re.compile(r"limit|fraction|virtual|logical.device", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OomFacts:
    """Facts besides the allocator's numbers: from the device, the settings and the log.

    Memory of others is what :class:`gpuwatch.explain.diagnosis.memory.memory_holders.OthersMemory` measured;
    other processes of the same run count as others too.
    """

    total_bytes: int | None = None
    others_bytes: int | None = None
    """Held by others when the program first allocated memory, or before it started."""
    others_peak_bytes: int | None = None
    """Most that others held while it ran; None: as much as at its start."""
    least_free_bytes: int | None = None
    """Least free memory of the device while it ran."""
    held_by_others: bool | None = None
    """Whether others held memory; None: not checked."""
    limits_bytes: int | None = None
    """Sum of the limits of all framework devices on this GPU."""
    overhead_bytes: int = 0
    """Used by the driver and the CUDA context in addition."""
    limit_set: bool = False
    """Whether the user set a limit or fraction."""
    refusals: int = 0
    """Allocations that the driver refused."""
    peak_bytes: int | None = None
    """Most that the allocator had in use at any moment of the run."""
    total_from_name: bool = False
    """Whether the total is only derived from the card's name, so that it proves nothing about one huge request."""

    @property
    def others_held_memory(self) -> bool:
        """Whether others are known to have held a relevant amount."""
        known = self.others_bytes is not None and self.held_by_others is not False
        return known and not is_negligible(self.others_bytes or 0, self.total_bytes)

    @property
    def others_max_bytes(self) -> int | None:
        """Most that others held, if checked."""
        return self.others_peak_bytes if self.others_peak_bytes is not None else self.others_bytes


def growth_of(run: Run) -> Growth | None:
    """The growth of memory in use up to the end, or to that of the last step if steps are known."""
    last = run.step_times[-1] if run.step_times else None
    points = run.memory.timeline
    return steady_growth(points if last is None else [point for point in points if point.t <= last.t + last.seconds])


def oom_facts(evidence: Evidence, oom: Oom) -> OomFacts:
    """What the snapshot, the settings and the log add to an OOM's own numbers."""
    if is_host_oom(oom):
        return OomFacts()
    device, run = full_device(evidence, oom), evidence.run
    held = others_memory(device, samples_of(run, device), run)
    total, measured = held.total, True
    if total is None:
        total, measured = gpu_memory_in_log(evidence.log, oom.device)
    overhead = held.overhead
    if not overhead and run is not None:
        overhead = (run.memory.context_bytes or 0) + (run.memory.driver_reserved_bytes or 0)
    others, most = held.start if held.start is not None else held.before, held.max_from_start
    if concurrent := sum(holder.held_bytes for holder in concurrent_holders(evidence, oom)):
        own = oom.pool_bytes or oom.in_use_bytes or 0
        others = with_concurrent_holders(others or 0, concurrent, total if measured else None, own)
        most = None if most is None else with_concurrent_holders(most, concurrent, total if measured else None, own)
    known = [amount for amount in (others, most) if amount is not None]
    return OomFacts(
        total_bytes=int(total) if total is not None else None,
        others_bytes=others,
        others_peak_bytes=most,
        least_free_bytes=held.least_free,
        held_by_others=not is_negligible(max(known), total) if known else None,
        limits_bytes=_sum_of_limits(evidence, oom),
        overhead_bytes=overhead,
        limit_set=run is not None and has_memory_limit(run, oom.limit_bytes),
        refusals=evidence.log.refusals.count,
        peak_bytes=_allocator_peak(run, oom),
        total_from_name=not measured,
    )


def full_device(evidence: Evidence, oom: Oom) -> Device | None:
    """The GPU that was full; without a device map, the only GPU."""
    device = evidence.device_of(oom.device)
    only = evidence.gpus[0] if len(evidence.gpus) == 1 and oom.device in ("GPU:0", None) else None
    return device if device is not None else only


def _sum_of_limits(evidence: Evidence, oom: Oom) -> int | None:
    """How much the framework's devices on this GPU may allocate together."""
    mappings = evidence.device_map
    wanted = device_name(oom.device or "")
    own = next((entry for entry in mappings if device_name(entry.framework_device) == wanted), None)
    if own is None or (own.uuid is None and own.pci_bus_id is None):
        return None
    same = [entry for entry in mappings if (entry.uuid, entry.pci_bus_id) == (own.uuid, own.pci_bus_id)]
    granted = [entry.granted_bytes for entry in same if entry.granted_bytes is not None]
    return sum(granted) if len(granted) > 1 else None


def _with_recorded_use(evidence: Evidence, oom: Oom) -> Oom:
    """The failure with what was in use, from a recording of the allocator (``run --memory``) if the log hides it."""
    if oom.in_use_bytes is not None or oom.requested_bytes is None:
        return oom
    for profile in evidence.run.memory_profiles if evidence.run is not None else ():
        full = profile.limit_bytes is not None and profile.peak_bytes + oom.requested_bytes > profile.limit_bytes
        if profile.allocator == oom.allocator and full:
            limit = oom.limit_bytes if oom.limit_bytes is not None else profile.limit_bytes
            return msgspec.structs.replace(oom, in_use_bytes=profile.peak_bytes, limit_bytes=limit)
    return oom


def with_limit(evidence: Evidence, oom: Oom) -> Oom:
    """The failure with its allocator's limit, from the line about the device's creation if necessary, and its use.

    Unless several processes or sessions had a device of this name with different limits.
    """
    oom = _with_recorded_use(evidence, oom)
    asked, limit = oom.requested_bytes, oom.limit_bytes
    if asked is None or not (oom.allocator or "").endswith("_bfc"):
        return oom
    if limit is None:
        wanted = device_name(oom.device or "")
        granted = {
            entry.granted_bytes for entry in evidence.device_map if device_name(entry.framework_device) == wanted
        }
        limit = granted.pop() if len(granted) == 1 else None
    peak, used = _allocator_peak(evidence.run, oom), oom.in_use_bytes
    # If the log is silenced: the most that its allocator counted as in use, if that fills it.
    silenced = used is None and oom.largest_free_bytes is None
    if silenced and peak is not None and limit is not None and limit - asked < peak <= limit:
        used = peak
    return msgspec.structs.replace(oom, limit_bytes=limit, in_use_bytes=used)


def _allocator_peak(run: Run | None, oom: Oom) -> int | None:
    """What the allocator that failed had in use at most, as the program's only process reported it."""
    if run is None or len(run.processes) > 1:
        return None
    wanted = device_name(oom.device or "")
    peaks = [peak for name, peak in run.memory.allocators.items() if device_name(name) == wanted]
    return peaks[0] if len(peaks) == 1 else None


def is_host_oom(oom: Oom) -> bool:
    """Whether host memory ran out."""
    return oom.allocator in HOST_ALLOCATORS


def ooms_of(evidence: Evidence) -> tuple[Oom, ...]:
    """The run's failures, else the log's."""
    found = (evidence.run.ooms if evidence.run is not None else ()) or evidence.log.ooms
    return tuple(with_limit(evidence, oom) for oom in found)


def has_memory_limit(run: Run, limit_bytes: int | None = None) -> bool:
    """Whether the program or its user set a memory limit or fraction of a GPU that is in effect.

    ``limit_bytes``: whether it is this limit, where the setting tells; one of two GPUs may have a limit.
    """
    return any(
        _LIMIT_SETTINGS.search(name)
        and "HOST" not in name
        and not setting.note.startswith(("too late", "not in effect"))
        and setting.effective != []
        and (name != "memory_limit" or _is_one_of(setting.asked, limit_bytes))
        for name, setting in run.settings.items()
    )


def _is_one_of(asked: object, limit_bytes: int | None) -> bool:
    """Whether limits in MiB, of parts of GPUs or by GPU, contain this one; True if either is not known."""
    parts = list(asked.values()) if isinstance(asked, dict) else asked if isinstance(asked, list) else [asked]
    flat = [item for part in parts for item in (part if isinstance(part, list) else [part])]
    known = [item for item in flat if isinstance(item, (int, float))]
    if limit_bytes is None or not known or len(known) < len(flat):
        return True
    return any(abs((int(number) << 20) - limit_bytes) <= _ROUNDING_SHARE * limit_bytes for number in known)

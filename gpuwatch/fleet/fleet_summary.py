"""What the GPUs of each host, and of all hosts, add up to: which are free, who has the others, what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwatch.core.formatting.units import size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.fleet import Fleet, Holder, HostView
from gpuwatch.core.model.process_activity import MIN_IN_USE_PERCENT
from gpuwatch.core.model.snapshot import BAD_STATES, Device, MigInstance, Process
from gpuwatch.explain.diagnosis.conditions.idle_and_unexplained_memory import MIN_HELD_BYTES

Use = Literal["free", "used", "bad", "unknown"]
_CAUSE_RANKS = {cause: rank for rank, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Whether a GPU, or a MIG instance of it, can be had, and who has it."""

    device: Device
    instance: MigInstance | None
    use: Use
    reason: str
    """Why it is not free, in a few words; empty if it is."""
    holders: tuple[Holder, ...]

    @property
    def utilization(self) -> float | None:
        """Percent; None for a MIG instance, of which it is not known."""
        return None if self.instance is not None else self.device.number("utilization.gpu_percent")


@dataclass(frozen=True, slots=True)
class HostSummary:
    """A host with its totals. A total is None if it is unknown of one of the GPUs."""

    view: HostView
    gpus: tuple[GpuUse, ...]
    free_count: int
    models: tuple[tuple[str, int], ...]
    """Name and number of each model, the most frequent first."""
    utilization: float | None
    """Average percent over the GPUs that report it."""
    memory_used: float | None
    memory_total: float | None
    memory_free: float | None
    """Free memory of the GPU that has most of it."""
    hottest: float | None
    """°C of the hottest GPU."""
    holders: tuple[tuple[str, int], ...]
    """Name and number of GPUs of each holder, the one with most first."""
    errors_and_warnings: tuple[Finding, ...]
    """Errors and warnings, the most important first."""

    @property
    def name(self) -> str:
        return self.view.name


def summarize_host(view: HostView) -> HostSummary:
    """The summary of a host; a host that never answered has no GPUs."""
    snapshot = view.snapshot
    devices: Sequence[Device] = snapshot.devices if snapshot is not None else ()
    processes = snapshot.processes if snapshot is not None else ()
    computing = (process for process in processes if process.device_uuid is not None and process.type != "G")
    processes_by_gpu = group_by(computing, lambda process: process.device_uuid)
    gpus = tuple(
        _gpu_use(view, device, instance, processes_by_gpu.get(device.uuid, []))
        for device in devices
        for instance in (device.mig_instances or (None,))
    )
    utilizations = [value for value in (gpu.utilization for gpu in gpus) if value is not None]
    holder_counts: Counter[str] = Counter()
    for gpu in gpus:
        holder_counts.update({holder.name for holder in gpu.holders if holder.name is not None})
    findings = snapshot.findings if snapshot is not None else ()
    problems = [finding for finding in findings if finding.severity != "info" and finding.until is None]
    problems.sort(key=_importance_order)
    return HostSummary(
        view=view,
        gpus=gpus,
        free_count=sum(gpu.use == "free" for gpu in gpus) if view.answered else 0,
        models=tuple(Counter(device.name for device in devices).most_common()),
        utilization=sum(utilizations) / len(utilizations) if utilizations else None,
        memory_used=_sum_if_all_known(devices, "memory.used_bytes"),
        memory_total=_sum_if_all_known(devices, "memory.total_bytes"),
        memory_free=max(_readings(devices, "memory.free_bytes"), default=None),
        hottest=max(_readings(devices, "temperature.gpu_celsius"), default=None),
        holders=tuple(holder_counts.most_common()),
        errors_and_warnings=tuple(problems),
    )


def _importance_order(finding: Finding) -> tuple[int, int]:
    """Sort key of findings: the most important first."""
    return SEVERITY_ORDER[finding.severity], _CAUSE_RANKS.get(finding.id, len(_CAUSE_RANKS))


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """Totals over all hosts."""

    fleet: Fleet
    hosts: tuple[HostSummary, ...]
    gpu_count: int
    """GPUs of the hosts that answer."""
    free_count: int
    free_hosts: tuple[tuple[str, int], ...]
    """Hosts with free GPUs and how many, the most first."""
    holders: tuple[tuple[str, int], ...]
    """Name and number of GPUs of each holder, the one with most first."""
    errors_and_warnings: tuple[tuple[HostSummary, Finding], ...]
    """Errors and warnings of the hosts that answer, the most important first."""


def summarize_fleet(fleet: Fleet, previous: FleetSummary | None = None) -> FleetSummary:
    """The totals of all hosts; those that are the same object as in ``previous`` keep their summaries."""
    summaries = {host.name: host for host in previous.hosts} if previous is not None else {}
    hosts = tuple(
        host if (host := summaries.get(view.name)) is not None and host.view is view else summarize_host(view)
        for view in fleet.hosts
    )
    answering = () if fleet.problem else tuple(host for host in hosts if host.view.answered)
    free = sorted(
        ((host.name, host.free_count) for host in answering if host.free_count), key=lambda pair: (-pair[1], pair[0])
    )
    holder_counts: Counter[str] = Counter()
    for host in answering:
        holder_counts.update(dict(host.holders))
    problems = [(host, finding) for host in answering for finding in host.errors_and_warnings]
    problems.sort(key=lambda pair: _importance_order(pair[1]))
    return FleetSummary(
        fleet=fleet,
        hosts=hosts,
        gpu_count=sum(len(host.gpus) for host in answering),
        free_count=sum(number for _, number in free),
        free_hosts=tuple(free),
        holders=tuple(holder_counts.most_common()),
        errors_and_warnings=tuple(problems),
    )


def _readings(devices: Sequence[Device], metric: str) -> list[float]:
    return [value for device in devices if (value := device.number(metric)) is not None]


def _sum_if_all_known(devices: Sequence[Device], metric: str) -> float | None:
    values = _readings(devices, metric)
    return sum(values) if values and len(values) == len(devices) else None


def _gpu_use(view: HostView, device: Device, instance: MigInstance | None, processes: Sequence[Process]) -> GpuUse:
    holders = view.holders.get(device.uuid, ()) if instance is None else ()
    if not holders:
        holders = _owners([process for process in processes if instance is None or process.mig_instance == instance.id])
    use, reason = _use_and_reason(view, device, instance, holders)
    return GpuUse(device, instance, use, reason, holders)


def _owners(processes: Sequence[Process]) -> tuple[Holder, ...]:
    """The owners of processes, the one with most memory first."""
    owners = []
    for (user, job), owned in group_by(processes, lambda process: (process.user, process.container)).items():
        memory = [process.number("gpu_memory_bytes") for process in owned]
        total = None if None in memory else sum(amount or 0.0 for amount in memory)
        owners.append(Holder(user=user, job=job, processes=len(owned), memory_bytes=total))
    return tuple(sorted(owners, key=lambda owner: -(owner.memory_bytes or 0.0)))


def _use_and_reason(
    view: HostView, device: Device, instance: MigInstance | None, holders: Sequence[Holder]
) -> tuple[Use, str]:
    """Whether a GPU is free, and why not; what cannot be known counts against it."""
    if device.state in BAD_STATES:
        return "bad", device.state_detail or device.state
    if holders:
        return "used", "used by " + ", ".join(holder.name or "someone" for holder in holders[:3])
    key = device.uuid if instance is None else f"{device.uuid} {instance.id}"
    if (free := view.free.get(key)) is not None:
        return ("free", "") if free else ("used", "in use")
    if device.state == "asleep":
        return "free", ""
    memory_used = (device if instance is None else instance).number("memory.used_bytes")
    # NVML has no utilization of MIG instances.
    utilization = device.number("utilization.gpu_percent") if instance is None else 0.0
    if memory_used is not None and memory_used >= MIN_HELD_BYTES and not device.unified_memory:
        return "used", f"{size(memory_used)} in use"
    if utilization is not None and utilization >= MIN_IN_USE_PERCENT:
        return "used", f"{utilization:.0f} % busy"
    if memory_used is None or utilization is None:
        return "unknown", "its memory is not known" if memory_used is None else "its utilization is not known"
    return "free", ""

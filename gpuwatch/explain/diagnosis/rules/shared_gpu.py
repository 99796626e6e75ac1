"""Several processes of one program on a GPU: one that started later was granted what the first had left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMemory, Holding, Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.oom_arithmetic import is_round
from gpuwatch.explain.diagnosis.memory.other_processes_memory import held_at_once
from gpuwatch.explain.diagnosis.rule_registry import rule, warning_of
from gpuwatch.explain.diagnosis.rules.phrasing import quoted

_MUCH_SHARE = 0.5
"""Share of a GPU that the first must hold, and of its grant below which the other's is small."""


_AT_ONCE_SECONDS = 2.0
"""Seconds within which either of two processes may have allocated first."""


class _Tenant(NamedTuple):
    pid: int
    granted: int
    took: int | None
    """What it held, if that is all that it got of the grant: it used the GPU, and is not known to have growth."""
    held: Holding
    command: str


@rule("memory.other-process", needs="program")
def left_by_the_first(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Not told of limits that the program set, nor of processes one after another, nor if memory ran out."""
    if run.ooms:
        return
    for entry in run.memory.devices:
        tenants = sorted(_tenants(run, entry), key=_began_at)
        soon = [tenant for tenant in tenants if _began_at(tenant) - _began_at(tenants[0]) <= _AT_ONCE_SECONDS]
        first = max(soon, key=lambda tenant: tenant.held.peak_bytes or 0, default=None)
        if first is None or not entry.total_bytes or (first.held.peak_bytes or 0) < _MUCH_SHARE * entry.total_bytes:
            continue
        left = entry.total_bytes - (first.held.peak_bytes or 0)
        small = [
            tenant
            for tenant in (
                _with_actual_grant(candidate, left) if candidate in soon else candidate for candidate in tenants
            )
            if tenant.pid != first.pid
            and tenant.granted <= min(left, _MUCH_SHARE * first.granted)
            and not is_round(tenant.granted)
            and held_at_once(tenant.held, first.held)
        ]
        if small:
            yield warning_of(
                "memory.other-process",
                title=f"{len(small) + 1} processes of the program share GPU {entry.index}: process {small[0].pid} was"
                f" granted {size(small[0].granted)}, the memory that process {first.pid} left",
                evidence=[
                    f"process {tenant.pid}: granted {size(tenant.granted)},"
                    f" from {tenant.held.first_seconds or 0.0:.1f} s to"
                    f" {tenant.held.last_seconds or 0.0:.1f} s{tenant.command}"
                    for tenant in (first, *small)
                ],
                action="Give each process its own GPU (CUDA_VISIBLE_DEVICES), or share one on purpose: a"
                f" memory_limit for each, or TF_FORCE_GPU_ALLOW_GROWTH=true, first of all for process {first.pid}.",
                device_uuid=entry.uuid,
            )


def _began_at(tenant: _Tenant) -> float:
    return tenant.held.first_seconds or 0.0


def _with_actual_grant(tenant: _Tenant, left: int) -> _Tenant:
    """Two processes that start together are each granted everything; the first op then takes what the other has left.

    What took far less than that needs no more: it may have growth of its own.
    """
    return tenant._replace(granted=tenant.took) if tenant.took and tenant.took >= _MUCH_SHARE * left else tenant


def _tenants(run: Run, entry: DeviceMemory) -> Iterator[_Tenant]:
    """The processes of the run that NVML saw on this GPU, with what their frameworks were granted there."""
    for process in run.processes:
        granted = sum(mapping.granted_bytes or 0 for mapping in process.device_map if mapping.uuid == entry.uuid)
        held = next((holder for holder in entry.holders if holder.own and holder.pid == process.pid), None)
        if granted and held is not None:
            here = (mapping.framework_device for mapping in process.device_map if mapping.uuid == entry.uuid)
            used = any(map(process.allocators.get, here))
            grows = any("growth" in name.lower() for name in (*run.settings, *process.environment))
            took = min(granted, held.peak_bytes) if used and not grows and held.peak_bytes else None
            command = f": {quoted(process.command, 80)}" if process.command else ""
            yield _Tenant(process.pid, granted, took, held, command)

"""Which host has the GPUs that a program needs: chosen by what hosts report, nothing is reserved."""

from __future__ import annotations

from gpuwatch.core.formatting.sentences import first_and_more
from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.model.pick_result import FittingHost, HostPick, Pick, RefusedHost, SilentHost
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.fleet.fleet_summary import HostSummary, summarize_host
from gpuwatch.session.free_gpus import Requirements, pick_gpus

_MAX_HOSTS_NAMED = 3
"""Hosts that a reason names."""


def pick_host(fleet: Fleet, requirements: Requirements) -> HostPick:
    """Chooses a host: first one on whose GPUs nobody computes, then the one with the fewest other GPUs that fit, so
    that hosts with many free ones stay whole.
    """
    candidates: list[tuple[tuple[int, int, str], HostSummary, Pick]] = []
    refused: list[RefusedHost] = []
    silent: list[SilentHost] = []
    for view in fleet.hosts:
        if fleet.problem or not view.answered or view.snapshot is None:
            silent.append(SilentHost(host=view.name, reason=fleet.problem or view.reason or "no data"))
            continue
        host = summarize_host(view)
        picked = _pick(host, requirements)
        if not picked.chosen:
            refused.append(RefusedHost(host=view.name, fitting=picked.spare, refused=picked.refused))
            continue
        uuids = {gpu.uuid for gpu in picked.chosen}
        shared = sum(bool(gpu.holders) for gpu in host.gpus if gpu.device.uuid in uuids)
        rank = (shared + sum(gpu.processes for gpu in picked.chosen), picked.spare, view.name)
        candidates.append((rank, host, picked))
    candidates.sort(key=lambda choice: choice[0])
    best = candidates[0] if candidates else None
    return HostPick(
        taken_at=utc_datetime(fleet.taken_at),
        wanted=requirements.count,
        host=best[1].name if best else None,
        chosen=best[2].chosen if best else (),
        others=tuple(
            FittingHost(host=host.name, fitting=len(picked.chosen) + picked.spare) for _, host, picked in candidates[1:]
        ),
        refused=tuple(refused),
        silent=tuple(silent),
    )


def _pick(host: HostSummary, requirements: Requirements) -> Pick:
    view = host.view
    assert view.snapshot is not None
    used = {}
    for gpu in host.gpus:
        allocated = next((holder for holder in gpu.holders if holder.processes is None), None)
        if allocated is not None:
            used[gpu.device.uuid] = f"allocated to {allocated.name}"
        elif requirements.idle and gpu.use != "free":
            used[gpu.device.uuid] = gpu.reason
    return pick_gpus(view.snapshot, requirements, {}, {}, view.snapshot.findings, used)


def hosts_refusal_reasons(picked: HostPick) -> str:
    """Why no host was chosen: which come closest, and how many are silent."""
    closest = sorted(picked.refused, key=lambda refused: (-refused.fitting, refused.host))
    reasons: list[str] = []
    if closest and closest[0].fitting:
        most = closest[0].fitting
        names = [refused.host for refused in closest if refused.fitting == most]
        verb = "has" if len(names) == 1 else "have"
        reasons.append(f"{first_and_more(names, _MAX_HOSTS_NAMED)} {verb} {most}")
    elif closest:
        host = next((refused for refused in closest if refused.refused), None)
        if host is not None:
            reasons.append(f"{host.host}, GPU {host.refused[0].index}: {host.refused[0].reason}")
    if picked.silent:
        count, first = len(picked.silent), f"{picked.silent[0].host}: {picked.silent[0].reason}"
        reasons.append(first if count == 1 else f"{count} hosts did not answer ({first})")
    return "; ".join(reasons)

"""Totals over all hosts of a fleet: free GPUs, holders, errors and warnings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.fleet import Fleet
from gpuwatch.fleet.host_summary import HostSummary, importance_order, summarize_host


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """Totals over all hosts."""

    fleet: Fleet
    hosts: tuple[HostSummary, ...]
    gpus: int
    """GPUs of the hosts that answer."""
    free: int
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
    free = sorted(((host.name, host.free) for host in answering if host.free), key=lambda pair: (-pair[1], pair[0]))
    holder_counts: Counter[str] = Counter()
    for host in answering:
        holder_counts.update(dict(host.holders))
    problems = [(host, finding) for host in answering for finding in host.errors_and_warnings]
    problems.sort(key=lambda pair: importance_order(pair[1]))
    return FleetSummary(
        fleet=fleet,
        hosts=hosts,
        gpus=sum(len(host.gpus) for host in answering),
        free=sum(number for _, number in free),
        free_hosts=tuple(free),
        holders=tuple(holder_counts.most_common()),
        errors_and_warnings=tuple(problems),
    )

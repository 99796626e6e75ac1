"""Who owns the processes on a GPU: users, and the jobs, pods and containers that they run in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.snapshot import Process

_LABEL_BY_CONTAINER_KIND = {"slurm job": "slurm_job", "pod": "pod", "container": "container"}
"""The first words of :attr:`Process.container`, and the label that has the rest."""


class Owner(NamedTuple):
    """Owner of a process, as far as known; fields are named like the labels."""

    user: str | None = None
    slurm_job: str | None = None
    """Its number. Not ``job``: that label is Prometheus's own."""
    pod: str | None = None
    container: str | None = None
    """The start of the container's id."""


class OwnerShare(NamedTuple):
    """What one owner has on a GPU."""

    owner: Owner
    processes: int
    memory_bytes: float | None
    """None if it is unknown of one of the processes."""


def owner_of(process: Process) -> Owner:
    """The owner of a process: user, job, pod and container."""
    kind, _, name = (process.container or "").rpartition(" ")
    label = _LABEL_BY_CONTAINER_KIND.get(kind)
    return Owner(user=process.user, **({label: name} if label is not None else {}))


def owner_shares(processes: Iterable[Process]) -> list[OwnerShare]:
    """The owners of processes on one GPU, the one with the most memory first."""
    by_owner = group_by(processes, owner_of)
    shares = [OwnerShare(owner, len(owned), _total_memory(owned)) for owner, owned in by_owner.items()]
    return sorted(shares, key=lambda share: (-(share.memory_bytes or 0.0), -share.processes, str(share.owner)))


def _total_memory(processes: list[Process]) -> float | None:
    memory_bytes = [process.number("gpu_memory_bytes") for process in processes]
    known_bytes = [amount for amount in memory_bytes if amount is not None]
    return sum(known_bytes) if len(known_bytes) == len(memory_bytes) else None

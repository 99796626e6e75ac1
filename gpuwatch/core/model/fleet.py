"""Many hosts and their GPUs at one moment, as far as their exporters or their own gpuwatch report them."""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.snapshot import Snapshot


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who has a GPU: the owner of processes, or whom a scheduler gave it to."""

    user: str | None = None
    job: str | None = None
    """``job 4711`` (Slurm), ``namespace/pod``, or a container."""
    processes: int | None = None
    """How many are on this GPU; None if only the scheduler tells of it."""
    memory_bytes: float | None = None
    """GPU memory of these processes together."""

    @property
    def name(self) -> str | None:
        """The user, else the job; None if neither is known."""
        return self.user or self.job


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """One host. Compared by identity: a host whose data did not change stays the same object."""

    name: str
    snapshot: Snapshot | None = None
    """Its newest data; None if it never answered. With processes and findings as far as they are reported."""
    holders: dict[str, tuple[Holder, ...]] = {}
    """By UUID, who has a GPU; beside the processes of the snapshot, of which there may be none."""
    free: dict[str, bool] = {}
    """By UUID, whether nobody uses a GPU, where the host itself reports that; of a MIG instance by the UUID of its GPU,
    a blank and its id."""
    age_seconds: float | None = None
    """How old the data were when they were read; None if that is not reported."""
    reason: str = ""
    """Why there is no newer data; empty if the host answers."""

    pending: bool = False
    """Whether it was asked for the first time and has not answered yet."""

    @property
    def answered(self) -> bool:
        """Whether its data are current."""
        return not self.reason


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts at one moment."""

    taken_at: float
    """Seconds since the epoch."""
    source: str
    """Where they were read from, for the user: a server, or ``ssh``."""
    hosts: tuple[HostView, ...] = ()
    """By name."""
    problem: str = ""
    """Why nothing new is known of any host; empty if the source answers."""
    hint: str = ""

    @property
    def answered(self) -> int:
        """Number of hosts whose data are current."""
        return 0 if self.problem else sum(host.answered for host in self.hosts)

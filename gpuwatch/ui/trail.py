"""The last minutes of the few processes that somebody looks at; of no other process anything is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gpuwatch.model.snapshot import Process, Snapshot

Identity = tuple[int, float | None]
"""Pid and start time."""

READINGS = ("gpu_memory_bytes", "sm_percent", "cpu_percent", "host_memory_bytes")
_OF_DEVICES = frozenset({"gpu_memory_bytes", "sm_percent"})
_CAPACITY = 600
_FOLLOWED = 4


def identity(process: Process) -> Identity:
    """The same on every device that it uses."""
    return (process.pid, process.create_time)


def entries(snapshot: Snapshot | None, who: Identity) -> tuple[Process, ...]:
    """The rows of a process, one per device."""
    return tuple(one for one in snapshot.processes if identity(one) == who) if snapshot is not None else ()


def total(rows: tuple[Process, ...], reading: str) -> float | None:
    """A reading of the process: summed over its devices where each device has its own."""
    values = [value for row in rows if (value := row.number(reading)) is not None]
    if not values:
        return None
    return sum(values) if reading in _OF_DEVICES else values[0]


class Trail:
    """One process: samples oldest first, None where it was not there or did not tell."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=_CAPACITY)
        self.series: dict[str, deque[float | None]] = {name: deque(maxlen=_CAPACITY) for name in READINGS}
        self.rows: tuple[Process, ...] = ()
        """As they were when it was last seen."""
        self.seen: float | None = None

    def add(self, snapshot: Snapshot, who: Identity) -> None:
        """One more sample."""
        rows, now = entries(snapshot, who), snapshot.taken_at.timestamp()
        if rows:
            self.rows, self.seen = rows, now
        self.times.append(now)
        for name, series in self.series.items():
            series.append(total(rows, name))


class Trails:
    """Trails of the processes that were looked at last."""

    def __init__(self) -> None:
        self._trails: dict[Identity, Trail] = {}

    def follow(self, who: Identity, snapshots: Sequence[Snapshot] = ()) -> Trail:
        """The trail of a process, begun with ``snapshots`` where it is new; the one longest unlooked at goes."""
        trail = self._trails.pop(who, None)
        if trail is None:
            trail = Trail()
            for snapshot in snapshots:
                trail.add(snapshot, who)
        self._trails[who] = trail
        while len(self._trails) > _FOLLOWED:
            del self._trails[next(iter(self._trails))]
        return trail

    def add(self, snapshot: Snapshot) -> None:
        """A sample has come."""
        for who, trail in self._trails.items():
            trail.add(snapshot, who)

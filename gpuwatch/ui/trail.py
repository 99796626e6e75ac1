"""The last minutes of the few processes that somebody looks at; of no other process anything is kept."""

from __future__ import annotations

from collections import deque

from gpuwatch.history.timeline import Identity as Identity
from gpuwatch.history.timeline import Timeline
from gpuwatch.model.snapshot import Process, Snapshot
from gpuwatch.monitor.wire import aged
from gpuwatch.ui.tree import host_row

READINGS = ("gpu_memory_bytes", "sm_percent", "cpu_percent", "host_memory_bytes")
_OF_DEVICES = frozenset({"gpu_memory_bytes", "sm_percent"})
_CAPACITY = 600
_BACK = 600.0
"""Seconds that a trail goes back when it begins."""
_FOLLOWED = 4


def identity(process: Process) -> Identity:
    """The same on every device that it uses."""
    return (process.pid, process.create_time)


def entries(snapshot: Snapshot | None, who: Identity) -> tuple[Process, ...]:
    """The rows of a process, one per device; of one that is on none, but started some that are, a row of the host."""
    if snapshot is None:
        return ()
    found = tuple(one for one in snapshot.processes if identity(one) == who)
    at = snapshot.taken_at.timestamp()
    return found or tuple(host_row(one, at) for one in snapshot.ancestors if (one.pid, one.create_time) == who)


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

    def put(self, at: float, rows: tuple[Process, ...]) -> None:
        """One more sample: the rows of the process, none where it was not there."""
        if rows:
            self.rows, self.seen = rows, at
        self.times.append(at)
        for name, series in self.series.items():
            series.append(total(rows, name))


class Trails:
    """Trails of the processes that were looked at last."""

    def __init__(self) -> None:
        self._trails: dict[Identity, Trail] = {}
        self._then: tuple[Identity, float, Trail] | None = None

    def follow(self, who: Identity, timeline: Timeline) -> Trail:
        """The trail of a process, begun with what is kept of it; the one longest unlooked at goes."""
        trail = self._trails.pop(who, None)
        if trail is None:
            times = timeline.times
            trail = _from(timeline, who, times[-1]) if times else Trail()
        self._trails[who] = trail
        while len(self._trails) > _FOLLOWED:
            del self._trails[next(iter(self._trails))]
        return trail

    def then(self, who: Identity, moment: float, timeline: Timeline) -> Trail:
        """The trail as it was at a moment."""
        if self._then is None or self._then[:2] != (who, moment):
            self._then = (who, moment, _from(timeline, who, moment))
        return self._then[2]

    def add(self, snapshot: Snapshot) -> None:
        """A sample has come."""
        if self._trails:
            snapshot = aged(snapshot)  # what is kept of one that has gone says how long it ran
        for who, trail in self._trails.items():
            trail.put(snapshot.taken_at.timestamp(), entries(snapshot, who))


def _from(timeline: Timeline, who: Identity, end: float) -> Trail:
    trail = Trail()
    for at, rows in timeline.process(who, end - _BACK, end):
        trail.put(at, rows)
    return trail

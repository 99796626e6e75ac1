"""One process over time: its identity, its rows in a sample, and the last minutes of those that the user has opened."""

from __future__ import annotations

from collections import deque

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import PROCESS_READINGS, Ancestor, Process, Snapshot
from gpuwatch.machine.history.abstract_sample_store import Identity as Identity
from gpuwatch.machine.history.abstract_sample_store import SampleStore

GRAPHED_READINGS = ("gpu_memory_bytes", "sm_percent", "cpu_percent", "host_memory_bytes")
_PER_DEVICE_READINGS = frozenset({"gpu_memory_bytes", "sm_percent"})
_MAX_SAMPLES = 600
_LOOK_BACK_SECONDS = 600.0
"""Seconds that a new history goes back."""
_MAX_FOLLOWED_PROCESSES = 4

_USES_NO_GPU = Missing("not_supported", detail="the process uses no GPU: it only started processes that do")
_NOT_READ = Missing("no_sample", detail="only read for processes that use a GPU")


def process_identity(process: Process) -> Identity:
    """Pid and start time, the same on every device that the process uses."""
    return (process.pid, process.create_time)


def ancestor_row(ancestor: Ancestor) -> Process:
    """A row for an ancestor of a GPU process."""
    missing = dict.fromkeys(PROCESS_READINGS, _NOT_READ) | dict.fromkeys(
        ("gpu_memory_bytes", "sm_percent", "memory_percent", "encoder_percent", "decoder_percent"), _USES_NO_GPU
    )
    return Process(
        pid=ancestor.pid,
        create_time=ancestor.create_time,
        user=ancestor.user,
        command=ancestor.command,
        name=ancestor.name,
        type="H",
        device_uuid=None,
        note="uses no GPU",
        readings={},
        missing=missing,
    )


def process_rows(snapshot: Snapshot | None, identity: Identity) -> tuple[Process, ...]:
    """The rows of a process, one per device; a row without a GPU for a program on the CPU, or an ancestor."""
    if snapshot is None:
        return ()
    rows = tuple(process for process in snapshot.processes if process_identity(process) == identity)
    rows = rows or tuple(bystander for bystander in snapshot.bystanders if process_identity(bystander) == identity)
    return rows or tuple(
        ancestor_row(ancestor) for ancestor in snapshot.ancestors if (ancestor.pid, ancestor.create_time) == identity
    )


def total_reading(rows: tuple[Process, ...], reading: str) -> float | None:
    """A reading of the process, summed over its devices if it is one per device."""
    values = [value for row in rows if (value := row.number(reading)) is not None]
    if not values:
        return None
    return sum(values) if reading in _PER_DEVICE_READINGS else values[0]


class ProcessHistory:
    """One process: samples oldest first; None where it did not exist or could not be read."""

    def __init__(self) -> None:
        self.times: deque[float] = deque(maxlen=_MAX_SAMPLES)
        self.series: dict[str, deque[float | None]] = {name: deque(maxlen=_MAX_SAMPLES) for name in GRAPHED_READINGS}
        self.rows: tuple[Process, ...] = ()
        self.last_seen_at: float | None = None

    def add_sample(self, at: float, rows: tuple[Process, ...]) -> None:
        """Appends a sample: the rows of the process, empty if it does not exist."""
        if rows:
            self.rows, self.last_seen_at = rows, at
        self.times.append(at)
        for name, series in self.series.items():
            series.append(total_reading(rows, name))


class ProcessHistories:
    """Histories of the most recently opened processes."""

    def __init__(self) -> None:
        self._followed: dict[Identity, ProcessHistory] = {}
        self._history_until: tuple[Identity, float, ProcessHistory] | None = None

    def follow(self, identity: Identity, timeline: SampleStore, newest: float | None) -> ProcessHistory:
        """The live history of a process, filled from the timeline; the least recently used one is dropped.

        ``newest``: when the newest sample was taken; None if there is none.
        """
        history = self._followed.pop(identity, None)
        if history is None:
            history = _history_of(timeline, identity, newest) if newest is not None else ProcessHistory()
        self._followed[identity] = history
        while len(self._followed) > _MAX_FOLLOWED_PROCESSES:
            del self._followed[next(iter(self._followed))]
        return history

    def until(self, identity: Identity, moment: float, timeline: SampleStore) -> ProcessHistory:
        if self._history_until is None or self._history_until[:2] != (identity, moment):
            self._history_until = (identity, moment, _history_of(timeline, identity, moment))
        return self._history_until[2]

    def add(self, snapshot: Snapshot) -> None:
        for identity, history in self._followed.items():
            history.add_sample(snapshot.taken_at.timestamp(), process_rows(snapshot, identity))


def _history_of(timeline: SampleStore, identity: Identity, end: float) -> ProcessHistory:
    history = ProcessHistory()
    for at, rows in timeline.process(identity, end - _LOOK_BACK_SECONDS, end):
        history.add_sample(at, rows)
    return history

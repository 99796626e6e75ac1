"""Since when processes are idle, over a change of who takes the samples: each collector only knows its own time."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import IDLE_SINCE, Process, Snapshot
from gpuwatch.machine.collector.recorder_sample_completer import SAME_START_SECONDS
from gpuwatch.machine.history.reused_objects import MappedRows

_LATE_SECONDS = 10.0
"""After the first sample: a driver may not tell yet who computes. Later, it may have been seen to."""
_Key = tuple[str | None, int, str | None]


class _Known(NamedTuple):
    since: float
    """When it became idle, in seconds since the epoch."""
    create_time: float
    told: float | None = None
    """What the samples say since the change; None if they have not said it yet."""


class IdleTimes:
    """Takes samples in their order; unchanged rows stay the same objects."""

    def __init__(self, last: Snapshot) -> None:
        """``last``: the last sample before the change."""
        self._until: float | None = None
        self._known = {
            _key(row): _Known(since, row.create_time)
            for row in last.processes
            if (since := number(row.readings.get(IDLE_SINCE))) and row.create_time is not None
        }
        self._rows = MappedRows(self._row)

    def continued(self, snapshot: Snapshot) -> Snapshot:
        """The sample, in which what was idle before the change and still is has been so since then.

        Between them nobody may have looked, for as long as a driver hung: conditions go on over such gaps, too.
        """
        self._until = self._until or snapshot.taken_at.timestamp() + _LATE_SECONDS
        rows = self._rows.of(snapshot.processes) if self._known else snapshot.processes
        return snapshot if rows is snapshot.processes else replace(snapshot, processes=rows)

    def _row(self, row: Process) -> Process:
        key, since = _key(row), number(row.readings.get(IDLE_SINCE))
        known = self._known.get(key)
        if known is None or since is None:
            return row
        told = since if known.told is None else known.told
        other = row.create_time is None or abs(row.create_time - known.create_time) > SAME_START_SECONDS
        if other or not since or since != told or since > (self._until or since):
            del self._known[key]
            return row
        self._known[key] = known._replace(told=told)
        return replace(row, readings=row.readings | {IDLE_SINCE: min(known.since, since)})


def _key(row: Process) -> _Key:
    return row.device_uuid, row.pid, row.mig_instance

"""Continues the idle times of processes where another collector or recorder has begun to take the samples."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import IDLE_SINCE, SAME_START_SECONDS, Process, Snapshot
from gpuwatch.machine.history.reused_objects import MappedRows

_FIRST_REPORTS_SECONDS = 10.0
"""Seconds after the first sample in which a driver may not report yet who computes; later, it may have computed."""
_Key = tuple[str | None, int, str | None]


class _KnownIdle(NamedTuple):
    since: float
    """When it became idle, in seconds since the epoch."""
    create_time: float
    reported_since: float | None = None
    """Since when it is idle according to the samples after the change; None if none has said it yet."""


class ContinuedIdleTimes:
    """Continues idle times over a change of who takes the samples: each collector only knows its own time.

    Takes samples in their order; unchanged rows stay the same objects.
    """

    def __init__(self, last: Snapshot) -> None:
        """``last``: the last sample before the change."""
        self._trusted_until: float | None = None
        self._known_idle = {
            _key(row): _KnownIdle(since, row.create_time)
            for row in last.processes
            if (since := number(row.readings.get(IDLE_SINCE))) and row.create_time is not None
        }
        self._rows = MappedRows(self._continue_row)

    def continue_in(self, snapshot: Snapshot) -> Snapshot:
        """The sample, in which what was idle before the change and still is has been so since then.

        Between them nobody may have looked, for as long as a driver hung: conditions go on over such gaps, too.
        """
        self._trusted_until = self._trusted_until or snapshot.taken_at.timestamp() + _FIRST_REPORTS_SECONDS
        rows = self._rows.made_of(snapshot.processes) if self._known_idle else snapshot.processes
        return snapshot if rows is snapshot.processes else replace(snapshot, processes=rows)

    def _continue_row(self, row: Process) -> Process:
        key, since = _key(row), number(row.readings.get(IDLE_SINCE))
        known = self._known_idle.get(key)
        if known is None or since is None:
            return row
        reported_since = since if known.reported_since is None else known.reported_since
        is_other_process = row.create_time is None or abs(row.create_time - known.create_time) > SAME_START_SECONDS
        if is_other_process or not since or since != reported_since or since > (self._trusted_until or since):
            del self._known_idle[key]
            return row
        self._known_idle[key] = known._replace(reported_since=reported_since)
        return replace(row, readings=row.readings | {IDLE_SINCE: min(known.since, since)})


def _key(row: Process) -> _Key:
    return row.device_uuid, row.pid, row.mig_instance

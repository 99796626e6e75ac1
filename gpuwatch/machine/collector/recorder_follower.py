"""The samples of a recorder that runs on this machine, instead of those of a collector: one process asks the driver."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.collector.protocol import Source
from gpuwatch.machine.history.reused_objects import MappedRows
from gpuwatch.machine.history.sample_frames import DamagedData
from gpuwatch.machine.recording.running_recorders import RunningRecorder, find_running_recorders
from gpuwatch.machine.sources.device_source import MAX_XIDS, SeenDevice
from gpuwatch.machine.sources.procfs import HIDDEN

if TYPE_CHECKING:
    from gpuwatch.machine.collector.recorder_samples import RecorderSampleCompleter

_FRESH_SECONDS = 2.0
"""Seconds, besides two intervals, up to which the newest sample of a recording is new."""
_LATE_SECONDS = 1.5
"""Seconds, besides the interval, after which a sample is late."""
_FIRST_RETRY_SECONDS = (0.0, 0.03, 0.1)
"""Seconds to wait for a first sample: there is none for a moment after a block was sealed."""
_EARLY_SECONDS = 0.005
"""Seconds by which each look is earlier than the previous sample was noticed, so that none is noticed late for ever."""
_POLL_SECONDS_BY_WAIT = ((0.25, 0.02), (1.0, 0.05), (float("inf"), 0.25))
"""While a sample is due: up to so many seconds after it was, look every so often."""
_MAX_POLL_SECONDS = 1.0
"""Maximum seconds between looks: whether the recorder still lives is asked each time."""
_SAME_XID_SECONDS = 1.0
"""Seconds, besides the interval, by which two collectors may receive the same error at different times."""
_STOPPED_SECONDS = 3.0
"""Seconds between two looks after which this process was stopped in between (SIGSTOP, suspend)."""


class RecorderFollower:
    """A recorder that is followed. Used by one thread; close it after use."""

    def __init__(self, recorder: RunningRecorder, seen: Mapping[str, SeenDevice]) -> None:
        """``seen``: the devices of samples before, with the errors that the driver reports once; may change.

        :class:`GpuwatchError` or :class:`DamagedData` if the recording cannot be read.
        """
        # It imports SQLite, which is not needed without a recorder.
        from gpuwatch.machine.recording.newest_samples import NewestSamples

        self.recorder, self._seen_devices = recorder, seen
        self._devices = MappedRows(self._with_missed_xids)
        self.interval = recorder.entry.interval
        """Seconds between samples."""
        self._newest_samples = NewestSamples(Path(recorder.entry.path))
        self._last_arrival = self._checked_at = time.monotonic()
        """When the last sample came, and when one was last looked for, on the monotonic clock."""
        self._completer: RecorderSampleCompleter | None = None
        if recorder.reads_less:
            from gpuwatch.machine.collector.recorder_samples import RecorderSampleCompleter

            self._completer = RecorderSampleCompleter()
        try:
            self.first = self._find_first_sample()
        except BaseException:
            self._newest_samples.close()
            raise

    def _find_first_sample(self) -> Snapshot | None:
        for wait in _FIRST_RETRY_SECONDS:
            time.sleep(wait)
            if samples := self._take_completed():
                return samples[-1]
        return None

    def _take_completed(self) -> list[Snapshot]:
        samples = [
            replace(sample, devices=self._devices.made_of(sample.devices)) for sample in self._newest_samples.take()
        ]
        return samples if self._completer is None else list(map(self._completer.complete, samples))

    def _with_missed_xids(self, device: Device) -> Device:
        """With the errors that it missed: the driver reported them to whoever listened before it began."""
        known = self._seen_devices.get(device.uuid)
        if known is None or not known.xids:
            return device
        return replace(device, xids=merge_missed_xids(known.xids, device.xids, self.interval))

    @property
    def name(self) -> str:
        return f"gpuwatch record ({self.recorder.entry.pid})"

    @property
    def source(self) -> Source:
        """What the user is told while its samples are shown."""
        path = self.recorder.entry.path
        silence = self.recorder.silence if self.is_late else None
        detail, fault = (silence.detail, silence.collector_fault) if silence is not None else ("", "")
        return Source(path, f"samples come from {self.name}, {printable(Path(path).name)}", detail, fault)

    @property
    def is_usable(self) -> bool:
        """Whether its first sample is new and has what a collector here would have."""
        first = self.first
        if first is None:
            return False
        if abs(time.time() - first.taken_at.timestamp()) > 2 * self.interval + _FRESH_SECONDS + first.took_seconds:
            return False
        return self._completer is None or not hides_processes(first)

    def new_samples(self) -> tuple[list[Snapshot], str]:
        """The samples since the last call, oldest first, and why there will be no more; empty if there will."""
        try:
            samples = self._take_completed()
        except (GpuwatchError, DamagedData) as error:
            return [], str(error)
        now = time.monotonic()
        if samples:
            self._last_arrival = now
        elif now - self._checked_at > _STOPPED_SECONDS:
            self._last_arrival = now  # this process was stopped for a while
        self._checked_at = now
        if self.is_late and self.recorder.silence is None:
            return [], f"{self.name} hangs"  # it neither records nor reports that its collector is late
        return samples, ""

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self._last_arrival > self.interval + _LATE_SECONDS

    def next_check(self) -> float:
        """When to look again (monotonic seconds)."""
        now = time.monotonic()
        due = self._last_arrival + self.interval - _EARLY_SECONDS
        if due > now:
            return min(due, now + _MAX_POLL_SECONDS)
        return now + next(wait for until, wait in _POLL_SECONDS_BY_WAIT if now - due < until)

    def close(self) -> None:
        self._newest_samples.close()
        self.recorder.close()


def hides_processes(snapshot: Snapshot) -> bool:
    """Whether whoever took the sample was not shown processes that use GPUs (hidepid)."""
    return any(row.note.startswith(HIDDEN) for row in snapshot.processes)


def find_recorder(interval: float, *, gpm: bool, seen: Mapping[str, SeenDevice]) -> RecorderFollower | None:
    """A recorder that works and whose samples have all that is wanted; None if there is none.

    ``interval``: maximum seconds between samples. ``seen``: see :class:`RecorderFollower`.
    """
    chosen: RecorderFollower | None = None
    for recorder in find_running_recorders():
        if chosen is None and recorder.entry.is_sufficient(interval, gpm=gpm):
            with suppress(GpuwatchError, DamagedData, OSError):
                follower = RecorderFollower(recorder, seen)
                if follower.is_usable:
                    chosen = follower
                    continue
                follower.close()
        recorder.close()
    return chosen


def merge_missed_xids(known: Sequence[Xid], recorded: Sequence[Xid], interval: float) -> tuple[Xid, ...]:
    """The errors that a recorder has received, every ``interval`` seconds, and of those known before what it missed."""
    first = {xid.code: xid.at - interval - _SAME_XID_SECONDS for xid in reversed(recorded)}
    missed = [xid for xid in known if xid.code not in first or xid.at < first[xid.code]]
    return tuple(sorted((*missed, *recorded), key=lambda xid: xid.at)[-MAX_XIDS:])

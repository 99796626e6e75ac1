"""Reads a recording, also while it grows: samples by time, means, events, findings, processes.

Where the clock was set back, times overlap: the later recording is shown, and what it covers is left out of the times
(:attr:`Recording.covered` counts it).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gpuwatch.errors import GpuwatchError
from gpuwatch.formatting.terminal import file_name
from gpuwatch.history.machine_event import MachineEvent
from gpuwatch.history.metric_series import History
from gpuwatch.history.sample_store import Identity, Kept, Times
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Device, Process, Snapshot
from gpuwatch.recording import tiers
from gpuwatch.recording.damage import TIMES, SealedBlocks, is_block, readable
from gpuwatch.recording.gpu_time import HOUR, GpuTime, GpuTimeMeter, hour_of, merged
from gpuwatch.recording.gpu_time import unpack as unpack_time
from gpuwatch.recording.minute_blocks import DamagedMinute, OpenSamples, reused
from gpuwatch.recording.process_lives import ProcessLife
from gpuwatch.recording.storage import DATABASE_ERRORS, looked_at, open_to_read, unreadable

_OPEN = -1
"""Number of the samples that are not in a block yet."""


class Run(NamedTuple):
    """One run of the recorder."""

    number: int
    began: float
    """Seconds since the epoch."""
    ended: float | None
    """None: it is running, or was killed."""
    why: str | None
    hostname: str | None
    version: str
    """Of gpuwatch."""
    interval: float
    """Seconds between samples."""


class RecordedFinding(NamedTuple):
    """A finding and the time for which it held, in seconds since the epoch."""

    since: float
    until: float
    finding: Finding


class _Block(NamedTuple):
    number: int
    begin: float
    end: float
    samples: int
    """Samples that are not covered by a later recording."""


class Recording:
    """A file that is open for reading; a :class:`~gpuwatch.history.sample_store.SampleStore`.

    Used by one thread at a time. Times are seconds since the epoch. :class:`GpuwatchError` where the file cannot be
    read; damaged blocks are left out and counted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.schema = looked_at(path)
        self.covered = 0
        """Samples left out because the clock was set back and their time was recorded again."""
        self._db = open_to_read(path)
        self._sealed_blocks = SealedBlocks(self._db, path)
        self._blocks: list[_Block] = []
        self._firsts: list[int] = [0]
        """How many samples come before each block, and at the end the number of all."""
        self._begins: list[float] = []
        self._sealed: list[tuple[int, float, float, int]] = []
        """Number, begin, end and samples of every block, in the order of recording."""
        self._open: list[Kept] = []
        """The samples that are in no block yet."""
        self._decoder = OpenSamples()
        self._newest = 0
        """The last of their frames that was decoded."""
        self._events: list[MachineEvent] = []
        self._last_event = 0
        self._version: int | None = None
        self.refresh()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    def refresh(self) -> bool:
        """Takes in what was recorded since; whether there was anything."""
        version = self._rows("PRAGMA data_version")[0][0]
        if version == self._version:
            return False
        self._version = version
        last = self._sealed[-1][0] if self._sealed else 0
        # One read transaction: a block that is sealed in between would be seen twice or not at all.
        self._rows("BEGIN")
        try:
            first = self._rows("SELECT min(id) FROM minutes")[0][0]
            sealed = self._rows("SELECT id, begin, end, samples FROM minutes WHERE id > ? ORDER BY id", (last,))
            if sealed:  # with all that was open
                self._newest, self._open, self._decoder = 0, [], OpenSamples()
            frames = self._rows("SELECT id, frame FROM open_frames WHERE id > ? ORDER BY id", (self._newest,))
        finally:
            self._rows("COMMIT")
        if frames:
            self._newest = frames[-1][0]
            self._open += self._decoder.take(frame for _, frame in frames)
        sealed = [row for row in sealed if is_block(*row)]
        kept = [row for row in self._sealed if row[0] >= first] if first is not None else []
        changed = len(kept) != len(self._sealed) or bool(sealed)
        self._sealed = kept + sealed
        if changed or not self._extend():
            rows = [*self._sealed]
            if self._open:
                rows.append((_OPEN, self._open[0].at, self._open[-1].at, len(self._open)))
            self._arrange(rows)
        return True

    def _extend(self) -> bool:
        """Takes in more open samples, if they follow what is there already."""
        if not self._open:
            return False
        if self._blocks and self._blocks[-1].number == _OPEN:
            self._blocks.pop()
            self._begins.pop()
            self._firsts.pop()
        begin = self._open[0].at
        if self._blocks and self._blocks[-1].end >= begin:
            return False
        self._blocks.append(_Block(_OPEN, begin, self._open[-1].at, len(self._open)))
        self._begins.append(begin)
        self._firsts.append(self._firsts[-1] + len(self._open))
        return True

    def _arrange(self, rows: Sequence[tuple[int, float, float, int]]) -> None:
        """Finds the part of each block that no later one covers."""
        found: list[_Block] = []
        limit = float("inf")
        self.covered = 0
        for number, begin, end, count in reversed(rows):
            left = count
            if end >= limit:
                left = 0 if begin >= limit else sum(at < limit for at in self._times_of(number))
                self.covered += count - left
            if left:
                found.append(_Block(number, begin, end, left))
            limit = min(limit, begin)
        self._blocks = found[::-1]
        self._begins = [block.begin for block in self._blocks]
        self._firsts = list(accumulate((block.samples for block in self._blocks), initial=0))

    # What there is

    @property
    def damaged(self) -> set[int]:
        """Numbers of blocks that could not be read."""
        return self._sealed_blocks.damaged

    @property
    def runs(self) -> list[Run]:
        """The runs of the recorder, oldest first."""
        rows = self._rows("SELECT id, began, ended, why, hostname, version, interval FROM runs ORDER BY id")
        return list(readable(_run_of, rows))

    @property
    def notes(self) -> dict[str, str]:
        """What is noted about the file, such as that it is a cut."""
        return dict(self._rows("SELECT name, value FROM notes"))

    @property
    def begin(self) -> float | None:
        """Time of the first sample; None if there is none."""
        return self._blocks[0].begin if self._blocks else None

    @property
    def end(self) -> float | None:
        """Time of the last sample; None if there is none."""
        return self.times[-1] if self._blocks else None

    @property
    def times(self) -> Sequence[float]:
        """Times of all samples, oldest first; read from the file where they are asked for."""
        return _Times(self)

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self._firsts[-1]

    def stretches(self, longer: float) -> list[tuple[float, float]]:
        """Begin and end of each time without a gap that is longer than so many seconds.

        Of long recordings only gaps between blocks, which take about a minute, are looked for.
        """
        if len(self._blocks) <= TIMES // 2:
            edges = [edge for gap in self.gaps(longer) for edge in gap]
            every = [self.times[0], *edges, self.times[-1]] if self._blocks else []
            return list(zip(every[::2], every[1::2], strict=True))
        found: list[tuple[float, float]] = []
        for block in self._blocks:
            if found and block.begin - found[-1][1] <= longer:
                found[-1] = (found[-1][0], block.end)
            else:
                found.append((block.begin, block.end))
        return found

    def gaps(self, longer: float) -> Iterator[tuple[float, float]]:
        """Begin and end of each time between samples that is longer than so many seconds."""
        last: float | None = None
        for block in self._blocks:
            for at in self._times_of(block.number)[: block.samples]:
                if last is not None and at - last > longer:
                    yield last, at
                last = at

    def gaps_of_blocks(self, begin: float, end: float) -> Iterator[tuple[float, float]]:
        """Begin and end of each time from ``begin`` to ``end`` between blocks, or that no block has."""
        last = begin
        for block in self._between(begin, end):
            if block.begin > last:
                yield last, block.begin
            last = max(last, block.end)
        if end > last:
            yield last, end

    def extent(self) -> tuple[float, float]:
        """The times of the first and last sample; the first may be that of an hour whose samples were deleted.

        :class:`GpuwatchError` if there are none.
        """
        if self.begin is None or self.end is None:
            raise no_samples(self.path)
        oldest = self._rows("SELECT min(begin) FROM gpu_time")[0][0] if self.schema >= 2 else None
        first = self.begin
        if isinstance(oldest, int) and oldest < hour_of(first):
            first = float(oldest)
        return first, self.end

    # Samples

    def at(self, moment: float) -> Kept | None:
        """The last sample not later than ``moment``, or the first one if all are later; None if there are none."""
        if not self._blocks:
            return None
        place = max(bisect_right(self._begins, moment) - 1, 0)
        order = chain(range(place, -1, -1), range(place + 1, len(self._blocks)))
        for number in order:  # the next one only where a block is damaged
            block = self._blocks[number]
            times = self._times_of(block.number)[: block.samples]
            here = max(bisect_right(times, moment) - 1, 0) if number <= place else 0
            if block.number == _OPEN:
                return self._open[here]
            minute = self._sealed_blocks.minute(block.number)
            if minute is None:
                continue
            try:
                return minute.kept(here)
            except DamagedMinute:
                self._sealed_blocks.damage(block.number)
        return None

    def snapshots(self, begin: float = float("-inf"), end: float = float("inf")) -> Iterator[Kept]:
        """The samples from ``begin`` to ``end``. Unchanged parts are the same objects in the next sample."""
        last: Kept | None = None
        for block in self._between(begin, end):
            for kept in self._samples(block):
                if kept.at > end:
                    break
                if last is not None:
                    kept = _settled(kept, last)
                last = kept
                if kept.at >= begin:
                    yield kept

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """These metrics of the devices over the ``seconds`` up to ``end``."""
        history = History()
        for times, columns in self.numbers(end - seconds, end, metrics):
            history.put_all(times, columns)
        return history

    def numbers(
        self, begin: float, end: float, metrics: frozenset[str]
    ) -> Iterator[tuple[Sequence[float], dict[tiers.Key, Sequence[float | None]]]]:
        """Times from ``begin`` to ``end``, a block at a time, and as many values of each metric of each device.

        A value is None where the device did not have it.
        """
        for block in self._between(begin, end):
            times = self._times_of(block.number)[: block.samples]
            first, last = bisect_left(times, begin), bisect_right(times, end)
            if first < last:
                columns = self._columns(block, metrics)
                yield times[first:last], {key: values[first:last] for key, values in columns.items()}

    def devices(self, begin: float, end: float) -> Iterator[tuple[float, tuple[Device, ...]]]:
        """The devices of each sample from ``begin`` to ``end`` with the readings that are words; numbers may be 0."""
        for block in self._between(begin, end):
            times = self._times_of(block.number)[: block.samples]
            rows: Iterable[tuple[Device, ...]]
            if block.number == _OPEN:
                rows = (kept.snapshot.devices for kept in self._open)
            else:
                minute = self._sealed_blocks.minute(block.number)
                if minute is None:
                    continue
                try:
                    rows = minute.devices()
                except DamagedMinute:
                    self._sealed_blocks.damage(block.number)
                    continue
            for at, devices in zip(times, rows, strict=False):
                if begin <= at <= end:
                    yield at, devices

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process in each sample from ``begin`` to ``end``; empty where it did not exist."""
        for block in self._between(begin, end):
            times = self._times_of(block.number)[: block.samples]
            rows: Iterator[tuple[Process, ...]]
            if block.number == _OPEN:
                rows = (
                    tuple(
                        row
                        for row in (*kept.snapshot.processes, *kept.snapshot.bystanders)
                        if (row.pid, row.create_time) == who
                    )
                    for kept in self._open
                )
            else:
                minute = self._sealed_blocks.minute(block.number)
                if minute is None:
                    continue
                rows = minute.process(*who)
            for at, found in zip(times, rows, strict=False):
                if begin <= at <= end:
                    yield at, found

    # Means

    def summaries(self, seconds: int, begin: float, end: float, metrics: frozenset[str]) -> tiers.Points:
        """Minimum, mean, maximum and count of metrics: ``seconds`` is 60 or 3600. Points that begin in the range."""
        block = tiers.BLOCKS[seconds]
        rows = self._rows(
            "SELECT block FROM tiers WHERE seconds = ? AND begin > ? AND begin <= ? ORDER BY begin",
            (seconds, begin - block, end),
        )
        points: tiers.Points = {}
        for (data,) in rows:
            with suppress(ValueError):  # damaged: a gap
                points.update(tiers.unpack_points(data, metrics))
        return {at: points[at] for at in sorted(points) if begin <= at <= end}

    def summaries_begin(self, seconds: int) -> float:
        """A time not later than the first of these points; infinity if there are none."""
        begin = self._rows("SELECT min(begin) FROM tiers WHERE seconds = ?", (seconds,))[0][0]
        return float(begin) if isinstance(begin, int) else float("inf")

    # GPU time

    def gpu_time(self, begin: float, end: float, progress: Callable[[float], None] = lambda share: None) -> GpuTime:
        """GPU time from ``begin`` to ``end``: of stored hours where they are whole, else of the samples.

        What was recorded twice because the clock was set back is counted twice. ``progress``: called with the share of
        the samples that was read.
        """
        hours: dict[int, GpuTime] = {}
        for at, data in self._stored_hours(begin, end) if self.schema >= 2 else ():
            with suppress(ValueError, TypeError):  # damaged: of the samples
                hours[at] = unpack_time(data)
        return merged([*hours.values(), *self._counted(begin, end, hours.keys(), progress)])

    def _stored_hours(self, begin: float, end: float) -> list[tuple[int, bytes]]:
        query = "SELECT begin, block FROM gpu_time WHERE begin >= ? AND begin + ? <= ?"
        before: object = None
        while True:
            self.refresh()
            whole = end if self.end is None or end < self.end else float("inf")
            self._rows("BEGIN")
            try:
                rows = self._rows(query, (begin, HOUR, whole))
                last = self._rows("SELECT max(id) FROM minutes")[0][0]
            finally:
                self._rows("COMMIT")
            if last == before or (self._sealed and last == self._sealed[-1][0]):
                return rows
            before = last  # a block was sealed in between, or cannot be read

    def _counted(
        self, begin: float, end: float, stored: Collection[int], progress: Callable[[float], None]
    ) -> Iterable[GpuTime]:
        """The GPU time of samples whose hour is not stored; the samples that are in no block yet always."""
        runs = {run.number: run.interval for run in self.runs}
        meter = GpuTimeMeter(max(runs.values(), default=1.0))
        wanted = []
        for _, first, last, _ in self._sealed:
            hours = range(hour_of(first), hour_of(last) + 1, HOUR)
            wanted.append(first <= end and last >= begin and not all(hour in stored for hour in hours))
        read = 0
        for place, (number, first, last, count) in enumerate(self._sealed):
            # With the block before it, whose last sample begins the first interval.
            following = wanted[place + 1] if place + 1 < len(wanted) else bool(self._open)
            if not (wanted[place] or following):
                continue
            for kept in self._samples(_Block(number, first, last, count)):
                inside = begin < kept.at <= end and hour_of(kept.at) not in stored
                meter.look(kept.snapshot, counted=wanted[place] and inside)
            read += 1
            progress(read / max(sum(wanted), 1))
        for kept in self._open:
            meter.look(kept.snapshot, counted=begin < kept.at <= end)
        return meter.taken().values()

    # What happened

    def events(self) -> Sequence[MachineEvent]:
        """The events, oldest first. The list may grow: do not change it."""
        rows = self._rows("SELECT id, event FROM events WHERE id > ? ORDER BY id", (self._last_event,))
        if rows:
            self._last_event = rows[-1][0]
            self._events += readable(_event_of, (data for _, data in rows))
        return self._events

    def findings(self, begin: float = float("-inf"), end: float = float("inf")) -> list[RecordedFinding]:
        """The findings that held at some time from ``begin`` to ``end``, the earliest onset first."""
        rows = self._rows(
            "SELECT since, until, finding FROM findings WHERE until >= ? AND since <= ? ORDER BY since", (begin, end)
        )
        found = []
        for since, until, data in rows:
            found += [RecordedFinding(since, until, one) for one in readable(_finding_of, [data])]
        return found

    def processes(self, begin: float = float("-inf"), end: float = float("inf")) -> list[ProcessLife]:
        """The processes that used a GPU at some time from ``begin`` to ``end``, one for each device."""
        rows = self._rows("SELECT life FROM processes WHERE last >= ? AND first <= ? ORDER BY first", (begin, end))
        return list(readable(_life_of, (data for (data,) in rows)))

    # Inside

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except DATABASE_ERRORS as error:
            raise unreadable(self.path, error) from error

    def _times_of(self, number: int) -> list[float]:
        return [kept.at for kept in self._open] if number == _OPEN else self._sealed_blocks.times(number)

    def _between(self, begin: float, end: float) -> Iterator[_Block]:
        first = max(bisect_right(self._begins, begin) - 1, 0)
        for block in self._blocks[first:]:
            if block.begin > end:
                return
            if block.end >= begin:
                yield block

    def _samples(self, block: _Block) -> Iterator[Kept]:
        if block.number == _OPEN:
            yield from self._open[: block.samples]
            return
        minute = self._sealed_blocks.minute(block.number)
        if minute is None:
            return
        try:
            for place, kept in enumerate(minute.all()):
                if place >= block.samples:
                    return
                yield kept
        except DamagedMinute:
            self._sealed_blocks.damage(block.number)

    def _columns(self, block: _Block, metrics: frozenset[str]) -> dict[tuple[str, str], Sequence[float | None]]:
        columns: dict[tuple[str, str], Sequence[float | None]] = {}
        if block.number == _OPEN:
            uuids = {device.uuid for kept in self._open for device in kept.snapshot.devices}
            for uuid in uuids:
                rows = [kept.snapshot.device(uuid) for kept in self._open]
                for name in metrics:
                    columns[uuid, name] = [row.number(name) if row is not None else None for row in rows]
            return columns
        minute = self._sealed_blocks.minute(block.number)
        if minute is None:
            return columns
        try:
            for uuid in minute.uuids:
                for name in metrics:
                    values = minute.numbers(uuid, name)
                    if values is not None:
                        columns[uuid, name] = values
        except DamagedMinute:
            self._sealed_blocks.damage(block.number)
        return columns


class _Times(Times):
    """Times of a recording's samples, read block by block."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __len__(self) -> int:
        return self._recording.samples

    def at(self, place: int) -> float:
        recording = self._recording
        number = bisect_right(recording._firsts, place) - 1
        return recording._times_of(recording._blocks[number].number)[place - recording._firsts[number]]

    def __iter__(self) -> Iterator[float]:
        for block in self._recording._blocks:
            yield from self._recording._times_of(block.number)[: block.samples]


_event_of = msgspec.msgpack.Decoder(MachineEvent).decode
_finding_of = msgspec.msgpack.Decoder(Finding).decode
_life_of = msgspec.msgpack.Decoder(ProcessLife).decode


def _run_of(row: tuple[Any, ...]) -> Run:
    return msgspec.convert(row, Run)


_MOVING = ("taken_at", "took_seconds", "host", "devices", "processes", "bystanders")
_LASTING = tuple(name for name in Snapshot.__struct_fields__ if name not in _MOVING)


def _settled(kept: Kept, last: Kept) -> Kept:
    """The sample with the objects of the previous one where they are equal, as feeds give them."""
    now, before = kept.snapshot, last.snapshot
    if now.devices is before.devices and now.processes is before.processes:
        return kept
    lasting = {name: getattr(before, name) for name in _LASTING if getattr(now, name) == getattr(before, name)}
    snapshot = replace(
        now,
        devices=reused(now.devices, before.devices),
        processes=reused(now.processes, before.processes),
        bystanders=reused(now.bystanders, before.bystanders),
        **lasting,
    )
    return Kept(kept.at, snapshot, last.findings if kept.findings == last.findings else kept.findings)


def open_recording(path: Path) -> Recording:
    """The recording in a file that has samples; :class:`GpuwatchError` otherwise."""
    recording = Recording(path)
    if not recording.samples:
        recording.close()
        raise no_samples(path)
    return recording


def no_samples(path: Path) -> GpuwatchError:
    """What to report of a recording without samples."""
    return GpuwatchError(f"{file_name(path)} has no samples yet", hint="wait for a second, or record longer")

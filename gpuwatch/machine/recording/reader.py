"""Reads a recording, also while it grows: samples by time, means, events, findings, processes.

Where the clock was set back, times overlap: the later recording is shown, and what it covers is left out of the times
(:attr:`Recording.hidden_samples` counts it).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, chain, islice, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.history.abstract_sample_store import LazyTimes, SampleStore, TimedDecoder
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.process_usage import ProcessLife
from gpuwatch.machine.history.sample_frames import DamagedData, FrameDecoder, StoredSample
from gpuwatch.machine.history.sample_gaps import join_spans
from gpuwatch.machine.recording import recording_defaults
from gpuwatch.machine.recording.database_cells import checksum, decompress, unpack_times, without_checksum
from gpuwatch.machine.recording.database_reader import Damage, DamagedBlock, Database
from gpuwatch.machine.recording.database_rows import (
    RecordedFinding,
    RecorderSession,
    check_entry,
    event_of,
    finding_of,
    gpu_time_of,
    life_of,
    recorded_findings,
    session_of,
)
from gpuwatch.machine.recording.gpu_time_and_energy import HOUR_SECONDS, GpuTime, hour_of
from gpuwatch.machine.recording.minute_and_hour_means import BLOCK_SECONDS, MINUTE, Points, unpack_points

_begin_of = attrgetter("begin")
_OPEN_SAMPLE_KIND = "sample of the last minute"
"""Kind, in reports of damage, of a sample that is not yet in a block."""
_ENTRY_COLUMNS = "run, begin, end, boot, samples, checksum"
_MAX_CACHED_TIMES = 256
"""Blocks whose times are kept."""
_MAX_DECODED_BLOCKS = 12
"""Blocks that are kept decompressed."""
_MAX_LOST_BLOCKS = 1000
"""Blocks that may be missing in a row; more are a damaged number."""
_LAST_MINUTE_SEARCH_SECONDS = 86_400.0
"""Seconds before a moment in which the last readings of a lost device are looked for."""
ATTACHED = "file: "
"""Prefix of the name of a note that is a whole text, such as the output of a program."""
OPEN_BLOCK = -1
"""Number of the samples that are not in a block yet."""


class Block(NamedTuple):
    """Consecutive samples that are stored together."""

    number: int
    begin: float
    end: float
    samples: int


class Recording(SampleStore):
    """A file that is open for reading.

    Used by one thread at a time. Times are seconds since the epoch. :class:`GpuwatchError` where the file cannot be
    read; what is damaged is left out and noted.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hidden_samples = 0
        """Samples left out because the clock was set back and their time was recorded again."""
        self.damage = Damage()
        """What could not be read so far."""
        self._db = Database(path, self.damage)
        self._block_frames = lru_cache(_MAX_DECODED_BLOCKS)(lambda number: decompress(self._read_block(number)))
        """A block, decompressed."""
        self._sealed_block_times = lru_cache(_MAX_CACHED_TIMES)(self._read_times)
        self._shown_blocks: list[Block] = []
        """Blocks with samples that are shown, each with the number of those that no later recording covers."""
        self._samples_before: list[int] = [0]
        """How many samples come before each block, and at the end the number of all."""
        self._sealed_blocks: list[Block] = []
        """Every block, in the order of recording."""
        self._open_samples: list[StoredSample] = []
        """The samples that are in no block yet."""
        self._decoder = FrameDecoder()
        self._last_frame = 0
        """The last of their frames that was decoded."""
        self._find_spans_once = lru_cache(1)(self._find_spans_without_gaps)
        self._events: list[MachineEvent] = []
        self._last_event_id = 0
        self._data_version: tuple[bool, int] | None = None
        self.refresh()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def refresh(self) -> bool:
        """Takes in what was recorded since; returns whether there was anything."""
        version = (self._db.salvaged, self._db.rows("PRAGMA data_version")[0][0])
        if version == self._data_version:
            return False
        if self._data_version is None or version[0] != self._data_version[0]:  # all is read again of what is left
            self._sealed_blocks, self._last_frame, self._open_samples, self._decoder = [], 0, [], FrameDecoder()
        self._data_version = version
        last = self.last_block
        with self._db.read_transaction():
            first = self._db.rows("SELECT min(id) FROM minutes")[0][0]
            entries = self._db.rows(f"SELECT id, {_ENTRY_COLUMNS} FROM minutes WHERE id > ? ORDER BY id", (last,))  # noqa: S608  # columns of ours
            if entries:  # with all that was open
                self._last_frame, self._open_samples, self._decoder = 0, [], FrameDecoder()
            frames = self._db.rows("SELECT id, frame FROM open_frames WHERE id > ? ORDER BY id", (self._last_frame,))
        if self._db.salvaged != version[0]:
            return self.refresh()
        self._add_open_samples(frames)
        sealed = self._readable_blocks(entries)
        remaining = [block for block in self._sealed_blocks if block.number >= first] if first is not None else []
        changed = len(remaining) != len(self._sealed_blocks) or bool(sealed)
        self._sealed_blocks = remaining + sealed
        if changed or not self._extend_open_block():
            self._hide_covered_samples(self.recorded_blocks())
        return True

    def _add_open_samples(self, rows: list[tuple[int, bytes]]) -> None:
        """Decodes samples that are in no block; those after a damaged one need it."""
        for number, data in rows:
            self._last_frame = number
            try:
                if _OPEN_SAMPLE_KIND not in self.damage.rows:
                    self._open_samples += map(FrameDecoder.sample, self._decoder.read(without_checksum(data)))
                    continue
                why = "an earlier one is damaged"
            except ValueError as error:
                why = str(error)
            self.damage.rows.setdefault(_OPEN_SAMPLE_KIND, {})[number] = why

    def _readable_blocks(self, entries: list[tuple[Any, ...]]) -> list[Block]:
        """The blocks of these entries; of a damaged entry, or one that is lost, as the block itself has it."""
        found: dict[int, Block] = {}
        for number, run, begin, end, boot, samples, stored_checksum in entries:
            try:
                if stored_checksum == checksum(run, begin, end, boot, samples):
                    found[number] = Block(number, begin, end, samples)
            except DamagedData:
                continue  # as the block has it
        numbers = [row[0] for row in entries]
        if not self._sealed_blocks:
            numbers += [block for block in self._db.rows("SELECT min(id), max(id) FROM data")[0] if block is not None]
        if numbers and len(found) <= max(numbers) - min(numbers):
            first = min(numbers)
            for number in range(first, min(max(numbers), first + 2 * len(entries) + _MAX_LOST_BLOCKS) + 1):
                if number not in found and (times := self._decoded_times(number)):
                    found[number] = Block(number, times[0], times[-1], len(times))
        return [found[number] for number in sorted(found)]

    def recorded_blocks(self) -> list[Block]:
        """Every block, in the order of recording, also where times came twice."""
        times = self._block_times(OPEN_BLOCK)
        open_blocks = [Block(OPEN_BLOCK, times[0], times[-1], len(times))] if times else []
        return self._sealed_blocks + open_blocks

    def _extend_open_block(self) -> bool:
        """Takes in more open samples, if they follow what is there already."""
        times = self._block_times(OPEN_BLOCK)
        if not times:
            return False
        if self._shown_blocks and self._shown_blocks[-1].number == OPEN_BLOCK:
            self._shown_blocks.pop()
            self._samples_before.pop()
        if self._shown_blocks and self._shown_blocks[-1].end >= times[0]:
            return False
        self._shown_blocks.append(Block(OPEN_BLOCK, times[0], times[-1], len(times)))
        self._samples_before.append(self._samples_before[-1] + len(times))
        return True

    def _hide_covered_samples(self, blocks: Sequence[Block]) -> None:
        """Finds the part of each block that no later one covers."""
        found: list[Block] = []
        limit = float("inf")
        self.hidden_samples = 0
        for block in reversed(blocks):
            shown = block.samples
            if block.end >= limit:
                shown = 0 if block.begin >= limit else sum(at < limit for at in self._block_times(block.number))
                self.hidden_samples += block.samples - shown
            if shown:
                found.append(block._replace(samples=shown))
            limit = min(limit, block.begin)
        self._shown_blocks = found[::-1]
        self._samples_before = list(accumulate((block.samples for block in self._shown_blocks), initial=0))

    @property
    def sessions(self) -> list[RecorderSession]:
        """The times for which a recorder ran, in their order."""
        rows = self._db.rows("SELECT id, began, ended, why, hostname, version, interval FROM runs ORDER BY id")
        return list(self.damage.readable("run", session_of, ((row[0], row) for row in rows)))

    @property
    def interval(self) -> float:
        """Seconds between samples, of the session in which they are longest; 1 if none can be read."""
        return max((session.interval for session in self.sessions), default=recording_defaults.INTERVAL_SECONDS)

    @property
    def notes(self) -> dict[str, str]:
        """Notes about the file, such as that it is a cut of another recording."""
        found = self._db.rows("SELECT name, value FROM notes")
        return {name: value for name, value in found if not name.startswith(ATTACHED)}

    @property
    def begin(self) -> float | None:
        """Time of the first sample; None if there is none."""
        return self._shown_blocks[0].begin if self._shown_blocks else None

    @property
    def end(self) -> float | None:
        """Time of the last sample; None if there is none."""
        return self.times[-1] if self._shown_blocks else None

    @property
    def times(self) -> Sequence[float]:
        """Times of all samples, oldest first; read from the file where they are asked for."""
        return LazyTimes(lambda: self.samples, self._time_at)

    @property
    def samples(self) -> int:
        """How many samples are shown."""
        return self._samples_before[-1]

    @property
    def last_block(self) -> int:
        """Number of the last block, 0 without one: once another is written, what was begun to be read is elsewhere."""
        return self._sealed_blocks[-1].number if self._sealed_blocks else 0

    def spans_without_gaps(self, min_gap_seconds: float) -> list[tuple[float, float]]:
        """Start and end of each time without a gap longer than ``min_gap_seconds``.

        Of long recordings only gaps between blocks, which take about a minute, are looked for.
        """
        return self._find_spans_once(min_gap_seconds, self.samples, self.end)

    def _find_spans_without_gaps(self, min_gap_seconds: float, *_now: object) -> list[tuple[float, float]]:
        spans: Iterable[tuple[float, float]] = ((block.begin, block.end) for block in self._shown_blocks)
        if len(self._shown_blocks) <= _MAX_CACHED_TIMES // 2:
            spans = ((at, at) for at in self._all_times())
        return join_spans(spans, lambda begin: min_gap_seconds)

    def _all_times(self) -> Iterator[float]:
        for block in self._shown_blocks:
            yield from self._block_times(block.number)[: block.samples]

    def gaps(self, min_gap_seconds: float) -> Iterator[tuple[float, float]]:
        """Start and end of each time between samples that is longer than ``min_gap_seconds``."""
        return ((before, at) for before, at in pairwise(self._all_times()) if at - before > min_gap_seconds)

    def gaps_of_blocks(self, begin: float, end: float) -> Iterator[tuple[float, float]]:
        """Start and end of each time from ``begin`` to ``end`` between blocks, or that no block has."""
        last = begin
        for block in self._blocks_between(begin, end):
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
        oldest = self._db.rows("SELECT min(begin) FROM gpu_time")[0][0]
        first = self.begin
        if isinstance(oldest, int) and oldest < hour_of(first):
            first = float(oldest)
        return first, self.end

    def at(self, moment: float) -> StoredSample | None:
        if not self._shown_blocks:
            return None
        place = max(bisect_right(self._shown_blocks, moment, key=_begin_of) - 1, 0)
        order = chain(range(place, -1, -1), range(place + 1, len(self._shown_blocks)))
        for number in order:  # the next one only where a block is damaged
            block = self._shown_blocks[number]
            times = self._block_times(block.number)[: block.samples]
            index = max(bisect_right(times, moment) - 1, 0) if number <= place else 0
            if block.number == OPEN_BLOCK:
                return self._open_samples[index]
            for decoder in islice(self.samples_of_block(block.number), index, None):
                return decoder.sample()
        return None

    def devices(self, begin: float, end: float) -> Iterator[tuple[float, tuple[Device, ...]]]:
        """Time and devices of each sample from ``begin`` to ``end``."""
        return ((at, decoder.devices()) for at, decoder in self.decoders(begin, end))

    def chunks(self, begin: float, end: float) -> Iterator[Iterable[TimedDecoder]]:
        for block in self._blocks_between(begin, end):
            times = self._block_times(block.number)[: block.samples]
            yield zip(times, self.samples_of_block(block.number), strict=False)

    def summaries(self, seconds: int, begin: float, end: float, metrics: frozenset[str]) -> Points:
        """Minimum, mean, maximum and count of metrics: ``seconds`` is 60 or 3600. Points that begin in the range."""
        block = BLOCK_SECONDS[seconds]
        rows = self._db.rows(
            "SELECT begin, block FROM tiers WHERE seconds = ? AND begin > ? AND begin <= ? ORDER BY begin",
            (seconds, begin - block, end),
        )
        points: Points = {}
        for found in self.damage.readable("mean", lambda data: unpack_points(data, metrics), rows):
            points.update(found)
        return {at: points[at] for at in sorted(points) if begin <= at <= end}

    def last_minute_with_mean(self, uuid: str, metric: str, moment: float) -> float | None:
        """Start of the last stored minute before ``moment``, within one day; None without one."""
        means = self.summaries(MINUTE, moment - _LAST_MINUTE_SEARCH_SECONDS, moment, frozenset({metric}))
        return max((float(minute) for minute, points in means.items() if (uuid, metric) in points), default=None)

    def summaries_begin(self, seconds: int) -> float:
        """A time not later than the first of these points; infinity if there are none."""
        begin = self._db.rows("SELECT min(begin) FROM tiers WHERE seconds = ?", (seconds,))[0][0]
        return float(begin) if isinstance(begin, int) else float("inf")

    def hours(self, begin: float, end: float) -> dict[int, GpuTime]:
        """The stored hours of GPU time that are wholly between two times, by their begin, without damaged ones.

        Brings the samples up to date: those after the last block are in no hour.
        """
        query = "SELECT begin, block FROM gpu_time WHERE begin >= ? AND begin + ? <= ?"
        before: object = None
        while True:
            self.refresh()
            until = end if self.end is None or end < self.end else float("inf")
            with self._db.read_transaction():
                rows = self._db.rows(query, (begin, HOUR_SECONDS, until))
                last = self._db.rows("SELECT max(id) FROM minutes")[0][0]
            if last == before or (self._sealed_blocks and last == self.last_block):
                return dict(self.damage.readable("hour of GPU time", gpu_time_of, ((row[0], row) for row in rows)))
            before = last  # a block was sealed in between, or cannot be read

    def events(self) -> Sequence[MachineEvent]:
        rows = self._db.rows("SELECT id, at, event FROM events WHERE id > ? ORDER BY id", (self._last_event_id,))
        if rows:
            self._last_event_id = rows[-1][0]
            self._events += self.damage.readable("event", event_of, ((row[0], row[1:]) for row in rows))
        return self._events

    def findings(self, begin: float = float("-inf"), end: float = float("inf")) -> list[RecordedFinding]:
        """The findings that held at some time from ``begin`` to ``end``, the earliest onset first."""
        query = "SELECT since, until, finding, cause, device, pid, since FROM findings WHERE until >= ? AND since <= ?"
        rows = self._db.rows(query, (begin, end))
        stored = self.damage.readable("finding", finding_of, ((row[3:], row[:3]) for row in rows))
        # Rows are written with each block: of samples that are in none yet, the findings are read from the samples.
        newest = recorded_findings(self._open_samples, self._db.rows)
        found = {finding.key: finding for finding in chain(stored, newest)}
        in_range = (finding for finding in found.values() if finding.until >= begin and finding.since <= end)
        return sorted(in_range, key=attrgetter("since"))

    def processes(self, begin: float = float("-inf"), end: float = float("inf")) -> list[ProcessLife]:
        """The processes that used a GPU at some time from ``begin`` to ``end``, one for each device."""
        query = "SELECT first, last, life, pid, create_time, device FROM processes WHERE last >= ? AND first <= ?"
        rows = self._db.rows(f"{query} ORDER BY first", (begin, end))
        return list(self.damage.readable("process", life_of, ((row[3:], row[:3]) for row in rows)))

    def verify(self, *, decode: bool = False) -> None:
        """Notes in :attr:`damage` what is damaged, by checksums; ``decode``: blocks and their entries are read, too."""
        for number, begin, end, samples in self._sealed_blocks:
            try:
                without_checksum(self._read_block(number))
            except DamagedData as error:
                self._note_damaged_block(number, error)
                continue
            times = self._decoded_times(number) if decode else []
            contents = (len(times), times[:1], times[-1:])
            if decode and number not in self.damage.blocks and contents != (samples, [begin], [end]):
                why = "it does not have the samples that its entry states"
                self.damage.blocks[number] = DamagedBlock(begin, end, samples, why)
        if decode:
            entries = self._db.rows(f"SELECT id, times, {_ENTRY_COLUMNS} FROM minutes")  # noqa: S608  # columns of ours
            list(self.damage.readable("entry", check_entry, ((row[0], row[1:]) for row in entries)))
        self.events()
        self.findings()
        self.processes()
        for seconds in BLOCK_SECONDS:
            self.summaries(seconds, float("-inf"), float("inf"), frozenset())
        self.hours(float("-inf"), float("inf"))

    def _block_times(self, number: int) -> list[float]:
        """Times of a block's samples; those of a damaged block are spread over its time. Empty if it was deleted."""
        if number == OPEN_BLOCK:
            return [sample.at for sample in self._open_samples]
        return self._sealed_block_times(number)

    def _read_times(self, number: int) -> list[float]:
        rows = self._db.rows("SELECT begin, end, samples, times FROM minutes WHERE id = ?", (number,))
        with suppress(DamagedData):
            if rows and (times := unpack_times(rows[0][3])):
                return times
        estimated = [
            begin + (end - begin) * at / max(samples - 1, 1) for begin, end, samples, _ in rows for at in range(samples)
        ]
        return self._decoded_times(number) or estimated

    def _time_at(self, place: int) -> float:
        number = bisect_right(self._samples_before, place) - 1
        return self._block_times(self._shown_blocks[number].number)[place - self._samples_before[number]]

    def _decoded_times(self, number: int) -> list[float]:
        return [decoder.at for decoder in self.samples_of_block(number)]

    def samples_of_block(self, number: int) -> Iterator[FrameDecoder]:
        """The samples of a block; none if it is damaged, which is noted, or was deleted because of the limits."""
        if number == OPEN_BLOCK:
            decoder = FrameDecoder()
            for _, snapshot, decoder.findings in self._open_samples:
                decoder.continue_from(snapshot)
                yield decoder
            return
        try:
            yield from FrameDecoder().read(self._block_frames(number))
        except DamagedData as error:
            self._note_damaged_block(number, error)

    def _read_block(self, number: int) -> object:
        rows = self._db.rows("SELECT block FROM data WHERE id = ?", (number,))
        return rows[0][0] if rows else None

    def _note_damaged_block(self, number: int, error: DamagedData) -> None:
        """Notes that a block cannot be read, unless it was deleted because of the limits."""
        if self._db.salvaged or self._db.rows("SELECT 1 FROM minutes WHERE id = ?", (number,)):
            entry = next((block[1:] for block in self._sealed_blocks if block.number == number), (0.0, 0.0, 0))
            self.damage.blocks[number] = DamagedBlock(*entry, str(error))

    def _blocks_between(self, begin: float, end: float) -> Iterator[Block]:
        first = max(bisect_right(self._shown_blocks, begin, key=_begin_of) - 1, 0)
        for block in self._shown_blocks[first:]:
            if block.begin > end:
                return
            if block.end >= begin:
                yield block


def open_recording(path: Path) -> Recording:
    """The recording in a file that has samples; :class:`GpuwatchError` otherwise."""
    recording = Recording(path)
    if not recording.samples:
        recording.close()
        if recording.damage:
            what = f"{printable_path(path)} is damaged: {recording.damage.text(0)}"
            raise GpuwatchError(what, hint="none of its samples can be read")
        raise no_samples(path)
    return recording


def no_samples(path: Path) -> GpuwatchError:
    """What to report of a recording without samples."""
    return GpuwatchError(f"{printable_path(path)} has no samples yet", hint="wait for a second, or record longer")

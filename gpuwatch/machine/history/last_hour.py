"""The last hour of whole snapshots, in a few megabytes.

Samples are kept as frames (:mod:`gpuwatch.machine.history.sample_frames`) in chunks of sixty; complete chunks are
compressed. Older samples are thinned out (see :data:`LEVELS`), but not those with a new finding.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.abstract_sample_store import SampleStore, TimedDecoder
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_frames import FrameDecoder, FrameEncoder, StoredSample, packed_frame
from gpuwatch.machine.history.sample_gaps import join_spans

LEVELS = ((600.0, 0.0), (1800.0, 5.0), (3600.0, 15.0))
"""Maximum age and minimum distance in seconds: all samples of ten minutes, then one in 5 s, then one in 15 s.

Samples leave a level in chunks, so some are a little older."""
THINNED_SECONDS = 1.4 * LEVELS[-1][1]
"""Seconds between kept samples that are no gap, however old they are."""
MAX_BYTES = 12 * 2**20
"""Limit above which the oldest samples are dropped early, as with many processes that start and exit every second."""
MAX_EVENTS = 1000
"""Events kept."""
_MAX_FIRST_LEVEL_SAMPLES = 600
"""Samples of the first level, however short the interval."""
CHUNK_SAMPLES = 60
"""Samples in a chunk."""


class Chunk:
    """Consecutive samples in memory, as frames. The first is a key frame: each chunk is read by itself."""

    __slots__ = ("_encoder", "_frames", "size", "times")

    SAMPLE_OVERHEAD_BYTES = 100
    """Bytes of Python's overhead for one sample."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.size = 0
        """Bytes."""
        self._frames: list[bytes] = []
        self._encoder = FrameEncoder()

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...]) -> None:
        frames = self._encoder.frames(snapshot, findings)
        self._frames.append(frames)
        self.size += len(frames) + self.SAMPLE_OVERHEAD_BYTES
        self.times.append(snapshot.taken_at.timestamp())

    def close(self) -> None:
        """Compresses the chunk: it is complete."""
        self._frames = [packed_frame(b"".join(self._frames))]
        self._encoder = FrameEncoder()
        self.size = len(self._frames[0]) + self.SAMPLE_OVERHEAD_BYTES * len(self.times)

    def read(self) -> Iterator[FrameDecoder]:
        """A decoder after each sample, to be read before the next one is asked for."""
        return FrameDecoder().read(b"".join(self._frames))


class LastHour(SampleStore):
    """Snapshots of the last hour, and events. One thread writes and reads it."""

    thinned_spacing_seconds = THINNED_SECONDS

    def __init__(self) -> None:
        self._levels: tuple[deque[Chunk], ...] = tuple(deque() for _ in LEVELS)
        self._finding_keys: list[frozenset[object]] = [frozenset()] * len(LEVELS)
        """What was found in the last sample that came to each level, also if it was not kept there."""
        self._findings: tuple[Finding, ...] = ()
        self._events: deque[MachineEvent] = deque(maxlen=MAX_EVENTS)

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...] | None = None) -> None:
        """Appends a sample; ``findings`` None: unchanged."""
        if findings is not None:
            self._findings = findings
        self._append(0, snapshot, self._findings)
        self._thin(snapshot.taken_at.timestamp())

    def add_events(self, events: Iterable[MachineEvent]) -> None:
        self._events.extend(events)

    def _append(self, level: int, snapshot: Snapshot, findings: tuple[Finding, ...]) -> None:
        chunks = self._levels[level]
        if not chunks or len(chunks[-1].times) >= CHUNK_SAMPLES:
            if chunks:
                chunks[-1].close()
            chunks.append(Chunk())
        chunks[-1].add(snapshot, findings)

    def _thin(self, now: float) -> None:
        for level, (span, _) in enumerate(LEVELS):
            chunks = self._levels[level]
            while chunks and (
                now - chunks[0].times[-1] > span
                or (level == 0 and len(chunks) > 1 and (len(chunks) - 1) * CHUNK_SAMPLES >= _MAX_FIRST_LEVEL_SAMPLES)
            ):
                old = chunks.popleft()
                if level + 1 < len(LEVELS):
                    self._move_to_level(old, level + 1)
        while self.size_bytes > MAX_BYTES and sum(map(len, self._levels)) > 1:
            next(chunks for chunks in reversed(self._levels) if chunks).popleft()

    def _move_to_level(self, old: Chunk, level: int) -> None:
        spacing = LEVELS[level][1]
        chunks = self._levels[level]
        last = chunks[-1].times[-1] if chunks else -1.0
        for at, decoder in zip(old.times, old.read(), strict=True):
            earlier_keys = self._finding_keys[level]
            keys = frozenset(finding.key for finding in decoder.findings)
            self._finding_keys[level] = keys
            # After a hang, that sample alone tells of it.
            if at // spacing > last // spacing or not keys <= earlier_keys:
                self._append(level, decoder.snapshot(), decoder.findings)
                last = at

    @property
    def size_bytes(self) -> int:
        return sum(chunk.size for chunks in self._levels for chunk in chunks)

    @property
    def times(self) -> list[float]:
        """Times of the samples, in seconds since the epoch, oldest first."""
        return [at for chunk in self._all_chunks() for at in chunk.times]

    def _all_chunks(self) -> Iterator[Chunk]:
        for chunks in reversed(self._levels):
            yield from chunks

    def spans_without_gaps(self, min_gap_seconds: float) -> list[tuple[float, float]]:
        """Start and end of each time without a gap; thinned samples are further apart than recorded ones."""
        times = self.times

        def max_gap(at: float) -> float:
            spacing = next((spacing for age, spacing in LEVELS if times[-1] - at <= age), LEVELS[-1][1])
            return max(min_gap_seconds, 1.4 * spacing)

        return join_spans(((at, at) for at in times), max_gap)

    def at(self, moment: float) -> StoredSample | None:
        chunk_of_moment: Chunk | None = None
        for chunk in self._all_chunks():
            if chunk_of_moment is None or chunk.times[0] <= moment:
                chunk_of_moment = chunk
        if chunk_of_moment is None:
            return None
        index = max(bisect_right(chunk_of_moment.times, moment) - 1, 0)
        return next(islice(chunk_of_moment.read(), index, None)).sample()

    def chunks(self, begin: float, end: float) -> Iterator[Iterable[TimedDecoder]]:
        for chunk in list(self._all_chunks()):
            if chunk.times[0] <= end and chunk.times[-1] >= begin:
                yield zip(chunk.times, chunk.read(), strict=True)

    def events(self) -> Sequence[MachineEvent]:
        return self._events

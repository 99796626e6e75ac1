"""The last hour of whole snapshots in a few megabytes, so that the past can be looked at unasked.

Samples are kept as frames (:mod:`gpuwatch.history.frames`), sixty of which begin with a key frame and come and go
together: the newest as they came, the others compressed. The older, the fewer: see :data:`LEVELS`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise

import msgspec

from gpuwatch.history.frames import FINDINGS, FrameDecoder, FrameEncoder, encoded, framed, packed, split
from gpuwatch.history.machine_event import MachineEvent
from gpuwatch.history.metric_series import History
from gpuwatch.history.sample_store import Identity, Kept
from gpuwatch.model.findings import Finding
from gpuwatch.model.reading import number
from gpuwatch.model.snapshot import Device, Process, Snapshot

LEVELS = ((600.0, 0.0), (1800.0, 5.0), (3600.0, 15.0))
"""Up to which age in seconds samples are kept how far apart: all of ten minutes, then one in 5 s, one in 15 s.

Samples leave a level sixty at a time, so that some are a little older."""
MOST_BYTES = 12 * 2**20
"""Above this the oldest go early: only many processes that come and go every second need it."""
EVENTS = 1000
"""Events that are kept; the oldest go."""
_MOST_AT_ONCE = 600
"""Samples of the first level, however short the interval."""
CHUNK = 60
"""Samples that come and go together."""
_PER_SAMPLE = 100
"""Bytes that Python itself takes for one sample."""
_of_findings = msgspec.msgpack.Decoder(tuple[Finding, ...]).decode


class Chunk:
    """Some samples one after another, the first one in a key frame."""

    __slots__ = ("_encoder", "_findings", "_frames", "size", "times")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.size = 0
        """Bytes."""
        self._encoder = FrameEncoder()
        self._findings: tuple[Finding, ...] | None = None
        self._frames: list[bytes] = []

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...]) -> None:
        """One more sample, later than the others."""
        if findings is not self._findings and findings != self._findings:
            self._frames.append(framed(FINDINGS, encoded(findings)))
            self.size += len(self._frames[-1])
        self._findings = findings
        self._frames.append(self._encoder.frame(snapshot))
        self.size += len(self._frames[-1]) + _PER_SAMPLE
        self.times.append(snapshot.taken_at.timestamp())

    def close(self) -> None:
        """No more samples come."""
        self._frames = [packed(b"".join(self._frames))]
        self._encoder, self._findings = FrameEncoder(), None
        self.size = len(self._frames[0]) + _PER_SAMPLE * len(self.times)

    def read(self) -> Iterator[tuple[FrameDecoder, bytes]]:
        """A decoder that stands at one sample after the other, oldest first, and the findings of then."""
        decoder, findings = FrameDecoder(), b""
        for kind, body in split(b"".join(self._frames)):
            if kind == FINDINGS:
                findings = body
            else:
                decoder.take(kind, body)
                yield decoder, findings


class Timeline:
    """Snapshots of the last hour, and events; a :class:`~gpuwatch.history.sample_store.SampleStore`.

    One thread writes and reads it.
    """

    def __init__(self) -> None:
        self._levels: tuple[deque[Chunk], ...] = tuple(deque() for _ in LEVELS)
        self._findings: tuple[Finding, ...] = ()
        self._events: deque[MachineEvent] = deque(maxlen=EVENTS)

    # Keeping

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...] | None = None) -> None:
        """One more sample, later than all before; ``findings`` None: those of the sample before still hold."""
        if findings is not None:
            self._findings = findings
        self._put(0, snapshot, self._findings)
        self._thin(snapshot.taken_at.timestamp())

    def add_events(self, events: Iterable[MachineEvent]) -> None:
        """What happened, later than all before."""
        self._events.extend(events)

    def _put(self, level: int, snapshot: Snapshot, findings: tuple[Finding, ...]) -> None:
        chunks = self._levels[level]
        if not chunks or len(chunks[-1].times) >= CHUNK:
            if chunks:
                chunks[-1].close()
            chunks.append(Chunk())
        chunks[-1].add(snapshot, findings)

    def _thin(self, now: float) -> None:
        for level, (span, _) in enumerate(LEVELS):
            chunks = self._levels[level]
            while chunks and (
                now - chunks[0].times[-1] > span
                or (level == 0 and len(chunks) > 1 and (len(chunks) - 1) * CHUNK >= _MOST_AT_ONCE)
            ):
                old = chunks.popleft()
                if level + 1 < len(LEVELS):
                    self._pass_on(old, level + 1)
        while self.size_bytes > MOST_BYTES and sum(map(len, self._levels)) > 1:
            next(chunks for chunks in reversed(self._levels) if chunks).popleft()

    def _pass_on(self, old: Chunk, level: int) -> None:
        apart = LEVELS[level][1]
        there = self._levels[level]
        last = there[-1].times[-1] if there else -1.0
        for at, (decoder, findings) in zip(old.times, old.read(), strict=True):
            if at // apart > last // apart:
                self._put(level, decoder.snapshot(), _of_findings(findings))
                last = at

    # What there is

    @property
    def size_bytes(self) -> int:
        """What the samples take."""
        return sum(chunk.size for chunks in self._levels for chunk in chunks)

    @property
    def times(self) -> list[float]:
        """Seconds since the epoch of the samples, oldest first."""
        return [at for chunk in self._chunks() for at in chunk.times]

    def _chunks(self) -> Iterator[Chunk]:
        for chunks in reversed(self._levels):
            yield from chunks

    # Looking back

    def at(self, moment: float) -> Kept | None:
        """The last sample not later than ``moment``, the first one where all are later; None without any."""
        chosen: Chunk | None = None
        for chunk in self._chunks():
            if chosen is None or chunk.times[0] <= moment:
                chosen = chunk
        if chosen is None:
            return None
        place = max(bisect_right(chosen.times, moment) - 1, 0)
        decoder, findings = next(islice(chosen.read(), place, None))
        return Kept(chosen.times[place], decoder.snapshot(), _of_findings(findings))

    def _between(self, begin: float, end: float) -> Iterator[tuple[float, FrameDecoder]]:
        chunks = list(self._chunks())
        for chunk, following in pairwise([*chunks, None]):
            assert chunk is not None
            if chunk.times[0] > end or (following is not None and following.times[0] <= begin):
                continue
            for at, (decoder, _) in zip(chunk.times, chunk.read(), strict=True):
                if begin <= at <= end:
                    yield at, decoder

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """What the ring would have held at ``end``, of these metrics only."""
        history = History()
        listed: tuple[Device, ...] | None = None
        values: dict[tuple[str, str], float] = {}
        for at, decoder in self._between(end - seconds, end):
            devices = decoder.devices()
            if devices is not listed:
                listed = devices
                read = ((one.uuid, name, number(one.readings.get(name))) for one in devices for name in metrics)
                values = {(uuid, name): value for uuid, name, value in read if value is not None}
            history.put(at, values)
        return history

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process at each sample from ``begin`` to ``end``; none where it was not there."""
        for at, decoder in self._between(begin, end):
            yield at, decoder.rows_of(*who)

    def events(self) -> Sequence[MachineEvent]:
        """What happened, oldest first: the list itself, which goes on growing."""
        return self._events

"""The last hour of whole snapshots in a few megabytes, so that the past can be looked at unasked.

What a row says apart from its readings hardly ever changes and is kept once. Readings become two
arrays of numbers, of which only the difference to the sample before is kept, compressed. The older,
the fewer: see :data:`LEVELS`. Numbers with a fraction keep seven digits, which is more than is shown.
"""

from __future__ import annotations

import datetime
import zlib
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from gpuwatch.history.ring import History
from gpuwatch.model.findings import Finding
from gpuwatch.model.reading import Value
from gpuwatch.model.snapshot import Device, Host, Process, Snapshot

LEVELS = ((600.0, 0.0), (1800.0, 5.0), (3600.0, 15.0))
"""Up to which age in seconds samples are kept how far apart: all of ten minutes, then one in 5 s, one in 15 s.

Samples leave a level sixty at a time, so that some are a little older."""
MOST_BYTES = 12 * 2**20
"""Above this the oldest go early: only many processes that come and go every second need it."""
_MOST_AT_ONCE = 600
"""Samples of the first level, however short the interval."""
_CHUNK = 60
_PER_SAMPLE = 400
"""Bytes that Python itself takes for one sample."""
_SINCE = "run_seconds"
_WORKERS = "workers:"
"""A number of a process that is no reading of it."""
_PRECISE = ("_seconds", "_joules")
"""Ends of the ids of counters that seven digits would cut."""

_encode = msgspec.msgpack.Encoder().encode
_of_device = msgspec.msgpack.Decoder(Device).decode
_of_process = msgspec.msgpack.Decoder(Process).decode
_of_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
_of_findings = msgspec.msgpack.Decoder(tuple[Finding, ...]).decode

_NO_TIME = datetime.datetime.fromtimestamp(0, datetime.UTC)
_NO_HOST = Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None)

Identity = tuple[int, float | None]
"""Pid and start time of a process."""


def _bytes_of(what: object) -> bytes:
    try:
        return _encode(what)
    except UnicodeEncodeError:  # half a character, out of a name that is no UTF-8
        return _encode(_clean(msgspec.to_builtins(what)))


def _clean(what: object) -> object:
    if isinstance(what, str):
        return what.encode("utf-8", "replace").decode()
    if isinstance(what, dict):
        return {name: _clean(value) for name, value in what.items()}
    return [_clean(one) for one in what] if isinstance(what, (list, tuple)) else what


class Kept(NamedTuple):
    """The machine at one moment."""

    at: float
    """Seconds since the epoch."""
    snapshot: Snapshot
    findings: tuple[Finding, ...]


class _Own(msgspec.Struct, array_like=True):
    """What is different in every sample."""

    at: float
    took: float
    host: Host


_of_own = msgspec.msgpack.Decoder(_Own).decode


class _Shape:
    """A row without its numbers: everything else it says, and which numbers it has."""

    __slots__ = ("__weakref__", "codes", "names", "plain", "who")

    def __init__(self, plain: bytes, names: tuple[str, ...], codes: str, who: Identity | str) -> None:
        self.plain = plain
        self.names = names
        """Ids of readings; those of a device's MIG instance begin with its place and a colon."""
        self.codes = codes
        """``i`` whole, ``f`` with a fraction, ``d`` the same precisely, ``s`` a name, ``r`` since its start."""
        self.who = who
        """UUID of a device, identity of a process."""

    def since(self, at: float) -> float | None:
        """How long a process had run at a moment, by the clock."""
        return at - self.who[1] if isinstance(self.who, tuple) and self.who[1] is not None else None


class _Layout:
    """Where the numbers of each row stand; one for all samples with the same rows."""

    __slots__ = ("devices", "frame", "processes", "shapes", "starts")

    def __init__(self, frame: bytes, shapes: tuple[_Shape, ...], devices: int, processes: int) -> None:
        self.frame = frame
        self.shapes = shapes
        self.devices = devices
        self.processes = processes
        wholes = accumulate((sum(code in "is" for code in shape.codes) for shape in shapes), initial=0)
        singles = accumulate((sum(code in "fr" for code in shape.codes) for shape in shapes), initial=0)
        doubles = accumulate((shape.codes.count("d") for shape in shapes), initial=0)
        self.starts = tuple(zip(wholes, singles, doubles, strict=True))
        """Of each row among the whole numbers, the short and the long fractions; one more tells the sizes."""

    def numbers(self, metrics: frozenset[str]) -> list[tuple[tuple[str, str], str, int]]:
        """UUID and metric, kind of number and its place, of these metrics of the devices."""
        found = []
        for shape, (whole, single, double) in zip(self.shapes[: self.devices], self.starts, strict=False):
            places = {"i": whole, "s": whole, "f": single, "r": single, "d": double}
            for name, code in zip(shape.names, shape.codes, strict=True):
                if name in metrics and code in "ifd":
                    found.append(((str(shape.who), name), code, places[code]))
                for same in "is" if code in "is" else "fr" if code in "fr" else "d":
                    places[same] += 1
        return found


def _counts(layout: _Layout) -> tuple[int, int]:
    return layout.devices, layout.processes


class _Sample:
    __slots__ = ("at", "findings", "layout", "own", "packed")

    def __init__(self, at: float, own: bytes, layout: _Layout, findings: bytes, packed: bytes) -> None:
        self.at = at
        self.own = own
        self.layout = layout
        self.findings = findings
        self.packed = packed


class _Numbers:
    """The readings of one sample."""

    __slots__ = ("doubles", "layout", "singles", "wholes")

    def __init__(self, layout: _Layout, raw: bytes) -> None:
        wholes, singles, doubles = layout.starts[-1]
        self.layout = layout
        self.wholes = array("q", raw[: 8 * wholes])
        self.doubles = array("d", raw[8 * wholes : 8 * (wholes + doubles)])
        self.singles = array("f", raw[8 * (wholes + doubles) :])
        assert len(self.singles) == singles

    def row(self, place: int, words: Sequence[str], since: float | None = None) -> dict[str, Value]:
        """Readings of the row at a place; ``since`` is how long its process has run by the clock."""
        shape = self.layout.shapes[place]
        whole, single, double = self.layout.starts[place]
        found: dict[str, Value] = {}
        for name, code in zip(shape.names, shape.codes, strict=True):
            value: Value
            if code == "i":
                value, whole = self.wholes[whole], whole + 1
            elif code == "s":
                value, whole = words[self.wholes[whole]], whole + 1
            elif code == "d":
                value, double = self.doubles[double], double + 1
            else:
                value, single = self.singles[single], single + 1
                # Seven digits are what there is: 43.2, not 43.20000076.
                value = float(f"{value:.7g}")
                if code == "r" and since is not None:
                    value = max(since + value, 0.0)
            found[name] = value
        return found


def _spread(raw: bytes, eights: int) -> bytes:
    """Bytes of the same weight beside each other: those that do not change then make long runs."""
    longs, shorts = raw[:eights], raw[eights:]
    return b"".join([*(longs[n::8] for n in range(8)), *(shorts[n::4] for n in range(4))])


def _gathered(spread: bytes, eights: int) -> bytes:
    raw = bytearray(len(spread))
    many, few = eights // 8, (len(spread) - eights) // 4
    for n in range(8):
        raw[n:eights:8] = spread[n * many : (n + 1) * many]
    for n in range(4):
        begin = eights + n * few
        raw[eights + n :: 4] = spread[begin : begin + few]
    return bytes(raw)


def _difference(a: bytes, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


@lru_cache(maxsize=8)
def _no_difference(size: int) -> bytes:
    return zlib.compress(bytes(size), 1)


class _Chunk:
    """Some samples one after another. Each is packed as what differs from the one before, the first whole."""

    __slots__ = ("_last", "samples", "size")

    def __init__(self) -> None:
        self.samples: list[_Sample] = []
        self.size = 0
        self._last = b""

    def add(self, at: float, own: bytes, layout: _Layout, findings: bytes, raw: bytes) -> None:
        """``raw`` are the numbers of the sample, in the order of its layout."""
        before = self.samples[-1].layout if self.samples else None
        if before is layout and raw == self._last:
            packed = _no_difference(len(raw))
        else:
            change = _difference(raw, self._last) if before is layout else raw
            wholes, _, doubles = layout.starts[-1]
            packed = zlib.compress(_spread(change, 8 * (wholes + doubles)), 1)
        self.samples.append(_Sample(at, own, layout, findings, packed))
        self.size += len(packed) + len(own) + _PER_SAMPLE
        self._last = raw

    def close(self) -> None:
        """No more samples come."""
        self._last = b""

    def read(self) -> Iterator[tuple[_Sample, bytes]]:
        """Every sample with its numbers, oldest first."""
        before: _Sample | None = None
        raw = b""
        for sample in self.samples:
            wholes, _, doubles = sample.layout.starts[-1]
            change = _gathered(zlib.decompress(sample.packed), 8 * (wholes + doubles))
            raw = _difference(change, raw) if before is not None and before.layout is sample.layout else change
            before = sample
            yield sample, raw


def _device(plain: bytes, readings: dict[str, Value]) -> Device:
    device = _of_device(plain)
    if not device.mig_instances:
        return msgspec.structs.replace(device, readings=readings)
    own = {name: value for name, value in readings.items() if ":" not in name}
    parts = [dict[str, Value]() for _ in device.mig_instances]
    for name, value in readings.items():
        place, colon, reading = name.partition(":")
        if colon:
            parts[int(place)][reading] = value
    instances = tuple(
        msgspec.structs.replace(one, readings=part) for one, part in zip(device.mig_instances, parts, strict=True)
    )
    return msgspec.structs.replace(device, readings=own, mig_instances=instances)


def _process(plain: bytes, readings: dict[str, Value]) -> Process:
    workers = readings.pop(_WORKERS, None)
    percent = float(workers) if isinstance(workers, (int, float)) else None
    return msgspec.structs.replace(_of_process(plain), readings=readings, workers_cpu_percent=percent)


class Timeline:
    """Snapshots of the last hour. One thread writes and reads it."""

    def __init__(self) -> None:
        self._levels: tuple[deque[_Chunk], ...] = tuple(deque() for _ in LEVELS)
        self._shapes: WeakValueDictionary[tuple[bytes, tuple[str, ...], str], _Shape] = WeakValueDictionary()
        self._layout: _Layout | None = None
        self._raw = b""
        """The numbers of the last sample."""
        self._findings = _encode(())
        self._names: dict[str, int] = {}
        self._words: list[str] = []

    # Keeping

    def add(self, snapshot: Snapshot, findings: tuple[Finding, ...] | None = None, *, same: bool = False) -> None:
        """One more sample, later than all before; ``findings`` None: those of the sample before still hold.

        ``same``: but for its moment, run times and the host it is the sample before.
        """
        at = snapshot.taken_at.timestamp()
        if findings is not None:
            encoded = _bytes_of(findings)
            if encoded != self._findings:
                self._findings = encoded
        if not same or self._layout is None:
            self._take(snapshot, at)
        assert self._layout is not None
        own = _encode(_Own(at, snapshot.took_seconds, snapshot.host))
        self._put(0, at, own, self._layout, self._findings, self._raw)
        self._thin(at)

    def _take(self, snapshot: Snapshot, at: float) -> None:
        rows: tuple[Device | Process, ...] = (*snapshot.devices, *snapshot.processes, *snapshot.bystanders)
        frame = _bytes_of(
            msgspec.structs.replace(
                snapshot, devices=(), processes=(), bystanders=(), host=_NO_HOST, took_seconds=0.0, taken_at=_NO_TIME
            )
        )
        wholes: array[int] = array("q")
        singles: array[float] = array("f")
        doubles: array[float] = array("d")
        shapes = tuple([self._shape(row, at, wholes, singles, doubles) for row in rows])
        layout, counts = self._layout, (len(snapshot.devices), len(snapshot.processes))
        if layout is None or layout.shapes != shapes or layout.frame != frame or _counts(layout) != counts:
            self._layout = _Layout(frame, shapes, *counts)
        self._raw = wholes.tobytes() + doubles.tobytes() + singles.tobytes()

    def _shape(
        self, row: Device | Process, at: float, wholes: array[int], singles: array[float], doubles: array[float]
    ) -> _Shape:
        codes = []
        readings = row.readings
        began: float | None = None
        who: Identity | str
        changes: dict[str, object] = {"readings": {}}
        if isinstance(row, Process):
            began, who = row.create_time, (row.pid, row.create_time)
            if row.workers_cpu_percent is not None:
                readings = {**readings, _WORKERS: row.workers_cpu_percent}
                changes["workers_cpu_percent"] = None
        else:
            who = row.uuid
            if row.mig_instances:
                readings = dict(readings)
                for place, one in enumerate(row.mig_instances):
                    readings |= {f"{place}:{name}": value for name, value in one.readings.items()}
                changes["mig_instances"] = tuple(msgspec.structs.replace(one, readings={}) for one in row.mig_instances)
        for name, value in readings.items():
            if isinstance(value, str):
                codes.append("s")
                wholes.append(self._word(value))
            elif name == _SINCE and began is not None:
                codes.append("r")
                singles.append(round(value - (at - began), 1))
            elif isinstance(value, int) and -(2**63) <= value < 2**63:
                codes.append("i")
                wholes.append(value)
            elif isinstance(value, int) or name.endswith(_PRECISE):
                codes.append("d")
                doubles.append(float(value))
            else:
                codes.append("f")
                singles.append(value)
        plain = _bytes_of(msgspec.structs.replace(row, **changes))
        key = (plain, tuple(readings), "".join(codes))
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(*key, who)
        return shape

    def _word(self, text: str) -> int:
        place = self._names.get(text)
        if place is None:
            place = self._names[text] = len(self._words)
            self._words.append(text)
        return place

    def _put(self, level: int, at: float, own: bytes, layout: _Layout, findings: bytes, raw: bytes) -> None:
        chunks = self._levels[level]
        if not chunks or len(chunks[-1].samples) >= _CHUNK:
            if chunks:
                chunks[-1].close()
            chunks.append(_Chunk())
        chunks[-1].add(at, own, layout, findings, raw)

    def _thin(self, now: float) -> None:
        for level, (span, _) in enumerate(LEVELS):
            chunks = self._levels[level]
            while chunks and (
                now - chunks[0].samples[-1].at > span
                or (level == 0 and len(chunks) > 1 and (len(chunks) - 1) * _CHUNK >= _MOST_AT_ONCE)
            ):
                old = chunks.popleft()
                if level + 1 < len(LEVELS):
                    self._pass_on(old, level + 1)
        while self.size_bytes > MOST_BYTES and sum(map(len, self._levels)) > 1:
            next(chunks for chunks in reversed(self._levels) if chunks).popleft()

    def _pass_on(self, old: _Chunk, level: int) -> None:
        apart = LEVELS[level][1]
        there = self._levels[level]
        last = there[-1].samples[-1].at if there else -1.0
        for sample, raw in old.read():
            if sample.at // apart > last // apart:
                self._put(level, sample.at, sample.own, sample.layout, sample.findings, raw)
                last = sample.at

    # What there is

    @property
    def size_bytes(self) -> int:
        """What the samples take, shared rows apart."""
        return sum(chunk.size for chunks in self._levels for chunk in chunks)

    @property
    def times(self) -> list[float]:
        """Seconds since the epoch of the samples, oldest first."""
        return [sample.at for chunk in self._chunks() for sample in chunk.samples]

    def _chunks(self) -> Iterator[_Chunk]:
        for chunks in reversed(self._levels):
            yield from chunks

    # Looking back

    def at(self, moment: float) -> Kept | None:
        """The last sample not later than ``moment``, the first one where all are later; None without any."""
        chosen: _Chunk | None = None
        for chunk in self._chunks():
            if chosen is None or chunk.samples[0].at <= moment:
                chosen = chunk
        if chosen is None:
            return None
        place = max(bisect_right([sample.at for sample in chosen.samples], moment) - 1, 0)
        for number, (sample, raw) in enumerate(chosen.read()):
            if number == place:
                return self._whole(sample, raw)
        raise AssertionError("unreachable")

    def _whole(self, sample: _Sample, raw: bytes) -> Kept:
        layout, own = sample.layout, _of_own(sample.own)
        numbers = _Numbers(layout, raw)
        rows = [numbers.row(place, self._words, shape.since(sample.at)) for place, shape in enumerate(layout.shapes)]
        devices = tuple(
            _device(shape.plain, readings)
            for shape, readings in zip(layout.shapes[: layout.devices], rows, strict=False)
        )
        processes = [
            _process(shape.plain, readings)
            for shape, readings in zip(layout.shapes[layout.devices :], rows[layout.devices :], strict=True)
        ]
        frame = _of_snapshot(layout.frame)
        snapshot = msgspec.structs.replace(
            frame,
            taken_at=datetime.datetime.fromtimestamp(sample.at, datetime.UTC),
            took_seconds=own.took,
            host=own.host,
            devices=devices,
            processes=tuple(processes[: layout.processes]),
            bystanders=tuple(processes[layout.processes :]),
        )
        return Kept(sample.at, snapshot, _of_findings(sample.findings))

    def _between(self, begin: float, end: float) -> Iterator[tuple[_Sample, bytes]]:
        chunks = list(self._chunks())
        for chunk, following in pairwise([*chunks, None]):
            assert chunk is not None
            if chunk.samples[0].at > end or (following is not None and following.samples[0].at <= begin):
                continue
            for sample, raw in chunk.read():
                if begin <= sample.at <= end:
                    yield sample, raw

    def history(self, end: float, seconds: float, metrics: frozenset[str]) -> History:
        """What the ring would have held at ``end``, of these metrics only."""
        history = History()
        layout: _Layout | None = None
        places: list[tuple[tuple[str, str], str, int]] = []
        for sample, raw in self._between(end - seconds, end):
            if sample.layout is not layout:
                layout = sample.layout
                places = layout.numbers(metrics)
            numbers = _Numbers(sample.layout, raw)
            arrays: dict[str, array[int] | array[float]] = {
                "i": numbers.wholes,
                "d": numbers.doubles,
                "f": numbers.singles,
            }
            history.put(sample.at, {key: float(arrays[code][place]) for key, code, place in places})
        return history

    def process(self, who: Identity, begin: float, end: float) -> Iterator[tuple[float, tuple[Process, ...]]]:
        """The rows of one process at each sample from ``begin`` to ``end``; none where it was not there."""
        layout: _Layout | None = None
        places: list[tuple[int, _Shape]] = []
        for sample, raw in self._between(begin, end):
            if sample.layout is not layout:
                layout = sample.layout
                listed = layout.shapes[: layout.devices + layout.processes]
                places = [(place, shape) for place, shape in enumerate(listed) if shape.who == who]
            numbers = _Numbers(sample.layout, raw) if places else None
            rows = []
            for place, shape in places:
                assert numbers is not None
                readings = numbers.row(place, self._words, shape.since(sample.at))
                rows.append(_process(shape.plain, readings))
            yield sample.at, tuple(rows)

"""A minute of samples as one block of bytes, by column, and any of them back.

A block has two parts. The frames (:mod:`gpuwatch.history.frames`) have the samples with every number replaced by 0, so
that a sample in which only numbers changed is a few bytes. The columns (:mod:`gpuwatch.recording.columns`) have the
numbers: of each row, a device or a process or a MIG instance, one column for each reading, as long as the block has
samples; where a row did not exist, its last value is repeated, and nobody reads it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch.history.frames import (
    FINDINGS,
    MOST_PACKED,
    DamagedFrame,
    FrameDecoder,
    FrameEncoder,
    encoded,
    framed,
    split,
)
from gpuwatch.history.sample_store import Kept
from gpuwatch.model.findings import Finding
from gpuwatch.model.reading import Value
from gpuwatch.model.snapshot import Device, Host, MigInstance, Process, Snapshot
from gpuwatch.recording.columns import Column, DamagedColumn, pack, unpack
from gpuwatch.recording.compression import DamagedData, compressed, decompressed

_Row = Device | Process | MigInstance
_R = TypeVar("_R", Device, Process, MigInstance)
_Key = tuple[Any, ...]
"""What names a row in every sample of a block."""

_SAMPLE: _Key = ("sample",)
_TAKEN, _TOOK, _WORKERS = "@taken", "@took", "@workers"
_HOST = tuple(name for name in Host.__struct_fields__ if name not in ("hostname", "cpu_count", "container", "load"))
"""The host's numbers."""
_LOAD = ("@load.1", "@load.5", "@load.15")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)

_of_device = attrgetter(*(one for one in Device.__struct_fields__ if one not in ("readings", "mig_instances")))
_of_instance = attrgetter(*(one for one in MigInstance.__struct_fields__ if one != "readings"))
_of_process = attrgetter(*(one for one in Process.__struct_fields__ if one not in ("readings", "workers_cpu_percent")))
_of_findings = msgspec.msgpack.Decoder(tuple[Finding, ...]).decode


class DamagedMinute(ValueError):
    """A block that cannot be read."""


class _Block(msgspec.Struct, array_like=True):
    samples: int
    frames: bytes
    rows: list[list[Any]]
    """The key of each row."""
    columns: dict[str, dict[int, Column]]
    """By name of the reading and number of the row."""


_block_of = msgspec.msgpack.Decoder(_Block).decode


# Writing


def pack_minute(samples: Sequence[tuple[Snapshot, tuple[Finding, ...]]]) -> bytes:
    """The block of these samples, at least one, in their order."""
    return _Packer(len(samples)).packed(samples)


class _Track:
    """A row over the samples of a block."""

    __slots__ = ("dicts", "outline", "places", "row", "workers")

    def __init__(self) -> None:
        self.row: _Row | None = None
        self.outline: _Row | None = None
        """The row of the last sample without its numbers."""
        self.places: list[int] = []
        self.dicts: list[dict[str, Value]] = []
        self.workers: list[float | None] = []


class _Packer:
    def __init__(self, count: int) -> None:
        self._count = count
        self._tracks: dict[_Key, _Track] = {}
        self._place = 0
        self._used: dict[_Key, int] = {}

    def packed(self, samples: Sequence[tuple[Snapshot, tuple[Finding, ...]]]) -> bytes:
        encoder, frames = FrameEncoder(), list[bytes]()
        found: tuple[Finding, ...] | None = None
        before: Snapshot | None = None
        own = self._tracks[_SAMPLE] = _Track()
        for self._place, (snapshot, findings) in enumerate(samples):
            self._used.clear()
            own.places.append(self._place)
            own.dicts.append(_numbers_of_sample(snapshot))
            outline = replace(
                snapshot,
                taken_at=_EPOCH,
                took_seconds=0.0,
                host=_outline_of_host(snapshot.host),
                devices=self._rows(snapshot.devices, before.devices if before else (), self._device),
                processes=self._rows(snapshot.processes, before.processes if before else (), self._process),
                bystanders=self._rows(snapshot.bystanders, before.bystanders if before else (), self._bystander),
            )
            before = outline
            if findings is not found and findings != found:
                frames.append(framed(FINDINGS, encoded(findings)))
            found = findings
            frames.append(encoder.frame(outline))
        rows = [list(key) for key in self._tracks]
        columns: dict[str, dict[int, Column]] = {}
        for number, track in enumerate(self._tracks.values()):
            for name, values in self._columns(track):
                columns.setdefault(name, {})[number] = pack(values)
        block = _Block(self._count, b"".join(frames), rows, columns)
        return compressed(encoded(block))

    def _rows(self, rows: tuple[_R, ...], before: tuple[_R, ...], outline: Callable[[_R], _R]) -> tuple[_R, ...]:
        now = tuple([outline(row) for row in rows])
        return before if len(now) == len(before) and all(map(_same, now, before)) else now

    def _device(self, row: Device) -> Device:
        return self._outline(("d", row.uuid), row, lambda one: _of_device(one), row.mig_instances)

    def _process(self, row: Process) -> Process:
        return self._outline(("p", *row.key, row.mig_instance), row, _of_process)

    def _bystander(self, row: Process) -> Process:
        return self._outline(("b", *row.key, row.mig_instance), row, _of_process)

    def _instance(self, uuid: str, row: MigInstance) -> MigInstance:
        return self._outline(("m", uuid, row.id), row, _of_instance)

    def _outline(
        self, key: _Key, row: _R, fields: Callable[[Any], object], instances: tuple[MigInstance, ...] = ()
    ) -> _R:
        """The row without its numbers: the object of the previous sample if nothing else changed."""
        key = self._unique(key)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = _Track()
        track.places.append(self._place)
        track.dicts.append(row.readings)
        if isinstance(row, Process):
            track.workers.append(row.workers_cpu_percent)
        last = track.outline
        parts: tuple[MigInstance, ...] = ()
        if instances:
            assert isinstance(row, Device)
            parts = tuple([self._instance(row.uuid, one) for one in instances])
        if row is track.row and not instances:
            assert last is not None
            return last  # type: ignore[return-value]
        track.row = row
        readings: dict[str, Value] = {name: value if type(value) is str else 0 for name, value in row.readings.items()}
        if (
            last is not None
            and readings == last.readings
            and list(readings) == list(last.readings)
            and fields(row) == fields(last)
            and (not isinstance(last, Process) or (last.workers_cpu_percent is None) == (track.workers[-1] is None))
            and (not isinstance(last, Device) or _all_same(parts, last.mig_instances))
        ):
            return last  # type: ignore[return-value]
        others: dict[str, Any] = {}
        if isinstance(row, Process):
            others["workers_cpu_percent"] = None if row.workers_cpu_percent is None else 0.0
        if isinstance(row, Device):
            others["mig_instances"] = parts
        track.outline = replace(row, readings=readings, **others)
        return track.outline

    def _unique(self, key: _Key) -> _Key:
        times = self._used.get(key, 0)
        self._used[key] = times + 1
        return (*key, times) if times else key

    def _columns(self, track: _Track) -> Iterator[tuple[str, Sequence[Any]]]:
        dicts = track.dicts
        if not dicts:
            return
        names = list(dicts[0])
        regular = len(dicts) == self._count
        if regular and all(one is dicts[0] or list(one) == names for one in dicts):
            for name, values in zip(names, zip(*(one.values() for one in dicts), strict=True), strict=True):
                if str not in set(map(type, values)):
                    yield name, values
                elif any(type(value) is not str for value in values):
                    yield name, self._filled(track.places, values)
        else:
            for name in dict.fromkeys(name for one in dicts for name in one):
                values = tuple([one.get(name) for one in dicts])
                if any(type(value) is not str for value in values if value is not None):
                    yield name, self._filled(track.places, values)
        if any(value is not None for value in track.workers):
            yield _WORKERS, self._filled(track.places, track.workers)

    def _filled(self, places: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """A value for each sample of the block: where there was none, the one before, or the first."""
        filled: list[Any] = [None] * self._count
        for place, value in zip(places, values, strict=True):
            if type(value) is not str:
                filled[place] = value
        last = next(value for value in filled if value is not None)
        for place, value in enumerate(filled):
            if value is None:
                filled[place] = last
            else:
                last = value
        return filled


def _same(one: object, other: object) -> bool:
    return one is other


def _all_same(now: Sequence[object], before: Sequence[object]) -> bool:
    return len(now) == len(before) and all(map(_same, now, before))


def _numbers_of_sample(snapshot: Snapshot) -> dict[str, Value]:
    host = snapshot.host
    numbers: dict[str, Any] = {
        _TAKEN: (snapshot.taken_at - _EPOCH) // _MICROSECOND,
        _TOOK: snapshot.took_seconds,
    }
    for name in _HOST:
        value = getattr(host, name)
        if value is not None:
            numbers[name] = value
    if host.load is not None:
        numbers.update(zip(_LOAD, host.load, strict=True))
    return numbers


def _outline_of_host(host: Host) -> Host:
    numbers: dict[str, Any] = {name: 0 for name in _HOST if getattr(host, name) is not None}
    return replace(host, load=None if host.load is None else (0.0, 0.0, 0.0), **numbers)


# Reading


class Minute:
    """A block; nothing is decoded before it is asked for."""

    def __init__(self, data: bytes) -> None:
        """:class:`DamagedMinute` if it is not a block."""
        if not isinstance(data, bytes):  # a database may have anything anywhere
            raise DamagedMinute("not bytes")
        try:
            plain = decompressed(data, MOST_PACKED)
            self._block = _block_of(plain)
            self._rows: dict[_Key, int] = {tuple(key): number for number, key in enumerate(self._block.rows)}
        except (DamagedData, msgspec.MsgspecError, UnicodeDecodeError, TypeError) as error:
            raise DamagedMinute(str(error)) from error
        self.samples = self._block.samples
        self._devices: list[tuple[Device, ...]] | None = None
        """The devices of each sample without their numbers."""
        self._steady = False
        """Whether they are the same in all samples, apart from numbers."""
        self._unpacked: dict[tuple[str, int], Sequence[Any]] = {}

    @property
    def times(self) -> list[float]:
        """Times of the samples, in seconds since the epoch."""
        return [_time(micros).timestamp() for micros in self._column(_TAKEN, 0)]

    @property
    def uuids(self) -> list[str]:
        """The devices of all samples."""
        return [key[1] for key in self._rows if key[0] == "d" and len(key) == 2]

    def kept(self, place: int) -> Kept:
        """One sample, from 0 on."""
        with _damage():
            for here, (outline, findings) in enumerate(self._outlines()):
                if here == place:
                    snapshot = self._whole(outline(), place)
                    return Kept(snapshot.taken_at.timestamp(), snapshot, _of_findings(findings))
        raise DamagedMinute(f"no sample {place}")

    def all(self) -> Iterator[Kept]:
        """All samples in their order. Unchanged parts are the same objects in the next one."""
        last: Snapshot | None = None
        encoded_findings: bytes | None = None
        found: tuple[Finding, ...] = ()
        with _damage():
            for place, (outline, findings) in enumerate(self._outlines()):
                if findings != encoded_findings:
                    encoded_findings, found = findings, _of_findings(findings)
                last = self._whole(outline(), place, last)
                yield Kept(last.taken_at.timestamp(), last, found)

    def numbers(self, uuid: str, metric: str) -> Sequence[float | None] | None:
        """A metric of a device in each sample, None where it had none; None if it never had one."""
        row = self._rows.get(("d", uuid))
        if row is None or row not in self._block.columns.get(metric, ()):
            return None
        with _damage():
            values, every = self._column(metric, row), self.devices()
            there, last, has = list[bool](), None, False
            for devices in every[:1] if self._steady else every:
                if devices is not last:
                    last = devices
                    found = next((one for one in devices if one.uuid == uuid), None)
                    has = found is not None and found.readings.get(metric) == 0
                there.append(has)
        if self._steady:
            return list(map(float, values)) if has else [None] * self.samples
        return [float(value) if has else None for value, has in zip(values, there, strict=True)]

    def devices(self) -> list[tuple[Device, ...]]:
        """The devices of each sample, with the readings that are words; every number is 0."""
        with _damage():
            if self._devices is None:
                every = self._devices = [outline().devices for outline, _ in self._outlines()]
                self._steady = len(every) == self.samples and all(devices is every[0] for devices in every)
        return self._devices

    def process(self, pid: int, create_time: float | None) -> Iterator[tuple[Process, ...]]:
        """The rows of one process in each sample, bystanders too."""
        with _damage():
            for place, (outline, _) in enumerate(self._outlines()):
                wanted, used = list[Process](), dict[_Key, int]()
                sample = outline()
                for kind, rows in (("p", sample.processes), ("b", sample.bystanders)):
                    for row in rows:
                        key = _unique((kind, *row.key, row.mig_instance), used)
                        if row.pid == pid and row.create_time == create_time:
                            wanted.append(self._filled_process(row, key, place))
                yield tuple(wanted)

    # Inside

    def _outlines(self) -> Iterator[tuple[Callable[[], Snapshot], bytes]]:
        decoder, findings = FrameDecoder(), b"\x90"
        for kind, body in split(self._block.frames):
            if kind == FINDINGS:
                findings = body
            else:
                decoder.take(kind, body)
                yield decoder.snapshot, findings

    def _column(self, name: str, row: int) -> Sequence[Any]:
        known = self._unpacked.get((name, row))
        if known is None:
            try:
                known = unpack(self._block.columns[name][row], self.samples)
            except (DamagedColumn, KeyError) as error:
                raise DamagedMinute(f"{name}: {error}") from error
            self._unpacked[name, row] = known
        return known

    def _whole(self, outline: Snapshot, place: int, last: Snapshot | None = None) -> Snapshot:
        used: dict[_Key, int] = {}
        devices = [self._filled_device(row, _unique(("d", row.uuid), used), place, used) for row in outline.devices]
        processes = [
            self._filled_process(row, _unique(("p", *row.key, row.mig_instance), used), place)
            for row in outline.processes
        ]
        bystanders = [
            self._filled_process(row, _unique(("b", *row.key, row.mig_instance), used), place)
            for row in outline.bystanders
        ]
        before = last
        host: dict[str, Any] = {
            name: self._column(name, 0)[place] for name in _HOST if getattr(outline.host, name) is not None
        }
        if outline.host.load is not None:
            host["load"] = tuple([self._column(name, 0)[place] for name in _LOAD])
        return replace(
            outline,
            taken_at=_time(self._column(_TAKEN, 0)[place]),
            took_seconds=self._column(_TOOK, 0)[place],
            host=replace(outline.host, **host),
            devices=reused(devices, before.devices if before else ()),
            processes=reused(processes, before.processes if before else ()),
            bystanders=reused(bystanders, before.bystanders if before else ()),
        )

    def _readings(self, outline: dict[str, Value], row: int, place: int) -> dict[str, Value]:
        return {
            name: value if type(value) is str else self._column(name, row)[place] for name, value in outline.items()
        }

    def _filled_device(self, row: Device, key: _Key, place: int, used: dict[_Key, int]) -> Device:
        instances = row.mig_instances
        if instances:
            instances = tuple(
                [
                    replace(one, readings=self._readings(one.readings, self._rows[part], place))
                    for one in instances
                    for part in (_unique(("m", row.uuid, one.id), used),)
                ]
            )
        return replace(row, readings=self._readings(row.readings, self._rows[key], place), mig_instances=instances)

    def _filled_process(self, row: Process, key: _Key, place: int) -> Process:
        number = self._rows[key]
        workers = row.workers_cpu_percent
        if workers is not None:
            workers = self._column(_WORKERS, number)[place]
        return replace(row, readings=self._readings(row.readings, number, place), workers_cpu_percent=workers)


def reused(now: Sequence[_R], before: tuple[_R, ...]) -> tuple[_R, ...]:
    """``now`` with the objects of ``before`` where they are equal; ``before`` itself if all are."""
    if len(now) == len(before):
        rows = [
            old if row == old and list(row.readings) == list(old.readings) else row
            for row, old in zip(now, before, strict=True)
        ]
        return before if all(map(_same, rows, before)) else tuple(rows)
    return tuple(now)


def _unique(key: _Key, used: dict[_Key, int]) -> _Key:
    times = used.get(key, 0)
    used[key] = times + 1
    return (*key, times) if times else key


def _time(micros: int) -> datetime.datetime:
    return _EPOCH + micros * _MICROSECOND


class OpenSamples:
    """Decodes the frames that a writer has not packed yet, as they come."""

    def __init__(self) -> None:
        self._decoder = FrameDecoder()
        self._found: tuple[Finding, ...] = ()
        self._damaged = False

    def take(self, frames: Iterable[bytes]) -> Iterator[Kept]:
        """The samples of the next frames; what follows a damaged frame is left out."""
        try:
            for frame in frames:
                for kind, body in () if self._damaged else split(frame):
                    if kind == FINDINGS:
                        self._found = _of_findings(body)
                    else:
                        self._decoder.take(kind, body)
                        yield Kept(self._decoder.at, self._decoder.snapshot(), self._found)
        except (DamagedFrame, msgspec.MsgspecError):
            self._damaged = True


@contextmanager
def _damage() -> Iterator[None]:
    """Turns every way in which damaged data fails into :class:`DamagedMinute`."""
    try:
        yield
    except (DamagedFrame, msgspec.MsgspecError, LookupError, TypeError, OverflowError) as error:
        raise DamagedMinute(str(error)) from error

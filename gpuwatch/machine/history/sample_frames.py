"""Snapshots as frames: the one encoding of samples, on the wire, in memory and in recordings.

A frame is a head (length, kind) and MessagePack. A key frame has a whole snapshot; a delta has the differences from the
previous frame: if only readings of a row have changed, only those. So an idle machine costs about eighty bytes a
second, however many processes it has, and unchanged parts are the same objects in the next snapshot.

Groups of frames can be packed (compressed) together. A tail that was cut off, as by a kill, is ignored.
"""

from __future__ import annotations

import datetime
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Device, Host, MigInstance, Process, Snapshot
from gpuwatch.core.safe_text import printable

KEY, DELTA, FINDINGS, PACKED = b"S", b"D", b"C", b"Z"
"""Kinds of frames: a whole snapshot, the differences from the previous frame, the findings from the next snapshot on,
compressed frames."""
_HEADER = struct.Struct(">Ic")

Row = TypeVar("Row", Device, Process)
_T = TypeVar("_T")
_Readings = dict[int, Value | None]
"""Changed readings, by their position in the previous row; MIG instances' readings follow those of the device."""
_WORKERS, _STATE = -1, -2
"""Positions of a process's fields that change often too."""


class DamagedData(ValueError):
    """Data that is not as it was written, or of another version."""


class StoredSample(NamedTuple):
    """A stored sample: snapshot and findings at one moment."""

    at: float
    """Seconds since the epoch."""
    snapshot: Snapshot
    findings: tuple[Finding, ...]

    def with_findings(self) -> Snapshot:
        """The snapshot with its findings in it."""
        return replace(self.snapshot, findings=self.findings)


class _Delta(msgspec.Struct, array_like=True, omit_defaults=True):
    """Differences; rows are numbered by their position in the new snapshot."""

    taken_at: datetime.datetime
    took_seconds: float
    host: dict[int, Any] = {}
    """Changed fields of the host, by position."""
    device_readings: dict[int, _Readings] = {}
    process_readings: dict[int, _Readings] = {}
    devices: dict[int, Device] = {}
    processes: dict[int, Process] = {}
    """Rows with other changes than readings."""
    order: list[int] | None = None
    """Each process's position in the previous snapshot, -1 for a new one; None: unchanged."""
    bystanders: tuple[Process, ...] | None = None
    rest: Snapshot | None = None
    """Everything else, if any of it changed, as a snapshot without rows."""


_decode_delta = msgspec.msgpack.Decoder(_Delta).decode
_decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
_decode_findings = msgspec.msgpack.Decoder(tuple[Finding, ...]).decode

CHANGING_FIELDS = ("taken_at", "took_seconds", "host", "devices", "processes", "bystanders")
_lasting_fields = attrgetter(*(name for name in Snapshot.__struct_fields__ if name not in CHANGING_FIELDS))
_device_identity = attrgetter(*(name for name in Device.__struct_fields__ if name not in ("readings", "mig_instances")))
_instance_identity = attrgetter(*(name for name in MigInstance.__struct_fields__ if name != "readings"))
_CHANGING_PROCESS_FIELDS = ("readings", "workers_cpu_percent", "state")
_process_identity = attrgetter(*(name for name in Process.__struct_fields__ if name not in _CHANGING_PROCESS_FIELDS))


def framed(kind: bytes, body: bytes) -> bytes:
    """A frame: length, kind, body."""
    return _HEADER.pack(len(body), kind) + body


def read_frame(stream: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Kind and body of the next frame; None at the end of the stream, be it in the middle of a frame."""
    head = stream.read(_HEADER.size)
    length, kind = _HEADER.unpack(head) if len(head) == _HEADER.size else (0, b"")
    body = stream.read(length)
    return (kind, body) if kind and len(body) == length else None


def packed_frame(frames: bytes) -> bytes:
    """Frames compressed into one."""
    return framed(PACKED, zlib.compress(frames, 1))


def split_frames(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each frame, packed ones included; a tail that was cut off is ignored."""
    start = 0
    while len(data) - start >= _HEADER.size:
        length, kind = _HEADER.unpack_from(data, start)
        start += _HEADER.size
        body = data[start : start + length]
        if len(body) < length:
            return
        start += length
        if kind == PACKED:
            yield from split_frames(decompress_zlib(body))
        else:
            yield kind, body


def decompress_zlib(data: bytes) -> bytes:
    """Decompresses zlib's data. Raises :class:`DamagedData`."""
    return decompress_all(zlib.decompressobj(), data, zlib.error, TypeError)  # a database may have anything anywhere


def decompress_all(decompressor: Any, data: bytes, *errors: type[Exception]) -> bytes:
    """Decompresses all of the data. Raises :class:`DamagedData`, also for more than a recording's reader takes."""
    try:
        plain: bytes = decompressor.decompress(data, input_size_limits.RECORDING.bytes)
    except errors as error:
        raise DamagedData(str(error)) from error
    if not decompressor.eof:
        raise DamagedData("truncated, or too large")
    return plain


def decoded(decode: Callable[[bytes], _T], data: bytes) -> _T:
    """Decodes MessagePack. Raises :class:`DamagedData`, also for data that is nested too deeply."""
    try:
        return decode(data)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DamagedData(printable(str(error))) from error


def _add_changed(now: dict[str, Value], before: dict[str, Value], first: int, changed: _Readings) -> bool:
    """Adds changed values to ``changed``, by position from ``first`` on; False if there are different readings."""
    if now is before:
        return True
    if len(now) != len(before):
        return False
    place = first
    for (name, value), (old_name, old) in zip(now.items(), before.items(), strict=True):
        if name is not old_name and name != old_name:
            return False
        if value is not old and value != old:
            changed[place] = value
        place += 1
    return True


def _changed_readings(now: Row, before: Row) -> _Readings | None:
    """The changed readings; None if anything else about the row has changed."""
    changed: _Readings = {}
    if not _add_changed(now.readings, before.readings, 0, changed):
        return None
    if isinstance(now, Process):
        assert isinstance(before, Process)
        if _process_identity(now) != _process_identity(before):
            return None
        if now.workers_cpu_percent != before.workers_cpu_percent:
            changed[_WORKERS] = now.workers_cpu_percent
        if now.state != before.state:
            changed[_STATE] = now.state
        return changed
    assert isinstance(before, Device)
    instances, old_instances = now.mig_instances, before.mig_instances
    if _device_identity(now) != _device_identity(before) or len(instances) != len(old_instances):
        return None
    first = len(now.readings)
    for instance, old in zip(instances, old_instances, strict=True) if instances is not old_instances else ():
        if _instance_identity(instance) != _instance_identity(old):
            return None
        if not _add_changed(instance.readings, old.readings, first, changed):
            return None
        first += len(instance.readings)
    return changed


def _with_changes(row: Row, changed: _Readings) -> Row:
    readings, others = _put_changes(row.readings, changed)
    if not others:
        return replace(row, readings=readings)
    if isinstance(row, Process):
        workers, state = others.get(_WORKERS, row.workers_cpu_percent), others.get(_STATE, row.state)
        return replace(row, readings=readings, workers_cpu_percent=workers, state=state)
    instances, first = [], len(readings)
    for instance in row.mig_instances:
        of_instance, _ = _put_changes(instance.readings, {place - first: value for place, value in others.items()})
        instances.append(replace(instance, readings=of_instance))
        first += len(of_instance)
    return replace(row, readings=readings, mig_instances=tuple(instances))


def _put_changes(readings: dict[str, Value], changed: _Readings) -> tuple[dict[str, Any], _Readings]:
    """The readings with their changes, and the changes at other positions."""
    now: dict[str, Any] = readings.copy()
    names, others = tuple(now), _Readings()
    for place, value in changed.items():
        if 0 <= place < len(names):
            now[names[place]] = value
        else:
            others[place] = value
    return now, others


class FrameEncoder:
    """Encodes samples as frames, beginning with a key frame."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._findings: tuple[Finding, ...] = ()

    def frames(self, snapshot: Snapshot, findings: tuple[Finding, ...] = ()) -> bytes:
        """The snapshot's frame, after one of the findings that hold in it if they have changed."""
        changed = b"" if findings == self._findings else framed(FINDINGS, encoded(findings))
        before, self._before, self._findings = self._before, snapshot, findings
        if before is None or len(before.devices) != len(snapshot.devices):
            return changed + framed(KEY, encoded(snapshot))
        return changed + framed(DELTA, encoded(_difference(before, snapshot)))


def _difference(before: Snapshot, now: Snapshot) -> _Delta:
    delta = _Delta(now.taken_at, now.took_seconds)
    if now.host is not before.host:
        fields = enumerate(zip(astuple(now.host), astuple(before.host), strict=True))
        delta.host = {place: value for place, (value, old) in fields if value != old}
    if now.devices is not before.devices:
        delta.device_readings, delta.devices = _changed_rows(before.devices, now.devices)
    if now.processes is not before.processes:
        rows: Sequence[Process | None] = before.processes
        if not _same_processes(before.processes, now.processes):
            places = {_identity(row): place for place, row in enumerate(before.processes)}
            delta.order = [places.get(_identity(row), -1) for row in now.processes]
            rows = [before.processes[place] if place >= 0 else None for place in delta.order]
        delta.process_readings, delta.processes = _changed_rows(rows, now.processes)
    if now.bystanders is not before.bystanders and now.bystanders != before.bystanders:
        delta.bystanders = now.bystanders
    if _lasting_fields(now) != _lasting_fields(before):
        delta.rest = replace(now, host=_NO_HOST, devices=(), processes=(), bystanders=())
    return delta


def _same_processes(before: Sequence[Process], now: Sequence[Process]) -> bool:
    return len(before) == len(now) and all(
        row is old or (row.pid == old.pid and _identity(row) == _identity(old))
        for row, old in zip(now, before, strict=True)
    )


def _identity(row: Process) -> tuple[object, ...]:
    return (*row.key, row.mig_instance)


def _changed_rows(before: Sequence[Row | None], now: Sequence[Row]) -> tuple[dict[int, _Readings], dict[int, Row]]:
    """The changes between two lists of rows: changed readings, or whole rows."""
    readings: dict[int, _Readings] = {}
    whole: dict[int, Row] = {}
    for place, (row, old) in enumerate(zip(now, before, strict=True)):
        if row is old:
            continue
        changed = _changed_readings(row, old) if old is not None else None
        if changed is None:
            whole[place] = row
        elif changed:
            readings[place] = changed
    return readings, whole


_NO_HOST = Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None)


def encoded(what: object) -> bytes:
    """MessagePack, also of strings that are not UTF-8 and integers beyond 64 bits."""
    try:
        return msgspec.msgpack.encode(what)
    except (UnicodeEncodeError, OverflowError):
        return msgspec.msgpack.encode(_encodable(msgspec.to_builtins(what, builtin_types=(datetime.datetime,))))


def _encodable(what: Any) -> Any:
    if isinstance(what, str):
        return what.encode("utf-8", "replace").decode()
    if isinstance(what, int) and not -(2**63) <= what < 2**64:
        return float(what)
    if isinstance(what, dict):
        return {_encodable(name): _encodable(value) for name, value in what.items()}
    return [_encodable(value) for value in what] if isinstance(what, (list, tuple)) else what


class FrameDecoder:
    """Decodes frames to samples. Unchanged parts are the same objects as in the previous one."""

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        """Those that hold in the sample of the last frame."""
        self._last: Snapshot | None = None
        """The snapshot of the last frame, with outdated rows."""
        self._devices: tuple[Device, ...] = ()
        self._processes: tuple[Process, ...] = ()
        self._device_changes: dict[int, _Readings] = {}
        self._process_changes: dict[int, _Readings] = {}
        """Changes since the rows above were built."""

    def read(self, frames: bytes) -> Iterator[FrameDecoder]:
        """Takes these frames; yields itself after each sample, to be read before the next. :class:`DamagedData`."""
        for kind, body in split_frames(frames):
            if kind == FINDINGS:
                self.findings = decoded(_decode_findings, body)
            else:
                self.take(kind, body)
                yield self

    def take(self, kind: bytes, body: bytes) -> None:
        """Takes the next frame, a key frame or a delta from the previous one; :class:`DamagedData` otherwise."""
        try:
            if kind == KEY:
                self.continue_from(decoded(_decode_snapshot, body))
            elif kind == DELTA and self._last is not None:
                self._apply(self._last, decoded(_decode_delta, body))
            else:
                raise DamagedData(f"a frame of kind {kind!r} without a key frame before it")
        except (LookupError, ValueError, TypeError) as error:
            self._last = None
            raise error if isinstance(error, DamagedData) else DamagedData(printable(str(error))) from error

    def receive(self, kind: bytes, body: bytes) -> Snapshot:
        """The snapshot of the next frame; see :meth:`take`."""
        self.take(kind, body)
        return self.snapshot()

    def continue_from(self, snapshot: Snapshot) -> None:
        """Goes on from this snapshot."""
        self._last = snapshot
        self._devices, self._processes = snapshot.devices, snapshot.processes
        self._device_changes, self._process_changes = {}, {}

    def _apply(self, last: Snapshot, delta: _Delta) -> None:
        host = last.host
        if delta.host:
            values = list(astuple(host))
            for place, value in delta.host.items():
                values[place] = value
            host = msgspec.convert(dict(zip(Host.__struct_fields__, values, strict=True)), Host)
        rest = delta.rest if delta.rest is not None else last
        self._last = replace(
            rest,
            taken_at=delta.taken_at,
            took_seconds=delta.took_seconds,
            host=host,
            bystanders=last.bystanders if delta.bystanders is None else delta.bystanders,
        )
        if delta.order is not None:
            rows, changes, new = self._processes, self._process_changes, delta.processes
            self._processes = tuple([rows[old] if old >= 0 else new[place] for place, old in enumerate(delta.order)])
            self._process_changes = {at: {**changes[old]} for at, old in enumerate(delta.order) if old in changes}
        if delta.devices:
            self._devices = _replaced_rows(self._devices, delta.devices, self._device_changes)
        if delta.processes:
            self._processes = _replaced_rows(self._processes, delta.processes, self._process_changes)
        for place, changed in delta.device_readings.items():
            self._device_changes.setdefault(place, {}).update(changed)
        for place, changed in delta.process_readings.items():
            self._process_changes.setdefault(place, {}).update(changed)

    @property
    def at(self) -> float:
        """When the snapshot of the last frame was taken, in seconds since the epoch."""
        assert self._last is not None
        return self._last.taken_at.timestamp()

    def devices(self) -> tuple[Device, ...]:
        if self._device_changes:
            self._devices, self._device_changes = _up_to_date(self._devices, self._device_changes), {}
        return self._devices

    def processes(self) -> tuple[Process, ...]:
        if self._process_changes:
            self._processes, self._process_changes = _up_to_date(self._processes, self._process_changes), {}
        return self._processes

    def rows_of(self, pid: int, create_time: float | None) -> tuple[Process, ...]:
        """The rows of one process in the last frame, bystanders too, without updating the others."""
        assert self._last is not None
        changed, who = self._process_changes, (pid, create_time)
        found = [
            _with_changes(row, changed[place]) if place in changed else row
            for place, row in enumerate(self._processes)
            if (row.pid, row.create_time) == who
        ]
        return tuple(found or [row for row in self._last.bystanders if (row.pid, row.create_time) == who])

    def snapshot(self) -> Snapshot:
        assert self._last is not None
        return replace(self._last, devices=self.devices(), processes=self.processes())

    def sample(self) -> StoredSample:
        return StoredSample(self.at, self.snapshot(), self.findings)


def _replaced_rows(rows: tuple[Row, ...], new: dict[int, Row], changed: dict[int, _Readings]) -> tuple[Row, ...]:
    listed = list(rows)
    for place, row in new.items():
        changed.pop(place, None)
        listed[place] = row
    return tuple(listed)


def _up_to_date(rows: tuple[Row, ...], changed: dict[int, _Readings]) -> tuple[Row, ...]:
    return tuple([_with_changes(row, changed[place]) if place in changed else row for place, row in enumerate(rows)])

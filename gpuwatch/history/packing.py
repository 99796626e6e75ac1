"""A snapshot as two things: what its rows say apart from numbers, kept once, and its numbers as arrays."""

from __future__ import annotations

import datetime
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from gpuwatch.model.reading import Value
from gpuwatch.model.snapshot import Device, Host, Process, Snapshot

_SINCE = "run_seconds"
_WORKERS = "workers:"
"""A number of a process that is no reading of it."""
_PRECISE = ("_seconds", "_joules")
"""Ends of the ids of counters that seven digits would cut."""

encode = msgspec.msgpack.Encoder().encode
_of_device = msgspec.msgpack.Decoder(Device).decode
_of_process = msgspec.msgpack.Decoder(Process).decode
_of_snapshot = msgspec.msgpack.Decoder(Snapshot).decode

_NO_TIME = datetime.datetime.fromtimestamp(0, datetime.UTC)
_NO_HOST = Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None)

Identity = tuple[int, float | None]
"""Pid and start time of a process."""


def bytes_of(what: object) -> bytes:
    """MessagePack, also of names that are no UTF-8."""
    try:
        return encode(what)
    except UnicodeEncodeError:  # half a character, out of a name that is no UTF-8
        return encode(_clean(msgspec.to_builtins(what)))


def _clean(what: object) -> object:
    if isinstance(what, str):
        return what.encode("utf-8", "replace").decode()
    if isinstance(what, dict):
        return {name: _clean(value) for name, value in what.items()}
    return [_clean(one) for one in what] if isinstance(what, (list, tuple)) else what


class Shape:
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


class Layout:
    """Where the numbers of each row stand; one for all samples with the same rows."""

    __slots__ = ("devices", "frame", "processes", "shapes", "starts")

    def __init__(self, frame: bytes, shapes: tuple[Shape, ...], devices: int, processes: int) -> None:
        self.frame = frame
        self.shapes = shapes
        self.devices = devices
        self.processes = processes
        wholes = accumulate((sum(code in "is" for code in shape.codes) for shape in shapes), initial=0)
        singles = accumulate((sum(code in "fr" for code in shape.codes) for shape in shapes), initial=0)
        doubles = accumulate((shape.codes.count("d") for shape in shapes), initial=0)
        self.starts = tuple(zip(wholes, singles, doubles, strict=True))
        """Of each row among the whole numbers, the short and the long fractions; one more tells the sizes."""

    @property
    def made_of(self) -> tuple[bytes, tuple[Shape, ...], int, int]:
        """Equal for layouts that are."""
        return (self.frame, self.shapes, self.devices, self.processes)

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


class Numbers:
    """The readings of one sample."""

    __slots__ = ("doubles", "layout", "singles", "wholes")

    def __init__(self, layout: Layout, raw: bytes) -> None:
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


def device_of(plain: bytes, readings: dict[str, Value]) -> Device:
    """A device out of its shape and its numbers, those of its MIG instances among them."""
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


def process_of(plain: bytes, readings: dict[str, Value]) -> Process:
    """A process out of its shape and its numbers."""
    workers = readings.pop(_WORKERS, None)
    percent = float(workers) if isinstance(workers, (int, float)) else None
    return msgspec.structs.replace(_of_process(plain), readings=readings, workers_cpu_percent=percent)


class Taken(NamedTuple):
    """Some rows taken apart."""

    shapes: tuple[Shape, ...] = ()
    wholes: bytes = b""
    doubles: bytes = b""
    singles: bytes = b""


class Packer:
    """Takes snapshots apart and puts them together again; keeps what they share."""

    def __init__(self) -> None:
        self.shapes: WeakValueDictionary[tuple[bytes, tuple[str, ...], str], Shape] = WeakValueDictionary()
        """Rows that some sample has: others are forgotten."""
        self.words: list[str] = []
        """Names that readings have had for a value."""
        self._places: dict[str, int] = {}
        self.layout: Layout | None = None
        self.raw = b""
        """Layout and numbers of the last snapshot."""
        self._others = Taken()
        """Of the last snapshot: its processes, and those beside them."""

    def take(self, snapshot: Snapshot, at: float, *, calm: bool = False) -> None:
        """Takes a snapshot apart, the host aside; ``at`` in seconds since the epoch.

        ``calm``: but for its devices, its moment and run times it is the one that was taken before.
        """
        devices = self._taken(snapshot.devices, at)
        if calm and self.layout is not None:
            frame = self.layout.frame
        else:
            frame = self._frame(snapshot)
            self._others = self._taken((*snapshot.processes, *snapshot.bystanders), at)
        others = self._others
        made_of = (frame, devices.shapes + others.shapes, len(snapshot.devices), len(snapshot.processes))
        if self.layout is None or self.layout.made_of != made_of:
            self.layout = Layout(*made_of)
        self.raw = b"".join(
            [
                devices.wholes,
                others.wholes,
                devices.doubles,
                others.doubles,
                devices.singles,
                others.singles,
            ]
        )

    @staticmethod
    def _frame(snapshot: Snapshot) -> bytes:
        """What is in a snapshot beside its rows and what is in every one another."""
        return bytes_of(
            msgspec.structs.replace(
                snapshot, devices=(), processes=(), bystanders=(), host=_NO_HOST, took_seconds=0.0, taken_at=_NO_TIME
            )
        )

    def _taken(self, rows: Sequence[Device | Process], at: float) -> Taken:
        wholes: array[int] = array("q")
        singles: array[float] = array("f")
        doubles: array[float] = array("d")
        shapes = tuple([self._shape(row, at, wholes, singles, doubles) for row in rows])
        return Taken(shapes, wholes.tobytes(), doubles.tobytes(), singles.tobytes())

    def whole(self, layout: Layout, raw: bytes, at: float, took: float, host: Host) -> Snapshot:
        """The snapshot again."""
        numbers = Numbers(layout, raw)
        rows = [numbers.row(place, self.words, shape.since(at)) for place, shape in enumerate(layout.shapes)]
        devices = tuple(
            device_of(shape.plain, readings)
            for shape, readings in zip(layout.shapes[: layout.devices], rows, strict=False)
        )
        processes = [
            process_of(shape.plain, readings)
            for shape, readings in zip(layout.shapes[layout.devices :], rows[layout.devices :], strict=True)
        ]
        return msgspec.structs.replace(
            _of_snapshot(layout.frame),
            taken_at=datetime.datetime.fromtimestamp(at, datetime.UTC),
            took_seconds=took,
            host=host,
            devices=devices,
            processes=tuple(processes[: layout.processes]),
            bystanders=tuple(processes[layout.processes :]),
        )

    def _shape(
        self, row: Device | Process, at: float, wholes: array[int], singles: array[float], doubles: array[float]
    ) -> Shape:
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
        plain = bytes_of(msgspec.structs.replace(row, **changes))
        key = (plain, tuple(readings), "".join(codes))
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(*key, who)
        return shape

    def _word(self, text: str) -> int:
        place = self._places.get(text)
        if place is None:
            place = self._places[text] = len(self.words)
            self.words.append(text)
        return place

"""How snapshots travel from the collector's process: whole, or as what differs from the one before.

A frame is four bytes of length (big endian), one byte that says what it is, and MessagePack. Rows of
processes travel as they were when they last changed; the reader gives them their run time. Of a device
of which only numbers moved, these numbers travel alone. So a machine on which nothing happens costs some
hundred bytes a second, whatever runs on it.
"""

from __future__ import annotations

import datetime
import struct

import msgspec
from msgspec.structs import replace

from gpuwatch.model.reading import Value
from gpuwatch.model.snapshot import Device, Host, Process, Snapshot

WHOLE, DIFFERENCE, PREVIEW, MEANWHILE = b"S", b"D", b"P", b"M"
"""Kinds of frames. A preview has the devices alone: processes have not been looked at yet. What is told
meanwhile has the host and its processes alone: the driver has not answered yet."""
_HEAD = struct.Struct(">Ic")
HEAD_BYTES = _HEAD.size


class Difference(msgspec.Struct, array_like=True, omit_defaults=True):
    """What is new since the snapshot before; places are those in its tuples, which are as long as before."""

    taken_at: datetime.datetime
    took_seconds: float
    host: Host
    devices: dict[int, Device] = {}
    processes: dict[int, Process] = {}
    bystanders: tuple[Process, ...] | None = None
    """None: the same ones."""
    readings: dict[int, dict[str, Value]] = {}
    """Of devices that have the same readings with other values, and are the same else: the other values."""


_MOVING = frozenset({"taken_at", "took_seconds", "host", "devices", "processes", "bystanders"})
_STILL = tuple(name for name in Snapshot.__struct_fields__ if name not in _MOVING)
"""What must be equal for a difference to say enough."""


class Calm(Snapshot, frozen=True, kw_only=True):
    """A snapshot whose rows of processes differ from those of the one before in run times alone."""


class Quiet(Calm, frozen=True, kw_only=True):
    """A snapshot that differs from the one before in its moment, in run times and in the host's readings."""


def head(frame: bytes) -> tuple[int, bytes]:
    """Length and kind of the frame that follows these :data:`HEAD_BYTES`."""
    length, kind = _HEAD.unpack(frame)
    return length, kind


class Sender:
    """Turns snapshots (of :meth:`gpuwatch.monitor.sampler.Sampler.take`) into frames."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._before: Snapshot | None = None

    def preview(self, snapshot: Snapshot) -> bytes:
        """A frame for the first picture, which no difference counts from."""
        return self._frame(PREVIEW, self._encode(snapshot))

    def meanwhile(self, snapshot: Snapshot) -> bytes:
        """A frame about the host alone, which no difference counts from. Safe to call from another thread."""
        return self._frame(MEANWHILE, msgspec.msgpack.encode(snapshot))

    def frame(self, snapshot: Snapshot) -> bytes:
        """The next snapshot."""
        before, self._before = self._before, snapshot
        if before is None or not _comparable(before, snapshot):
            return self._frame(WHOLE, self._encode(snapshot))
        difference = Difference(snapshot.taken_at, snapshot.took_seconds, snapshot.host)
        for place, (device, old) in enumerate(zip(snapshot.devices, before.devices, strict=True)):
            if device is old or device == old:
                continue
            values = _other_values(old, device)
            if values is None:
                difference.devices[place] = device
            else:
                difference.readings[place] = values
        if snapshot.processes != before.processes:
            difference.processes = {
                place: row
                for place, (row, old) in enumerate(zip(snapshot.processes, before.processes, strict=True))
                if row is not old and row != old
            }
        if snapshot.bystanders != before.bystanders:
            difference.bystanders = snapshot.bystanders
        return self._frame(DIFFERENCE, self._encode(difference))

    @staticmethod
    def _frame(kind: bytes, body: bytes) -> bytes:
        return _HEAD.pack(len(body), kind) + body


def _comparable(before: Snapshot, now: Snapshot) -> bool:
    return (
        len(before.devices) == len(now.devices)
        and len(before.processes) == len(now.processes)
        and all(getattr(before, name) == getattr(now, name) for name in _STILL)
    )


def _other_values(before: Device, now: Device) -> dict[str, Value] | None:
    """The readings that differ; None where anything else does, which readings there are included."""
    if list(now.readings) != list(before.readings) or replace(now, readings=before.readings) != before:
        return None
    return {name: value for name, value in now.readings.items() if value != before.readings[name]}


def plain(snapshot: Snapshot) -> Snapshot:
    """The same without a word on the one before, which is for whoever does not have that one."""
    if type(snapshot) is Snapshot:
        return snapshot
    return Snapshot(**{name: getattr(snapshot, name) for name in Snapshot.__struct_fields__})


def aged(snapshot: Snapshot) -> Snapshot:
    """The snapshot with every process's run time as it was when it was taken."""
    at = snapshot.taken_at.timestamp()
    rows = []
    for row in snapshot.processes:
        began = row.create_time
        if began is not None:
            readings = row.readings.copy()
            readings["run_seconds"] = at - began if at > began else 0.0
            row = replace(row, readings=readings)
        rows.append(row)
    return replace(snapshot, processes=tuple(rows))


class Receiver:
    """Turns frames into snapshots again; one for each collector's process."""

    def __init__(self, *, ageing: bool = True) -> None:
        """``ageing``: a :class:`Calm` snapshot gets its run times too; else its rows are those of the one before."""
        self._ageing = ageing
        self._given: tuple[Process, ...] = ()
        """The rows of the last snapshot as they were given away, their run times included."""
        self._snapshot = msgspec.msgpack.Decoder(Snapshot)
        self._difference = msgspec.msgpack.Decoder(Difference)
        self._before: Snapshot | None = None

    def receive(self, kind: bytes, body: bytes) -> Snapshot:
        """The snapshot of a frame, its run times those of its moment."""
        if kind == DIFFERENCE:
            snapshot = self._applied(self._difference.decode(body))
        else:
            snapshot = self._snapshot.decode(body)
        if kind in (PREVIEW, MEANWHILE):
            return aged(snapshot)
        self._before = snapshot
        if isinstance(snapshot, Calm) and not self._ageing:
            return replace(snapshot, processes=self._given)
        snapshot = aged(snapshot)
        self._given = snapshot.processes
        return snapshot

    def _applied(self, new: Difference) -> Snapshot:
        before = self._before
        if before is None:
            raise ValueError("a difference came before any snapshot")
        devices, processes = before.devices, before.processes
        if new.devices or new.readings:
            devices = tuple([_moved(new, place, device) for place, device in enumerate(devices)])
        if new.processes:
            processes = tuple([new.processes.get(place, row) for place, row in enumerate(processes)])
        moved = new.processes or new.bystanders is not None
        make = Snapshot if moved else Calm if new.devices or new.readings else Quiet
        return make(
            taken_at=new.taken_at,
            took_seconds=new.took_seconds,
            host=new.host,
            devices=devices,
            processes=processes,
            bystanders=before.bystanders if new.bystanders is None else new.bystanders,
            **{name: getattr(before, name) for name in _STILL},
        )


def _moved(new: Difference, place: int, device: Device) -> Device:
    """The device at a place as it is now."""
    values = new.readings.get(place)
    if values is None:
        return new.devices.get(place, device)
    return replace(device, readings={**device.readings, **values})

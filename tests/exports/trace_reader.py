"""A strict reader of Perfetto traces: whatever a viewer would have to guess or repair is an error here."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from gpuwatch.explain.traces.protobuf_reader import BYTES, FIXED64, VARINT, fields, signed, text

PACKET, TIMESTAMP, SEQUENCE, EVENT, DESCRIPTOR, CLOCK, SNAPSHOT = 1, 8, 10, 11, 60, 58, 6


@dataclass
class Track:
    name: str
    parent: int | None
    counter: bool
    unit: str = ""
    values: list[tuple[int, float]] = field(default_factory=list)
    slices: list[tuple[int, int, int, str, dict[str, Any]]] = field(default_factory=list)
    """Begin, end, depth, name, arguments."""
    instants: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    open: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    last: int = 0


class Trace:
    """The tracks of a trace, by id."""

    def __init__(self, data: bytes) -> None:
        self.tracks: dict[int, Track] = {}
        self.clock: int | None = None
        for number, kind, at, end in fields(data, 0, len(data)):
            assert (number, kind) == (PACKET, BYTES)
            self._packet(data, at, end)
        for track in self.tracks.values():
            assert not track.open, f"{track.name}: {len(track.open)} slices have no end"

    def path(self, track: Track) -> str:
        parents = [track.name]
        while track.parent is not None:
            track = self.tracks[track.parent]
            parents.append(track.name)
        return " / ".join(reversed(parents))

    def named(self, path: str) -> list[Track]:
        return [track for track in self.tracks.values() if self.path(track) == path]

    def _packet(self, data: bytes, at: int, end: int) -> None:
        whole = {}
        for number, _, start, stop in fields(data, at, end):
            assert number not in whole, f"field {number} of a packet occurs twice"
            whole[number] = (start, stop)
        assert set(whole) <= {TIMESTAMP, SEQUENCE, EVENT, DESCRIPTOR, CLOCK, SNAPSHOT}
        assert whole[SEQUENCE][0] == 1
        if SNAPSHOT in whole:
            assert self.clock is None, "one clock is enough"
            self.clock = self._clock(data, *whole[SNAPSHOT])
        elif DESCRIPTOR in whole:
            self._describe(data, *whole[DESCRIPTOR])
        else:
            assert self.clock is not None, "an event before the clocks"
            assert whole[CLOCK][0] == self.clock, "an event on a clock that the trace does not know"
            self._event(data, *whole[EVENT], whole[TIMESTAMP][0])

    def _clock(self, data: bytes, at: int, end: int) -> int:
        known, primary = [], None
        for number, _, start, stop in fields(data, at, end):
            if number == 1:
                known.append({inner: value for inner, _, value, _ in fields(data, start, stop)})
            elif number == 2:
                primary = start
        assert primary in [clock[1] for clock in known]
        assert primary == 1  # BUILTIN_CLOCK_REALTIME
        return primary

    def _describe(self, data: bytes, at: int, end: int) -> None:
        uuid, name, parent, counter, unit = None, "", None, False, ""
        for number, kind, start, stop in fields(data, at, end):
            if number == 1:
                uuid = start
            elif number == 2:
                name = text(data, start, stop)
            elif number == 5:
                parent = start
            elif number == 8:
                counter = True
                for inner, inner_kind, begin, until in fields(data, start, stop):
                    unit = {3: "B", 2: ""}[begin] if inner == 3 and inner_kind == VARINT else text(data, begin, until)
            else:
                assert (number, kind, start) == (11, VARINT, 2)
        assert uuid
        assert uuid not in self.tracks, "a track is described twice"
        assert parent is None or parent in self.tracks, "a track before its parent"
        assert parent is None or not self.tracks[parent].counter
        assert name
        self.tracks[uuid] = Track(name, parent, counter, unit)

    def _event(self, data: bytes, at: int, end: int, when: int) -> None:
        kind, uuid, name, value, arguments = 0, 0, "", None, {}
        for number, wire, start, stop in fields(data, at, end):
            if number == 9:
                kind = start
            elif number == 11:
                uuid = start
            elif number == 23:
                name = text(data, start, stop)
            elif number == 30:
                assert wire == VARINT
                value = signed(start)
            elif number == 44:
                assert wire == FIXED64
                (value,) = struct.unpack_from("<d", data, start)
            else:
                assert number == 4
                key, argument = self._argument(data, start, stop)
                assert key not in arguments
                arguments[key] = argument
        track = self.tracks[uuid]  # described before
        assert when >= track.last, f"{track.name}: time runs back"
        track.last = when
        assert track.counter == (kind == 4)
        if kind == 4:
            assert value is not None
            assert not track.values or track.values[-1][0] < when, f"{track.name}: two values at once"
            track.values.append((when, value))
        elif kind == 3:
            track.instants.append((when, name, arguments))
        elif kind == 1:
            assert name
            track.open.append((when, name, arguments))
        else:
            assert kind == 2
            assert track.open, f"{track.name}: an end without a begin"
            begin, name, arguments = track.open.pop()
            track.slices.append((begin, when, len(track.open), name, arguments))

    def _argument(self, data: bytes, at: int, end: int) -> tuple[str, Any]:
        name, value = "", None
        for number, _, start, stop in fields(data, at, end):
            if number == 10:
                name = text(data, start, stop)
            elif number == 2:
                value = bool(start)
            elif number == 4:
                value = signed(start)
            elif number == 5:
                (value,) = struct.unpack_from("<d", data, start)
            else:
                assert number == 6
                value = text(data, start, stop)
        assert name
        assert value is not None
        return name, value

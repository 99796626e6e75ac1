"""Perfetto's trace format: counters of each GPU, and processes, findings, events and runs beside them.

Field numbers are those of Perfetto's ``protos/perfetto/trace``: ``trace_packet.proto``, ``clock_snapshot.proto``, in
``track_event/`` ``track_event.proto``, ``track_descriptor.proto``, ``counter_descriptor.proto`` and
``debug_annotation.proto``. Every timestamp is of the wall clock (``BUILTIN_CLOCK_REALTIME``), in nanoseconds since the
epoch, so that the trace can be shown beside others of that clock.

A counter is written when it changes, and once more before a gap. The format has no way to end a counter: where a value
is missing, viewers go on with the last one.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuwatch.core.formatting.command_lines import program_in_command
from gpuwatch.core.model.metrics import BY_ID, Unit
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.sample_gaps import MAX_UNOBSERVED_SECONDS
from gpuwatch.machine.recording.minute_and_hour_means import Key
from gpuwatch.share.exports.exported_period import ExportedPeriod
from gpuwatch.share.exports.protobuf_encoding import double, message, number, text, varint

REALTIME = 1
"""BuiltinClock of clock_snapshot.proto."""
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""TrackEvent.Type."""
_SEQUENCE = number(10, 1)
"""Sequence id, the same in all packets: there is one writer."""
_CLOCK = number(58, REALTIME)
_UNITS = {Unit.BYTES: number(3, 3), Unit.COUNT: number(3, 2)}
"""CounterDescriptor.Unit; other units are given by name."""
_int64 = -(1 << 63), (1 << 63) - 1
_packed_double = struct.Struct("<d").pack

Arguments = dict[str, str | int | float | bool | None]
"""Details of a slice or instant; what is None is left out."""


class Slice(NamedTuple):
    """Something with a duration; times in seconds since the epoch."""

    begin: float
    end: float
    name: str
    arguments: Arguments
    inner: tuple[Slice, ...] = ()
    """What happened within it, one after the other."""


def write(period: ExportedPeriod, runs: Iterable[Run] = ()) -> Iterator[bytes]:
    """The trace, in pieces. ``runs``: documents whose phases are shown, if they are of the same machine and time."""
    return _Writer(period).pieces(list(runs))


class _Writer:
    def __init__(self, period: ExportedPeriod) -> None:
        self._period = period
        # Ids must not collide with those of a trace beside which this one is shown.
        seed = hashlib.sha256(f"{period.host} {period.begin}".encode()).digest()
        self._next = int.from_bytes(seed[:4], "big") << 16
        self._gpus: dict[str, int] = {}
        """Tracks by UUID."""
        self._counters: dict[Key, int] = {}
        self._written: dict[Key, tuple[float, float]] = {}
        """Time and value of the last packet of each counter."""
        self._known: dict[Key, float] = {}
        """When each counter had a value last."""

    def pieces(self, runs: list[Run]) -> Iterator[bytes]:
        period = self._period
        clocks = message(1, number(1, REALTIME) + number(2, _nanoseconds(period.begin)))
        yield message(1, _SEQUENCE + message(6, clocks + number(2, REALTIME)))
        self._machine = self._new_track()
        note = " (simulated)" if period.last.simulated else ""
        yield self._track(self._machine, f"{printable(period.host or 'machine')}{note}")
        for device in period.last.devices:
            yield from self._gpu(device.uuid)
        yield from self._runs(runs)
        yield from self._findings()
        yield from self._processes()
        yield from self._events()
        yield from self._means() if period.step else self._samples()

    # Tracks

    def _new_track(self) -> int:
        self._next += 1
        return self._next

    def _track(self, track: int, name: str, parent: int | None = None, counter: bytes | None = None) -> bytes:
        descriptor = number(1, track) + text(2, name)
        if parent is not None:
            descriptor += number(5, parent)
        if counter is not None:
            descriptor += message(8, counter)
        else:
            descriptor += number(11, 2)  # children in the order in which they are described
        return message(1, _SEQUENCE + message(60, descriptor))

    def _gpu(self, uuid: str | None) -> Iterator[bytes]:
        """The track of a GPU, described where it is first needed."""
        if uuid is not None and uuid not in self._gpus:
            device = self._period.device(uuid, self._period.end)
            name = f"GPU {device.index}" if device.index >= 0 else uuid
            self._gpus[uuid] = self._new_track()
            yield self._track(self._gpus[uuid], f"{name} {printable(device.name)}".strip(), self._machine)

    def _parent(self, uuid: str | None) -> int:
        return self._machine if uuid is None else self._gpus[uuid]

    # Counters

    def _counter(self, key: Key) -> Iterator[bytes]:
        """The track of a metric of a GPU, described where it is first needed."""
        if key not in self._counters:
            yield from self._gpu(key[0])
            spec = BY_ID[key[1]]
            self._counters[key] = self._new_track()
            unit = _UNITS.get(spec.unit) or text(6, spec.unit.value)
            yield self._track(self._counters[key], spec.title, self._gpus[key[0]], unit)

    def _samples(self) -> Iterator[bytes]:
        for times, columns in self._period.numbers():
            heads = [_packet_head(at) for at in times]
            for key in sorted(columns):
                values = columns[key]
                if key not in self._counters and all(value is None for value in values):
                    continue
                yield from self._counter(key)
                yield b"".join(self._changes(key, times, heads, values))
        for key, at in self._known.items():
            if at > self._written[key][0]:
                yield _value(self._counters[key], _packet_head(at), self._written[key][1])

    def _changes(
        self, key: Key, times: Sequence[float], heads: Sequence[bytes], values: Sequence[float | None]
    ) -> Iterator[bytes]:
        """The packets of a counter where it changed, and of its last value before a time without values."""
        track, written, known = self._counters[key], self._written.get(key), self._known.get(key)
        for at, head, value in zip(times, heads, values, strict=True):
            if value is None:
                continue
            gap = known is not None and at - known > MAX_UNOBSERVED_SECONDS
            if written is None or value != written[1] or gap:
                if gap and written is not None and known is not None and known > written[0]:
                    yield _value(track, _packet_head(known), written[1])
                written = (at, value)
                yield _value(track, head, value)
            known = at
        if written is not None and known is not None:
            self._written[key], self._known[key] = written, known

    def _means(self) -> Iterator[bytes]:
        for at, device, metrics in self._period.means():
            for name, summary in metrics.items():
                key = (device.uuid, name)
                yield from self._counter(key)
                yield _value(
                    self._counters[key], _packet_head(at), summary.most if BY_ID[name].counter else summary.mean
                )

    # Slices and instants

    def _runs(self, runs: list[Run]) -> Iterator[bytes]:
        shown = [_run_slice(run) for run in runs if run_overlaps(run, self._period)]
        yield from self._slices("Runs", self._machine, shown)
        for run in runs:
            if run.step_times and run_overlaps(run, self._period):
                name = f"Steps of {printable(run.title or run.config)}"
                yield from self._slices(name, self._machine, _step_slices(run))

    def _findings(self) -> Iterator[bytes]:
        by_device: dict[str | None, list[Slice]] = {}
        for since, until, finding in self._period.findings():
            details: Arguments = {
                "cause": finding.id,
                "severity": finding.severity,
                "certainty": finding.certainty,
                "evidence": " / ".join(map(printable, finding.evidence)),
                "action": printable(finding.action),
                "pid": finding.pid,
            }
            item = Slice(since, until, printable(finding.title), details)
            by_device.setdefault(finding.device_uuid, []).append(item)
        yield from self._by_device("Findings", by_device)

    def _processes(self) -> Iterator[bytes]:
        by_device: dict[str | None, list[Slice]] = {}
        for life in self._period.lives():
            command = printable(life.command or life.name or "")
            details: Arguments = {
                "pid": life.pid,
                "user": printable(life.user) if life.user else None,
                "command": command,
                "type": life.type,
                "framework": life.framework,
                "container": life.container,
                "mig_instance": life.mig_instance,
                "memory_peak_bytes": life.memory_peak_bytes,
                "sm_percent_max": life.sm_percent_max,
                "sm_percent_mean": life.sm_percent_seconds / life.sm_seconds if life.sm_seconds else None,
            }
            item = Slice(life.first, life.last, f"{program_in_command(command) or 'process'} ({life.pid})", details)
            by_device.setdefault(life.device_uuid, []).append(item)
        yield from self._by_device("Processes", by_device)

    def _by_device(self, name: str, found: dict[str | None, list[Slice]]) -> Iterator[bytes]:
        for uuid, slices in found.items():
            yield from self._gpu(uuid)
            yield from self._slices(name, self._parent(uuid), slices)

    def _events(self) -> Iterator[bytes]:
        by_device: dict[str | None, list[Slice]] = {}
        for event in self._period.events():
            details: Arguments = {
                "kind": event.kind,
                "severity": event.severity,
                "certainty": event.certainty,
                "cause": event.cause or None,
                "pid": event.pid,
            }
            for uuid in event.device_uuids or (event.device_uuid,):
                instant = Slice(event.at, event.at, printable(event.text), details)
                by_device.setdefault(uuid, []).append(instant)
        for uuid, found in by_device.items():
            yield from self._gpu(uuid)
            track = self._new_track()
            yield self._track(track, "Events", self._parent(uuid))
            for instant in found:
                yield _packet(_packet_head(instant.begin), _event(track, _INSTANT, instant.name, instant.arguments))

    def _slices(self, name: str, parent: int, found: Iterable[Slice]) -> Iterator[bytes]:
        """Slices on as many tracks as are needed for none to overlap, cut to what is exported."""
        ends: dict[int, float] = {}
        """When the last slice of each track ends."""
        for item in sorted(found, key=lambda item: (item.begin, -item.end)):
            begin, end = max(item.begin, self._period.begin), min(item.end, self._period.end)
            if begin > end:
                continue
            track = next((track for track, until in ends.items() if until <= begin), None)
            if track is None:
                track = self._new_track()
                yield self._track(track, name, parent)
            ends[track] = end
            cut: Arguments = {
                "began_before_the_trace": True if item.begin < begin else None,
                "ended_after_the_trace": True if item.end > end else None,
            }
            yield _packet(_packet_head(begin), _event(track, _BEGIN, item.name, item.arguments | cut))
            for inner in item.inner:
                first, last = max(inner.begin, begin), min(inner.end, end)
                if first <= last:
                    yield _packet(_packet_head(first), _event(track, _BEGIN, inner.name, inner.arguments))
                    yield _packet(_packet_head(last), _event(track, _END))
            yield _packet(_packet_head(end), _event(track, _END))


def run_overlaps(run: Run, period: ExportedPeriod) -> bool:
    """Whether the run is of the time that is exported."""
    item = _run_slice(run)
    return item.begin <= period.end and item.end >= period.begin


def _run_slice(run: Run) -> Slice:
    began = run.started_at.timestamp()
    phases, at = list[Slice](), began
    for name, ended in sorted(run.phases.ended_at.items(), key=lambda entry: entry[1]):
        end = max(began + ended, at)
        details: Arguments = {}
        if name == "steps" and (speed := run.throughput) is not None:
            measured = ("steps", "steps_per_second", "median_step_seconds")
            details = {name: getattr(speed, name) for name in measured}
        phases.append(Slice(at, end, name.replace("_", " "), details))
        at = end
    end = max(began + (run.phases.total_seconds or 0.0), at)
    about: Arguments = {
        "pid": run.pid,
        "verdict": run.verdict,
        "reason": printable(run.verdict_reason) or None,
        "cause": run.primary,
        "framework": f"{run.framework.name} {run.framework.version}" if run.framework else None,
        "workload": run.workload,
    }
    return Slice(began, end, printable(run.title or run.config), about, tuple(phases))


def _step_slices(run: Run) -> Iterator[Slice]:
    """The latest steps of a run, one after the other."""
    began, last = run.started_at.timestamp(), -math.inf
    for moment in run.step_times:
        end = began + moment.t
        # Where a step ends, the next one begins: not a microsecond before.
        begin = max(end - moment.seconds, last)
        several = f"steps {moment.number - moment.steps + 1}-{moment.number}"
        name = f"step {moment.number}" if moment.steps == 1 else several
        if begin <= end:
            yield Slice(begin, end, name, {"steps": moment.steps, "seconds": moment.seconds})
            last = end


def _nanoseconds(at: float) -> int:
    # Times are floats with microseconds: more digits mean nothing.
    return max(round(at * 1e6), 0) * 1000


def _packet_head(at: float) -> bytes:
    """Timestamp, clock and writer of a packet."""
    return b"\x40" + varint(_nanoseconds(at)) + _CLOCK + _SEQUENCE


def _packet(head: bytes, event: bytes) -> bytes:
    return message(1, head + message(11, event))


def _event(track: int, kind: int, name: str = "", arguments: Arguments | None = None) -> bytes:
    details = b"".join(
        message(4, text(10, key) + _argument(value)) for key, value in (arguments or {}).items() if value is not None
    )
    return number(9, kind) + number(11, track) + (text(23, name) if name else b"") + details


def _argument(value: str | int | float | bool) -> bytes:
    if isinstance(value, bool):
        return number(2, value)
    if isinstance(value, int):
        return number(4, value)
    if isinstance(value, float):
        return double(5, value)
    return text(6, printable(value))


def _value(track: int, head: bytes, value: float) -> bytes:
    """A packet with a counter's value: an integer if it is whole."""
    if value.is_integer() and _int64[0] <= value <= _int64[1]:
        counted = b"\xf0\x01" + varint(int(value))
    else:
        counted = b"\xe1\x02" + _packed_double(value)
    return _packet(head, b"\x48\x04\x58" + varint(track) + counted)

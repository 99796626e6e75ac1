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
from gpuwatch.machine.history.abstract_sample_store import SeriesKey
from gpuwatch.machine.history.sample_gaps import MAX_UNOBSERVED_SECONDS
from gpuwatch.share.exports.exported_period import ExportedPeriod
from gpuwatch.share.exports.protobuf_encoding import double_field, integer_field, message_field, text_field, varint

REALTIME = 1
"""BuiltinClock of clock_snapshot.proto."""
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
"""TrackEvent.Type."""
_SEQUENCE = integer_field(10, 1)
"""Sequence id, the same in all packets: there is one writer."""
_CLOCK = integer_field(58, REALTIME)
_UNITS = {Unit.BYTES: integer_field(3, 3), Unit.COUNT: integer_field(3, 2)}
"""CounterDescriptor.Unit; other units are given by name."""
_INT64_RANGE = -(1 << 63), (1 << 63) - 1
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
    return _TraceWriter(period).pieces(list(runs))


class _TraceWriter:
    """Assigns tracks, and makes the packets of one trace."""

    def __init__(self, period: ExportedPeriod) -> None:
        self._period = period
        # Ids must not collide with those of a trace beside which this one is shown.
        seed = hashlib.sha256(f"{period.host} {period.begin}".encode()).digest()
        self._last_track = int.from_bytes(seed[:4], "big") << 16
        self._gpu_tracks: dict[str, int] = {}
        """Tracks by UUID."""
        self._counter_tracks: dict[SeriesKey, int] = {}
        self._last_packets: dict[SeriesKey, tuple[float, float]] = {}
        """Time and value of the last packet of each counter."""
        self._last_value_at: dict[SeriesKey, float] = {}
        """When each counter had a value last."""

    def pieces(self, runs: list[Run]) -> Iterator[bytes]:
        period = self._period
        clocks = message_field(1, integer_field(1, REALTIME) + integer_field(2, _nanoseconds(period.begin)))
        yield message_field(1, _SEQUENCE + message_field(6, clocks + integer_field(2, REALTIME)))
        self._machine_track = self._new_track()
        note = " (simulated)" if period.last.simulated else ""
        yield self._track_packet(self._machine_track, f"{printable(period.host or 'machine')}{note}")
        for device in period.last.devices:
            yield from self._gpu_track(device.uuid)
        yield from self._run_packets(runs)
        yield from self._finding_packets()
        yield from self._process_packets()
        yield from self._event_packets()
        yield from self._mean_packets() if period.step else self._sample_packets()

    # Tracks

    def _new_track(self) -> int:
        self._last_track += 1
        return self._last_track

    def _track_packet(self, track: int, name: str, parent: int | None = None, counter: bytes | None = None) -> bytes:
        descriptor = integer_field(1, track) + text_field(2, name)
        if parent is not None:
            descriptor += integer_field(5, parent)
        if counter is not None:
            descriptor += message_field(8, counter)
        else:
            descriptor += integer_field(11, 2)  # children in the order in which they are described
        return message_field(1, _SEQUENCE + message_field(60, descriptor))

    def _gpu_track(self, uuid: str | None) -> Iterator[bytes]:
        """The track of a GPU, described where it is first needed."""
        if uuid is not None and uuid not in self._gpu_tracks:
            device = self._period.device(uuid, self._period.end)
            name = f"{f'GPU {device.index}' if device.index >= 0 else uuid} {printable(device.name)}".strip()
            self._gpu_tracks[uuid] = self._new_track()
            yield self._track_packet(self._gpu_tracks[uuid], name, self._machine_track)

    def _parent_track(self, uuid: str | None) -> int:
        return self._machine_track if uuid is None else self._gpu_tracks[uuid]

    # Counters

    def _counter_track(self, key: SeriesKey) -> Iterator[bytes]:
        """The track of a metric of a GPU, described where it is first needed."""
        if key not in self._counter_tracks:
            yield from self._gpu_track(key[0])
            spec = BY_ID[key[1]]
            self._counter_tracks[key] = self._new_track()
            unit = _UNITS.get(spec.unit) or text_field(6, spec.unit.value)
            yield self._track_packet(self._counter_tracks[key], spec.title, self._gpu_tracks[key[0]], unit)

    def _sample_packets(self) -> Iterator[bytes]:
        for times, columns in self._period.numbers():
            heads = [_packet_head(at) for at in times]
            for key in sorted(columns):
                values = columns[key]
                if key not in self._counter_tracks and all(value is None for value in values):
                    continue
                yield from self._counter_track(key)
                yield b"".join(self._change_packets(key, times, heads, values))
        for key, at in self._last_value_at.items():
            if at > self._last_packets[key][0]:
                yield _counter_packet(self._counter_tracks[key], _packet_head(at), self._last_packets[key][1])

    def _change_packets(
        self, key: SeriesKey, times: Sequence[float], heads: Sequence[bytes], values: Sequence[float | None]
    ) -> Iterator[bytes]:
        """The packets of a counter where it changed, and of its last value before a time without values."""
        track = self._counter_tracks[key]
        last_packet, last_value_at = self._last_packets.get(key), self._last_value_at.get(key)
        for at, head, value in zip(times, heads, values, strict=True):
            if value is None:
                continue
            gap = last_value_at is not None and at - last_value_at > MAX_UNOBSERVED_SECONDS
            if last_packet is None or value != last_packet[1] or gap:
                if gap and last_packet is not None and last_value_at is not None and last_value_at > last_packet[0]:
                    yield _counter_packet(track, _packet_head(last_value_at), last_packet[1])
                last_packet = (at, value)
                yield _counter_packet(track, head, value)
            last_value_at = at
        if last_packet is not None and last_value_at is not None:
            self._last_packets[key], self._last_value_at[key] = last_packet, last_value_at

    def _mean_packets(self) -> Iterator[bytes]:
        for at, device, metrics in self._period.means():
            for name, summary in metrics.items():
                key = (device.uuid, name)
                value = summary.most if BY_ID[name].counter else summary.mean
                yield from self._counter_track(key)
                yield _counter_packet(self._counter_tracks[key], _packet_head(at), value)

    # Slices and instants

    def _run_packets(self, runs: list[Run]) -> Iterator[bytes]:
        run_slices = [_run_slice(run) for run in runs if run_overlaps(run, self._period)]
        yield from self._slice_packets("Runs", self._machine_track, run_slices)
        for run in runs:
            if run.step_times and run_overlaps(run, self._period):
                name = f"Steps of {printable(run.title or run.config)}"
                yield from self._slice_packets(name, self._machine_track, _step_slices(run))

    def _finding_packets(self) -> Iterator[bytes]:
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
        yield from self._slice_packets_by_device("Findings", by_device)

    def _process_packets(self) -> Iterator[bytes]:
        by_device: dict[str | None, list[Slice]] = {}
        for lifetime in self._period.process_lifetimes():
            command = printable(lifetime.command or lifetime.name or "")
            details: Arguments = {
                "pid": lifetime.pid,
                "user": printable(lifetime.user) if lifetime.user else None,
                "command": command,
                "type": lifetime.type,
                "framework": lifetime.framework,
                "container": lifetime.container,
                "mig_instance": lifetime.mig_instance,
                "memory_peak_bytes": lifetime.memory_peak_bytes,
                "sm_percent_max": lifetime.sm_percent_max,
                "sm_percent_mean": lifetime.sm_percent_seconds / lifetime.sm_seconds if lifetime.sm_seconds else None,
            }
            name = f"{program_in_command(command) or 'process'} ({lifetime.pid})"
            item = Slice(lifetime.first, lifetime.last, name, details)
            by_device.setdefault(lifetime.device_uuid, []).append(item)
        yield from self._slice_packets_by_device("Processes", by_device)

    def _slice_packets_by_device(self, name: str, by_device: dict[str | None, list[Slice]]) -> Iterator[bytes]:
        for uuid, slices in by_device.items():
            yield from self._gpu_track(uuid)
            yield from self._slice_packets(name, self._parent_track(uuid), slices)

    def _event_packets(self) -> Iterator[bytes]:
        by_device: dict[str | None, list[Slice]] = {}
        for event in self._period.events():
            details: Arguments = {
                "kind": event.kind,
                "severity": event.severity,
                "certainty": event.certainty,
                "cause": event.cause or None,
                "pid": event.pid,
            }
            for uuid in event.all_device_uuids or (None,):
                instant = Slice(event.at, event.at, printable(event.text), details)
                by_device.setdefault(uuid, []).append(instant)
        for uuid, instants in by_device.items():
            yield from self._gpu_track(uuid)
            track = self._new_track()
            yield self._track_packet(track, "Events", self._parent_track(uuid))
            for item in instants:
                yield _packet(_packet_head(item.begin), _track_event(track, _INSTANT, item.name, item.arguments))

    def _slice_packets(self, name: str, parent: int, slices: Iterable[Slice]) -> Iterator[bytes]:
        """Slices on as many tracks as are needed for none to overlap, cut to what is exported."""
        ends: dict[int, float] = {}
        """When the last slice of each track ends."""
        for item in sorted(slices, key=lambda item: (item.begin, -item.end)):
            begin, end = max(item.begin, self._period.begin), min(item.end, self._period.end)
            if begin > end:
                continue
            track = next((track for track, until in ends.items() if until <= begin), None)
            if track is None:
                track = self._new_track()
                yield self._track_packet(track, name, parent)
            ends[track] = end
            cut_details: Arguments = {
                "began_before_the_trace": True if item.begin < begin else None,
                "ended_after_the_trace": True if item.end > end else None,
            }
            yield _packet(_packet_head(begin), _track_event(track, _BEGIN, item.name, item.arguments | cut_details))
            for inner in item.inner:
                first, last = max(inner.begin, begin), min(inner.end, end)
                if first <= last:
                    yield _packet(_packet_head(first), _track_event(track, _BEGIN, inner.name, inner.arguments))
                    yield _packet(_packet_head(last), _track_event(track, _END))
            yield _packet(_packet_head(end), _track_event(track, _END))


def run_overlaps(run: Run, period: ExportedPeriod) -> bool:
    """Whether the run is of the time that is exported."""
    item = _run_slice(run)
    return item.begin <= period.end and item.end >= period.begin


def _run_slice(run: Run) -> Slice:
    began = run.started_at.timestamp()
    phases, phase_begin = list[Slice](), began
    for name, ended in sorted(run.phases.ended_at.items(), key=lambda entry: entry[1]):
        end = max(began + ended, phase_begin)
        details: Arguments = {}
        if name == "steps" and (speed := run.throughput) is not None:
            measured = ("steps", "steps_per_second", "median_step_seconds")
            details = {name: getattr(speed, name) for name in measured}
        phases.append(Slice(phase_begin, end, name.replace("_", " "), details))
        phase_begin = end
    end = max(began + (run.phases.total_seconds or 0.0), phase_begin)
    details_of_run: Arguments = {
        "pid": run.pid,
        "verdict": run.verdict,
        "reason": printable(run.verdict_reason) or None,
        "cause": run.primary,
        "framework": f"{run.framework.name} {run.framework.version}" if run.framework else None,
        "workload": run.workload,
    }
    return Slice(began, end, printable(run.title or run.config), details_of_run, tuple(phases))


def _step_slices(run: Run) -> Iterator[Slice]:
    """The latest steps of a run, one after the other."""
    began, previous_end = run.started_at.timestamp(), -math.inf
    for moment in run.step_times:
        end = began + moment.t
        # Where a step ends, the next one begins: not a microsecond before.
        begin = max(end - moment.seconds, previous_end)
        name_of_several = f"steps {moment.number - moment.steps + 1}-{moment.number}"
        name = f"step {moment.number}" if moment.steps == 1 else name_of_several
        if begin <= end:
            yield Slice(begin, end, name, {"steps": moment.steps, "seconds": moment.seconds})
            previous_end = end


def _nanoseconds(at: float) -> int:
    # Times are floats with microseconds: more digits mean nothing.
    return max(round(at * 1e6), 0) * 1000


def _packet_head(at: float) -> bytes:
    """Timestamp, clock and writer of a packet."""
    return b"\x40" + varint(_nanoseconds(at)) + _CLOCK + _SEQUENCE


def _packet(head: bytes, event: bytes) -> bytes:
    return message_field(1, head + message_field(11, event))


def _track_event(track: int, kind: int, name: str = "", arguments: Arguments | None = None) -> bytes:
    details = b"".join(
        message_field(4, text_field(10, key) + _argument(value))
        for key, value in (arguments or {}).items()
        if value is not None
    )
    return integer_field(9, kind) + integer_field(11, track) + (text_field(23, name) if name else b"") + details


def _argument(value: str | int | float | bool) -> bytes:
    if isinstance(value, bool):
        return integer_field(2, value)
    if isinstance(value, int):
        return integer_field(4, value)
    if isinstance(value, float):
        return double_field(5, value)
    return text_field(6, printable(value))


def _counter_packet(track: int, head: bytes, value: float) -> bytes:
    """A packet with a counter's value: an integer if it is whole."""
    if value.is_integer() and _INT64_RANGE[0] <= value <= _INT64_RANGE[1]:
        value_field = b"\xf0\x01" + varint(int(value))
    else:
        value_field = b"\xe1\x02" + _packed_double(value)
    return _packet(head, b"\x48\x04\x58" + varint(track) + value_field)

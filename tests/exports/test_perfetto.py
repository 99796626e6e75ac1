"""Perfetto traces: the numbers of the recording, on tracks that a strict reader accepts."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.core.model.run import Phases, Run, Throughput, TimedStep
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.traces import protobuf_reader
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.share.exports import perfetto_writer, protobuf_encoding
from gpuwatch.share.exports.exported_period import NUMERIC_METRICS, select_period
from tests.exports.recorded import SECRET, START, moment
from tests.exports.trace_reader import Trace, Track

RUN = Run(
    config="growth", title="Memory growth", group="memory", workload="matmul", simulated=True, verdict="ok",
    started_at=datetime.datetime.fromtimestamp(START + 30, datetime.UTC), pid=4242,
    phases=Phases(total_seconds=60.0, ended_at={"import": 5.0, "device_init": 7.5, "first_step": 9.0, "steps": 59.0}),
    throughput=Throughput(
        steps=500, warmup_steps=1, median_step_seconds=0.1, p10_step_seconds=0.09, p90_step_seconds=0.11,
        steps_per_second=10.0,
    ),
)  # fmt: skip


def trace_of(file: Path, *, step: int = 0, runs: tuple[Run, ...] = (), **times: str) -> bytes:
    with Recording(file) as recording:
        chosen = select_period(recording, times.get("since"), times.get("until"), step)
        return b"".join(perfetto_writer.write(chosen, runs))


@pytest.fixture(scope="module")
def data(file: Path) -> bytes:
    return trace_of(file, runs=(RUN,))


@pytest.fixture(scope="module")
def trace(data: bytes) -> Trace:
    return Trace(data)


@pytest.fixture(scope="module")
def shots(file: Path) -> list[Snapshot]:
    with Recording(file) as recording:
        return [kept.snapshot for kept in recording.snapshots()]


def nanoseconds(shot: Snapshot) -> int:
    return (
        (shot.taken_at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC))
        // datetime.timedelta(microseconds=1)
        * 1000
    )


def held(track: Track, at: int) -> float | None:
    """The value that a viewer shows at a moment."""
    before = [value for when, value in track.values if when <= at]
    return before[-1] if before else None


def test_counters_are_the_numbers_of_the_recording(trace: Trace, shots: list[Snapshot]) -> None:
    compared = 0
    for device in shots[0].devices:
        for spec in NUMERIC_METRICS:
            found = trace.named(f"node07 / GPU {device.index} {device.name} / {spec.title}")
            points = {nanoseconds(shot): shot.devices[device.index].number(spec.id) for shot in shots}
            known = {at: value for at, value in points.items() if value is not None}
            assert len(found) == bool(known), spec.id
            if not known:
                continue
            (track,) = found
            values = dict(track.values)
            assert set(values) <= set(known), f"{spec.id}: a value at a time without one"
            last = None
            for at, value in known.items():
                last = values.get(at, last)
                assert last == value, f"{spec.id} at {at}"
                compared += 1
            assert max(values) == max(known), f"{spec.id}: the last value is written where it was last read"
    assert compared > 10_000


def test_the_last_value_before_a_gap_is_written(trace: Trace, shots: list[Snapshot]) -> None:
    (track,) = trace.named(f"node07 / GPU 0 {shots[0].devices[0].name} / Memory total")
    times = [nanoseconds(shot) for shot in shots]
    before, after = next((a, b) for a, b in pairwise(times) if b - a > 50e9)
    assert [at for at, _ in track.values] == [times[0], before, after, times[-1]]


def test_units(trace: Trace) -> None:
    units = {track.name: track.unit for track in trace.tracks.values() if track.counter}
    assert units["Memory used"] == "B"
    assert units["Power draw"] == "W"
    assert units["GPU utilization"] == "%"
    assert units["PCIe link generation"] == ""


def slices(trace: Trace, path: str) -> Iterator[tuple[int, int, int, str, dict[str, object]]]:
    for track in trace.named(path):
        yield from track.slices


def test_processes_are_slices_of_their_gpu(trace: Trace, shots: list[Snapshot]) -> None:
    last = {row.key: nanoseconds(shot) for shot in shots for row in shot.processes}
    first = {row.key: nanoseconds(shot) for shot in reversed(shots) for row in shot.processes}
    found = []
    for device in shots[0].devices:
        for begin, end, depth, _, arguments in slices(trace, f"node07 / GPU {device.index} {device.name} / Processes"):
            assert depth == 0
            found.append((device.uuid, arguments["pid"], begin, end))
    assert sorted(found) == sorted(
        (uuid, pid, first[uuid, pid, made], last[uuid, pid, made]) for uuid, pid, made in last
    )


def test_steps_of_a_run_are_slices_on_the_same_clock(file: Path) -> None:
    steps = [
        TimedStep(t=20.0, seconds=0.5, number=2),
        TimedStep(t=20.25, seconds=0.25, number=3),
        TimedStep(t=21.000001, seconds=0.750003, number=5, steps=2),  # rounded: a little longer than it can be
        TimedStep(t=21.5, seconds=0.1, number=6),
        TimedStep(t=9000.0, seconds=1.0, number=7),  # long after the recording
    ]
    trace = Trace(trace_of(file, runs=(replace(RUN, step_times=tuple(steps)),)))
    (track,) = trace.named("node07 / Steps of Memory growth")
    began = START + 30
    found = [((begin / 1e9 - began), (end / 1e9 - began), name) for begin, end, _, name, _ in track.slices]
    assert found == [
        (pytest.approx(19.5, abs=1e-5), pytest.approx(20.0, abs=1e-5), "step 2"),
        (pytest.approx(20.0, abs=1e-5), pytest.approx(20.25, abs=1e-5), "step 3"),
        (pytest.approx(20.25, abs=1e-5), pytest.approx(21.0, abs=1e-5), "steps 4-5"),
        (pytest.approx(21.4, abs=1e-5), pytest.approx(21.5, abs=1e-5), "step 6"),
    ]
    assert [arguments["steps"] for *_, arguments in track.slices] == [1, 1, 2, 1]


def test_secrets_are_masked(data: bytes) -> None:
    assert b"--token" in data
    assert SECRET.encode() not in data


def test_events_and_findings(trace: Trace, shots: list[Snapshot]) -> None:
    gpu = f"node07 / GPU 0 {shots[0].devices[0].name}"
    ((begin, end, _, name, arguments),) = slices(trace, f"{gpu} / Findings")
    assert (begin, end) == ((START + 50) * 1e9, nanoseconds(shots[149]))
    assert name == "GPU 0 is throttled"
    assert arguments["cause"] == "throttle.thermal"
    (track,) = trace.named(f"{gpu} / Events")
    assert [(at, text) for at, text, _ in track.instants] == [(nanoseconds(shots[50]), "GPU 0 is throttled")]
    (machine,) = trace.named("node07 / Events")
    assert [text for _, text, _ in machine.instants] == ["recording began, every 1 s", "recording ended: by SIGINT"]


def test_phases_of_runs_are_on_the_same_clock(trace: Trace) -> None:
    found = sorted(slices(trace, "node07 / Runs"))
    base = round((START + 30) * 1e9)
    outer = next(one for one in found if one[2] == 0)
    assert outer[:4] == (base, base + 60_000_000_000, 0, "Memory growth")
    inner = {name: ((begin - base) / 1e9, (end - base) / 1e9) for begin, end, depth, name, _ in found if depth}
    assert inner == {"import": (0, 5), "device init": (5, 7.5), "first step": (7.5, 9), "steps": (9, 59)}
    (steps,) = [arguments for _, _, _, name, arguments in found if name == "steps"]
    assert steps == {"steps": 500, "steps_per_second": 10.0, "median_step_seconds": 0.1}


def test_a_run_of_another_time_is_left_out(file: Path) -> None:
    assert not Trace(trace_of(file, runs=(RUN,), since=moment(START + 120))).named("node07 / Runs")


def test_slices_are_cut_to_the_stretch(file: Path) -> None:
    trace = Trace(trace_of(file, runs=(RUN,), since=moment(START + 36), until=moment(START + 100)))
    times = [at for track in trace.tracks.values() for begin, end, *_ in track.slices for at in (begin, end)]
    assert min(times) == (START + 36) * 1e9
    assert max(times) == (START + 100) * 1e9
    outer = next(one for one in slices(trace, "node07 / Runs") if one[2] == 0)
    assert outer[4]["began_before_the_trace"] is True
    assert {one[3] for one in slices(trace, "node07 / Runs") if one[2]} == {"device init", "first step", "steps"}


def test_overlapping_slices_get_tracks_of_their_own(trace: Trace) -> None:
    for track in trace.tracks.values():
        tops = sorted((begin, end) for begin, end, depth, *_ in track.slices if depth == 0)
        assert all(one[1] <= two[0] for one, two in pairwise(tops)), track.name


def test_means(file: Path) -> None:
    trace = Trace(trace_of(file, step=60))
    with Recording(file) as recording:
        points = recording.summaries(60, 0, 1e11, frozenset(["utilization.gpu_percent"]))
    track = next(one for one in trace.tracks.values() if one.name == "GPU utilization")
    assert [value for _, value in track.values] == [
        summary.mean
        for found in points.values()
        for (uuid, _), summary in found.items()
        if uuid.startswith("GPU-00000000")
    ]


def test_perfettos_own_definitions_read_it(data: bytes, trace: Trace) -> None:
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    read = proto.Trace()
    read.ParseFromString(data)
    assert read.packet[0].clock_snapshot.primary_trace_clock == proto.BUILTIN_CLOCK_REALTIME
    names = {packet.track_descriptor.name for packet in read.packet if packet.HasField("track_descriptor")}
    assert names == {track.name for track in trace.tracks.values()}
    events = [packet for packet in read.packet if packet.HasField("track_event")]
    assert {packet.timestamp_clock_id for packet in events} == {proto.BUILTIN_CLOCK_REALTIME}
    counters: dict[int, list[tuple[int, float]]] = {}
    for packet in events:
        event = packet.track_event
        if event.type == proto.TrackEvent.TYPE_COUNTER:
            value = event.counter_value if event.HasField("counter_value") else event.double_counter_value
            counters.setdefault(event.track_uuid, []).append((packet.timestamp, value))
    assert counters == {uuid: track.values for uuid, track in trace.tracks.items() if track.counter}
    assert not any(packet.track_event.FindInitializationErrors() for packet in events)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers_go_through_the_wire_format(number: int) -> None:
    written = protobuf_encoding.integer_field(30, number)
    ((field, kind, value, _),) = protobuf_reader.fields(written, 0, len(written))
    assert (field, kind, protobuf_reader.signed(value)) == (30, protobuf_reader.VARINT, number)

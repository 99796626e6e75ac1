"""Reports of a stretch of a recording: graphs, bands, what changed before."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.recorded_period import GRAPHED, Period, PeriodEvent, PeriodRun
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.session.recorded_period_document import period_document
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.share.reports.report_formats import FORMATS, render
from tests.recording import incident
from tests.recording.days import day
from tests.recording.incident import APART, BEGIN, COOL, HOT, LIMITED, NEW, OFF, SAMPLES, STARTED
from tests.recording.recordings import BEGIN as RECORDED
from tests.recording.recordings import recorded
from tests.reports.documents import full_run

END = BEGIN + (SAMPLES - 1) * APART


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("period") / "incident.gpuwatch"
    incident.record(path)
    return path


def of(path: Path, tmp_path: Path, first: float = 0, last: float = SAMPLES - 1) -> Period:
    """From one sample to another."""
    with Recording(path) as recording:
        begin, end = (BEGIN + number * APART for number in (first, last))
        return period_document(recording, begin, min(end, recording.end or end), runs=RunStore(tmp_path))


def at(sample: float) -> float:
    return BEGIN + sample * APART


def test_graphs_are_the_values_of_the_samples(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path, 300, 480)
    assert document.step_seconds == 10
    device = document.devices[1]
    assert list(device.series) != []
    assert set(device.series) == set(GRAPHED)
    with Recording(file) as recording:
        shots = [kept.snapshot for kept in recording.snapshots(at(300), at(480) + 1)]
    watts = [shot.devices[1].number("power.draw_watts") for shot in shots]
    series = device.series["power.draw_watts"]
    found = [one for one in series.mean if one is not None]
    assert found == pytest.approx([one for one in watts if one is not None][: len(found)], abs=0.01)
    assert len(found) >= 179
    assert device.tops == {
        "utilization.gpu_percent": 100.0, "memory.used_bytes": pytest.approx(139.8 * 2**30, abs=1),
        "power.draw_watts": 500.0, "temperature.gpu_celsius": 100.0, "clocks.sm_mhz": 1980,
    }  # fmt: skip


def test_a_long_stretch_has_means_and_a_gap(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path)
    assert document.step_seconds == 15
    (gap,) = document.gaps
    assert (gap.begin.timestamp(), gap.end.timestamp()) == (
        pytest.approx(at(OFF[0] - 1), abs=0.1),
        pytest.approx(at(OFF[1]), abs=0.1),
    )
    series = document.devices[0].series["utilization.gpu_percent"]
    inside = [series.mean[n] for n in range(len(series.mean)) if at(OFF[0]) < BEGIN + n * 15 < at(OFF[1] - 2)]
    assert inside
    assert set(inside) == {None}, "not recorded is not 0"
    for one in document.devices[1].series.values():
        for least, mean, most in zip(one.least, one.mean, one.most, strict=True):
            assert (least is None) == (mean is None) == (most is None)
            assert least is None or mean is None or most is None or least <= mean <= most


def test_what_changed_before_the_finding(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path)
    assert document.primary == "throttle.thermal"
    assert document.trouble is not None
    assert at(HOT) - 1 < document.trouble.timestamp() < at(HOT + 12)
    told = [(one.kind, one.text) for one in document.changes]
    assert ("setting", "GPU 1: enforced power limit 700 W → 500 W") in told
    (started,) = [text for kind, text in told if kind == "process"]
    assert f"({NEW}) started using GPU 1" in started
    assert not [text for kind, text in told if kind == "reading" and "GPU 0" in text], "of the GPU of the finding"
    when = [one.at.timestamp() for one in document.changes]
    assert when == sorted(when)
    assert all(one <= document.trouble.timestamp() for one in when)
    assert (LIMITED, STARTED) < (HOT, HOT)
    (found,) = [one for one in document.findings if one.finding.id == "throttle.thermal"]
    assert found.end.timestamp() == pytest.approx(at(COOL), abs=60)


def test_without_a_finding_nothing_is_told_of_causes(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path, 10, 100)
    bad = [one for one in document.findings if one.finding.severity != "info"]
    assert (document.trouble, document.changes) == (None, ()) if not bad else True
    quiet = replace(document, findings=(), primary=None, trouble=None, changes_begin=None, changes=())
    content = content_of(quiet)
    assert (content.state, content.verdict) == ("ok", "healthy")
    assert "What changed before" not in {table.title for table in content.tables}


def test_failed_programs_and_their_xids_are_told_where_the_gpus_are_well(file: Path, tmp_path: Path) -> None:
    """Two Xids 31 and two runs out of memory on an H200 were "No problems found"."""
    quiet = of(file, tmp_path, 60, 90)
    when = quiet.begin
    xids = [
        PeriodEvent(
            at=when, kind="program.xid", severity="warning", text=f"GPU 0: driver reported Xid {code} (a fault)"
        )
        for code in (31, 43, 31)
    ]
    runs = [
        PeriodRun(name="train.py", verdict=verdict, begin=when, end=None) for verdict in ("ok", "oom", "oom", "error")
    ]
    content = content_of(replace(quiet, events=tuple(xids), runs=tuple(runs)))
    assert (content.state, content.verdict) == ("warning", "warning")
    assert content.reason.endswith("1 run failed, 2 runs ran out of memory, Xid 31 (2 times), Xid 43.")
    assert content_of(replace(quiet, runs=tuple(runs[:1]))).verdict == "healthy"


def test_nothing_is_called_well_where_too_little_can_be_read(tmp_path: Path) -> None:
    """The driver fails in the last sample: for too short a time to be a finding."""

    def shots() -> Iterator[Snapshot]:
        *well, last = day(1, 1, 20)
        yield from (replace(shot, processes=()) for shot in well)
        (device,) = last.devices
        failed = dict.fromkeys(("memory.used_bytes", "utilization.gpu_percent"), Missing("failed", code=999))
        known = {name: value for name, value in device.readings.items() if name not in failed}
        yield replace(last, devices=(replace(device, readings=known, missing=failed),), processes=())

    with Recording(recorded(tmp_path / "short.gpuwatch", shots())) as recording:
        begin, end = recording.extent()
        whole = content_of(period_document(recording, begin, end, runs=RunStore(tmp_path)))
        before = content_of(period_document(recording, begin, end - 1.5, runs=RunStore(tmp_path)))
    assert (before.state, before.verdict) == ("ok", "healthy")
    assert (whole.state, whole.verdict) == ("unknown", "unknown")
    assert "too little" in whole.reason


def test_saved_runs_of_this_machine_are_bands(file: Path, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    begun = datetime.datetime.fromtimestamp(at(50), datetime.UTC)
    for changes in (
        {"host": "node07", "started_at": begun, "simulated": False},
        {"host": "elsewhere", "started_at": begun + datetime.timedelta(seconds=9), "simulated": False},
        {"host": "node07", "started_at": begun - datetime.timedelta(days=3), "simulated": False},
    ):
        store.save(replace(full_run(), **changes))
    document = of(file, tmp_path)
    (run,) = document.runs
    assert run.begin == begun
    assert run.end is not None
    assert (run.end - run.begin).total_seconds() == full_run().phases.total_seconds
    assert (run.name, run.device_uuids) == ("probe soft-missing", (full_run().memory.device_uuid,))
    assert f"run {run.name}" not in render(document, "html"), "it was on another machine's GPU"
    mine = replace(run, name="mine.py", device_uuids=(document.devices[1].uuid,))
    _, *graphs = render(replace(document, runs=(mine,)), "html").split('<figure class="chart">')
    assert ["mine.py" in one.partition("</svg>")[0] for one in graphs] == [False, True], "on the GPU that it used"


def test_the_name_of_a_watched_program_is_its_file(file: Path, tmp_path: Path) -> None:
    began = datetime.datetime.fromtimestamp(at(50), datetime.UTC)
    title = "/opt/venv/bin/python -u /home/alice/train.py --token=secret"
    watched = replace(full_run(), host="node07", simulated=False, group="run", title=title, started_at=began)
    RunStore(tmp_path).save(watched)
    assert [one.name for one in of(file, tmp_path).runs] == ["train.py"]


def test_processes_are_counted_in_this_time_alone(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path, STARTED, STARTED + 90)
    (new,) = [one for one in document.usage.groups if one.pid == NEW]
    assert new.process_hours == pytest.approx(90 * APART / 3600, rel=0.02)
    assert {one.pid for one in document.processes} == {one.pid for one in document.usage.groups}
    (band,) = [one for one in document.processes if one.pid == NEW]
    assert band.begin.timestamp() == pytest.approx(at(STARTED), abs=0.1)


@pytest.mark.parametrize("name", [entry.name for entry in FORMATS])
def test_every_format_draws_it(file: Path, tmp_path: Path, name: str) -> None:
    document = of(file, tmp_path)
    drawn = render(document, name)
    assert "GPU-00000001" in drawn or "throttle.thermal" in drawn
    redacted = render(document, name, redact=True)
    assert not [word for word in ("alice", "node07", "carol") if word in redacted]
    assert from_json(to_json(document).encode()) == document


def test_html_has_graphs_bands_and_values(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path)
    drawn = render(document, "html")
    assert drawn.count('<figure class="chart">') == 2
    assert drawn.count('class="line course"') >= 2 * len(GRAPHED)
    assert 'class="band warning"' in drawn
    assert 'class="not-recorded"' in drawn
    assert drawn.count('class="at"') > 100
    warm = [part.partition("</svg>")[0] for part in drawn.split('<figure class="chart">')][2]
    (found,) = [one.finding for one in document.findings if one.finding.id == "throttle.thermal"]
    assert f">{found.title}</text>" in warm, "named on paper too"
    assert re.search(rf"<title>{re.escape(found.title)}, \d\d:\d\d:\d\d to \d\d:\d\d:\d\d</title>", warm), (
        "within a day"
    )
    assert re.search(rf'class="at"[^>]*><title>[^<]*; {re.escape(found.title)}</title>', warm), "and where it is shaded"
    assert "http" not in drawn.replace("http-equiv", ""), "no request"


def test_a_note_does_not_tint_a_graph(file: Path, tmp_path: Path) -> None:
    document = of(file, tmp_path)
    notes = tuple(
        replace(one, finding=replace(one.finding, severity="info")) for one in document.findings if one.finding
    )
    drawn = render(replace(document, findings=notes), "html").partition("</style>")[2]
    assert notes
    assert 'class="band' not in drawn


def test_text_draws_the_course(file: Path, tmp_path: Path) -> None:
    for width in (80, 120):
        drawn = render(of(file, tmp_path), "text", width=width)
        assert max(map(len, drawn.splitlines())) <= width
        assert drawn.count("SM clock  ") >= 2
        assert "█" in drawn


def test_what_was_not_recorded_is_an_error(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing was recorded from"):
        of(file, tmp_path, -200, -100)
    with pytest.raises(UsageError, match="is after the end"):
        of(file, tmp_path, 100, 50)
    assert END > BEGIN


def _ill(samples: int = 900) -> Iterator[Snapshot]:
    """GPU 3 is too hot for a minute, then GPUs 1 and 2 count uncorrected errors to the end."""
    for number, shot in enumerate(day(4, 4, samples)):
        devices = [replace(one, readings=one.readings | {"ecc.uncorrected": 0}) for one in shot.devices]
        if 100 <= number < 180:
            hot: dict[str, Value] = {"clocks.event_reasons": "hw-thermal", "temperature.gpu_celsius": 91}
            devices[3] = replace(devices[3], readings=devices[3].readings | hot | {"events.thermal_percent": 90.0})
        if number >= 300:
            for index in (1, 2):
                devices[index] = replace(devices[index], readings=devices[index].readings | {"ecc.uncorrected": 3})
        yield replace(shot, devices=tuple(devices), processes=())


def test_each_gpu_with_a_fault_of_its_own_is_told_and_first_what_is_still_so(tmp_path: Path) -> None:
    path = recorded(tmp_path / "ill.gpuwatch", _ill())
    with Recording(path) as recording:
        document = period_document(recording, *recording.extent(), runs=RunStore(tmp_path))
    content = content_of(document)
    assert (document.primary, content.verdict) == ("hardware.fault", "hardware.fault")
    assert "GPU 1" in content.reason
    assert "still so" in content.reason
    told = [(one.id, one.title) for one in content.findings]
    assert [name for name, _ in told] == ["hardware.fault", "throttle.thermal"]
    assert "GPU 2" in told[0][1]
    assert "still so" in told[0][1]
    assert "still so" not in told[1][1]
    active = {(one.finding.id, one.active) for one in document.findings}
    assert active == {("hardware.fault", True), ("throttle.thermal", False)}
    assert document.trouble is not None, "changes are those before the first problem"
    assert document.trouble.timestamp() < RECORDED + 180


def test_what_had_stopped_shortly_before_the_end_is_not_still_so(tmp_path: Path) -> None:
    """A condition is over only when it has been gone for a while; its times are those in which it was seen."""
    with Recording(recorded(tmp_path / "hot.gpuwatch", islice(_ill(), 200))) as recording:
        document = period_document(recording, *recording.extent(), runs=RunStore(tmp_path))
    (hot,) = document.findings
    assert hot.finding.until is None, "not over yet"
    assert (hot.end - hot.begin).total_seconds() == pytest.approx(79, abs=1)
    assert not hot.active
    assert "still so" not in content_of(document).reason
    assert re.match(r"from \S+ to \S+, for 79 s$", hot.finding.evidence[0]), hot.finding.evidence


def test_axes_of_a_lost_gpu_end_where_those_of_the_gpu_did(tmp_path: Path) -> None:
    for name, begins_lost in (("in-the-end.gpuwatch", False), ("from-begin.gpuwatch", True)):
        shots = [
            _without_gpu_0(shot) if begins_lost or tick >= 60 else shot for tick, shot in enumerate(day(2, 4, 120))
        ]
        path = recorded(tmp_path / name, shots)
        with Recording(path) as recording:
            lost, well = period_document(recording, *recording.extent(), runs=RunStore(tmp_path)).devices
        assert set(well.tops) == set(GRAPHED)
        unknown = {"memory.used_bytes", "power.draw_watts", "clocks.sm_mhz"} if begins_lost else set()
        assert lost.tops == {metric: top for metric, top in well.tops.items() if metric not in unknown}


def _without_gpu_0(shot: Snapshot) -> Snapshot:
    return replace(shot, devices=(replace(shot.devices[0], state="lost", readings={}, missing={}), *shot.devices[1:]))

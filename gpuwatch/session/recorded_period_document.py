"""A period of a recording as a document: graphs, processes, runs, events, findings, and what changed before them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gpuwatch import __version__
from gpuwatch.core.formatting.command_lines import program_in_command
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.sentences import as_clause
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID, METRICS, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.recorded_period import (
    GRAPHED,
    Change,
    ChangeKind,
    Period,
    PeriodDevice,
    PeriodEvent,
    PeriodFinding,
    PeriodProcess,
    PeriodRun,
    PeriodSeries,
)
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.abstract_sample_store import SeriesKey
from gpuwatch.machine.history.sample_gaps import MIN_GAP_INTERVALS, unobserved_limit
from gpuwatch.machine.history.saved_runs import RunStore, is_of_this_machine
from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
from gpuwatch.machine.recording.minute_and_hour_means import HOUR, MINUTE, Summary
from gpuwatch.machine.recording.reader import Recording

_POINT_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
"""Seconds of a point of the graphs."""
_MAX_POINTS = 400
_MAX_PROCESSES_SEARCHED = 3
"""Processes of a lost GPU at whose ends a sample of the GPU is looked for."""
_WATCHED_GROUP = "run"
"""The group of runs of the user's own programs."""
LOOK_BACK_SECONDS = 600.0
"""Seconds before the moment that are looked at."""
_COMPARED_SECONDS = 60.0
"""Seconds whose mean is compared with that of the time before."""
_VOLATILE_METRICS = frozenset({"clocks.event_reasons", "performance.state"})
_SETTING_METRICS = tuple(
    spec.id
    for spec in METRICS
    if (spec.unit is Unit.NAME and spec.id not in _VOLATILE_METRICS)
    or spec.id in ("power.limit_watts", "pcie.width", "nvlink.links_active", "mig.instances")
)
"""Readings that change when somebody or something sets them."""
_MIN_READING_CHANGES: dict[str, tuple[float, str]] = {
    "utilization.gpu_percent": (30.0, ""),
    "memory.used_bytes": (0.1, "memory.total_bytes"),
    "power.draw_watts": (0.2, "power.limit_watts"),
    "temperature.gpu_celsius": (8.0, ""),
    "clocks.sm_mhz": (0.15, "clocks.sm_max_mhz"),
}
"""By how much a reading must have changed to be named: in its unit, or as a share of another reading."""


def period_document(
    recording: Recording,
    begin: float,
    end: float,
    progress: Callable[[float], None] = lambda share: None,
    runs: RunStore | None = None,
) -> Period:
    """The stretch from ``begin`` to ``end``, seconds since the epoch; UsageError if nothing of it was recorded."""
    usage = gpu_usage(recording, begin, end, "process", progress)
    point_seconds = _point_seconds(end - begin, recording.interval)
    graph_begin = begin if point_seconds < MINUTE else begin // point_seconds * point_seconds
    last_sample = recording.at(end)
    is_readable = (
        last_sample is not None
        and begin <= last_sample.at <= end
        and not any(map(unreadable_metrics, last_sample.snapshot.devices))
    )
    devices = {} if last_sample is None else {device.uuid: device for device in last_sample.snapshot.devices}
    findings = tuple(_period_findings(recording, begin, end, () if last_sample is None else last_sample.findings))
    main_finding = min(findings, key=lambda finding: finding.rank, default=None)
    first_problem = next((finding for finding in findings if finding.finding.severity != "info"), None)
    problem_at = None if first_problem is None else first_problem.begin.timestamp()
    problem_gpu = None if first_problem is None else first_problem.finding.device_uuid
    host = usage.host
    return Period(
        source=usage.source,
        host=host,
        simulated=usage.simulated,
        gpuwatch_version=__version__,
        begin=utc_datetime(graph_begin),
        end=utc_datetime(max(end, graph_begin + point_seconds)),
        step_seconds=point_seconds,
        gaps=usage.gaps,
        primary=main_finding.finding.id if main_finding is not None else None if is_readable else "unknown",
        devices=tuple(_period_devices(recording, graph_begin, end, point_seconds, devices)),
        processes=tuple(_period_processes(recording, begin, end)),
        runs=tuple(_period_runs(runs or RunStore(), begin, end, host, simulated=usage.simulated)),
        events=tuple(
            PeriodEvent(
                at=utc_datetime(event.at), kind=event.kind, severity=event.severity, text=event.text,
                device_uuids=event.all_device_uuids,
            )
            for event in recording.events()
            if begin <= event.at <= end
        ),
        findings=findings,
        trouble=utc_datetime(problem_at) if problem_at is not None else None,
        changes_begin=utc_datetime(problem_at - LOOK_BACK_SECONDS) if problem_at is not None else None,
        changes=tuple(changes_before(recording, problem_at, problem_gpu)) if problem_at is not None else (),
        usage=usage,
        notes=usage.notes,
    )  # fmt: skip


def _point_seconds(seconds: float, interval: float) -> float:
    """The shortest step with which a graph has not too many points, and a sample in each."""
    min_seconds = max(seconds / _MAX_POINTS, interval)
    return float(next((step for step in _POINT_SECONDS if step >= min_seconds), _POINT_SECONDS[-1]))


def _period_findings(
    recording: Recording, begin: float, end: float, last: tuple[Finding, ...]
) -> Iterator[PeriodFinding]:
    """The earliest onset first. ``last``: those of the last sample."""
    active_keys = {finding.key for finding in last if not (finding.until or finding.last)}
    period_findings = [finding for finding in recording.findings(begin, end) if finding.finding.id != "healthy"]
    latest_by_key = {finding.finding.key: finding for finding in period_findings}
    for finding in period_findings:
        key = finding.finding.key
        is_active = key in active_keys and latest_by_key[key] is finding  # earlier ones have ended
        yield PeriodFinding(
            begin=utc_datetime(finding.since),
            end=utc_datetime(finding.until),
            finding=finding.finding,
            active=is_active,
        )


def _period_devices(
    recording: Recording, begin: float, end: float, point_seconds: float, devices: dict[str, Device]
) -> Iterator[PeriodDevice]:
    point_count = int((end - begin) // point_seconds) + 1
    points_by_gpu: dict[str, dict[str, list[Summary | None]]] = {}
    for at, (uuid, metric), summary in _point_means(recording, begin, end, point_seconds):
        index = int((at - begin) // point_seconds)
        if 0 <= index < point_count:
            points_by_metric = points_by_gpu.setdefault(uuid, {}).setdefault(metric, [None] * point_count)
            earlier = points_by_metric[index]
            points_by_metric[index] = summary if earlier is None else earlier.merged_with(summary)
    for uuid in points_by_gpu:
        if uuid not in devices:  # lost or removed before the end
            devices |= {
                device.uuid: device for device in islice(_device_states_before_loss(recording, begin, end, uuid), 1)
            }
    period_devices = [
        PeriodDevice(
            index=device.index,
            uuid=uuid,
            name=device.name,
            series={metric: _period_series(points) for metric, points in points_by_gpu.get(uuid, {}).items()},
            tops=_axis_ends(
                [device, *(() if device.state == "ok" else _device_states_before_loss(recording, begin, end, uuid))]
            ),
        )
        for uuid, device in devices.items()
    ]
    yield from sorted(period_devices, key=lambda device: (device.index, device.uuid))


def _device_states_before_loss(recording: Recording, begin: float, end: float, uuid: str) -> Iterator[Device]:
    """A lost device as it was at the start, and when its processes were last seen."""
    ends = [process.last for process in recording.processes(begin, end) if process.device_uuid == uuid]
    for at in (begin, *ends[:_MAX_PROCESSES_SEARCHED], (begin + end) / 2):
        sample = recording.at(at)
        device = sample.snapshot.device(uuid) if sample is not None else None
        if device is not None:
            yield device


def _axis_ends(devices: Iterable[Device]) -> dict[str, float]:
    """Where the axes end, as the first of these that knows it says."""
    ends_by_metric: dict[str, float] = {}
    for device in devices:
        for metric in GRAPHED:
            axis = BY_ID[metric].axis
            ends = axis.ends(device.number) if axis is not None else None
            ends_by_metric |= {metric: ends[1]} if ends is not None and metric not in ends_by_metric else {}
    return ends_by_metric


def _point_means(
    recording: Recording, begin: float, end: float, point_seconds: float
) -> Iterator[tuple[float, SeriesKey, Summary]]:
    """Samples where the steps are short, means of minutes or hours else."""
    metrics = frozenset(GRAPHED)
    for seconds in (HOUR, MINUTE):
        are_stored = recording.summaries_begin(seconds) <= begin + point_seconds or seconds == HOUR
        if point_seconds >= seconds and are_stored:
            for minute, summaries in recording.summaries(seconds, begin, end, metrics).items():
                for key, summary in summaries.items():
                    yield minute, key, summary
            return
    for times, columns in recording.numbers(begin, end, metrics):
        for key, values in columns.items():
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    yield at, key, Summary(value, value, value, 1)


def _period_series(points: list[Summary | None]) -> PeriodSeries:
    return PeriodSeries(
        least=tuple(None if point is None else round(point.least, 2) for point in points),
        mean=tuple(None if point is None else round(point.mean, 2) for point in points),
        most=tuple(None if point is None else round(point.most, 2) for point in points),
    )


def _period_processes(recording: Recording, begin: float, end: float) -> Iterator[PeriodProcess]:
    for process in recording.processes(begin, end):
        yield PeriodProcess(
            pid=process.pid,
            device_uuid=process.device_uuid,
            user=process.user,
            program=program_in_command(printable(process.command or process.name or "")) or None,
            begin=utc_datetime(process.first),
            end=utc_datetime(process.last),
        )


def _period_runs(
    store: RunStore, begin: float, end: float, host: str | None, *, simulated: bool
) -> Iterator[PeriodRun]:
    own_runs = [run for run in store.latest() if is_of_this_machine(run, host, simulated=simulated)]
    for run in sorted(own_runs, key=lambda run: run.started_at):
        seconds = run.phases.total_seconds
        started_at = run.started_at.timestamp()
        mapped_uuids = (mapping.uuid for mapping in run.device_map)
        uuids = [run.memory.device_uuid, *(device.uuid for device in run.memory.devices), *mapped_uuids]
        if started_at <= end and started_at + (seconds or 0.0) >= begin:
            yield PeriodRun(
                name=program_in_command(printable(run.title)) or run.config
                if run.group == _WATCHED_GROUP
                else f"probe {run.config}",
                verdict=run.verdict,
                begin=run.started_at,
                end=None if seconds is None else run.started_at + datetime.timedelta(seconds=seconds),
                device_uuids=tuple(dict.fromkeys(uuid for uuid in uuids if uuid)),
            )


def changes_before(recording: Recording, moment: float, uuid: str | None) -> Iterator[Change]:
    """What changed in the :data:`LOOK_BACK_SECONDS` seconds before ``moment``, oldest first.

    Nothing here says what caused what: it is what somebody would look through first.
    ``uuid``: the GPU whose readings are compared; None: all.
    """
    begin = moment - LOOK_BACK_SECONDS
    all_changes = [*_event_changes(recording, begin, moment), *_recording_gap_changes(recording, begin, moment)]
    first_sample, last_sample = recording.at(begin), recording.at(moment)
    if first_sample is not None and last_sample is not None and first_sample.at < last_sample.at:
        previous = first_sample.snapshot
        for sample in recording.snapshots(begin, moment):
            current = sample.snapshot
            if current.devices is not previous.devices or current.driver is not previous.driver:
                all_changes += _setting_changes(previous, current)
            previous = current
        devices = [device for device in last_sample.snapshot.devices if uuid in (None, device.uuid)]
        all_changes += _reading_changes(recording, begin, moment, devices)
    yield from sorted(all_changes, key=lambda change: change.at)


def _event_changes(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    for event in recording.events():
        if begin <= event.at < moment:
            kind: ChangeKind = "process" if event.kind.startswith("process.") else "event"
            yield _change(event.at, "recording" if event.kind.startswith("recording.") else kind, event.text)


def _recording_gap_changes(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    recording_begin, _ = recording.extent()
    max_gap = unobserved_limit(recording.interval)
    if recording_begin - begin > max_gap:
        unknown_text = f"what happened in the preceding {hours_minutes(recording_begin - begin)} is unknown"
        yield _change(recording_begin, "recording", f"the recording begins here; {unknown_text}")
    for since, until in recording.gaps_of_blocks(max(begin, recording_begin), moment):
        if until - since > max_gap:
            yield _change(until, "recording", f"nothing was recorded in the preceding {hours_minutes(until - since)}")


def _setting_changes(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    at = after.taken_at.timestamp()
    old, new = (snapshot.driver.version if snapshot.driver is not None else None for snapshot in (before, after))
    if old != new:
        yield _change(at, "setting", f"driver {printable(old or 'unknown')} → {printable(new or 'unknown')}")
    for device in after.devices:
        earlier = before.device(device.uuid)
        if earlier is None:
            yield _change(at, "setting", f"GPU {device.index} was added")
            continue
        for metric in _SETTING_METRICS:
            old_value, new_value = earlier.get(metric), device.get(metric)
            if not isinstance(old_value, Missing) and not isinstance(new_value, Missing) and old_value != new_value:
                texts = [printable(metric_value_text(BY_ID[metric], value)) for value in (old_value, new_value)]
                title = f"GPU {device.index}: {as_clause(BY_ID[metric].title)}"
                yield _change(at, "setting", f"{title} {' → '.join(texts)}")
    for device in before.devices:
        if after.device(device.uuid) is None:
            yield _change(at, "setting", f"GPU {device.index} is no longer listed")


def _reading_changes(recording: Recording, begin: float, moment: float, devices: list[Device]) -> Iterator[Change]:
    compared_since = moment - max(_COMPARED_SECONDS, MIN_GAP_INTERVALS * recording.interval)
    sums_by_key: dict[tuple[str, str], list[float]] = {}
    for times, columns in recording.numbers(begin, moment, frozenset(_MIN_READING_CHANGES)):
        for key, values in columns.items():
            sums_and_counts = sums_by_key.setdefault(key, [0.0, 0.0, 0.0, 0.0])
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    offset = 0 if at < compared_since else 2
                    sums_and_counts[offset] += value
                    sums_and_counts[offset + 1] += 1
    for device in devices:
        for name, (min_change, reference_metric) in _MIN_READING_CHANGES.items():
            sums_and_counts = sums_by_key.get((device.uuid, name), [0.0, 0.0, 0.0, 0.0])
            reference = device.number(reference_metric) if reference_metric else 1.0
            if not sums_and_counts[1] or not sums_and_counts[3] or not reference:
                continue
            old_mean, new_mean = sums_and_counts[0] / sums_and_counts[1], sums_and_counts[2] / sums_and_counts[3]
            if abs(new_mean - old_mean) >= min_change * reference:
                old_text, new_text = (metric_value_text(BY_ID[name], value) for value in (old_mean, new_mean))
                title = f"GPU {device.index}: {as_clause(BY_ID[name].title)}"
                period_text = f"mean of the last {moment - compared_since:.0f} s"
                yield _change(moment, "reading", f"{title} {old_text} → {new_text} ({period_text})")


def _change(at: float, kind: ChangeKind, text: str) -> Change:
    return Change(at=utc_datetime(at), kind=kind, text=text)

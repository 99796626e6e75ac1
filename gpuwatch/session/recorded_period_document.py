"""A period of a recording as a document: graphs, processes, runs, events, findings, and what changed before them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gpuwatch import __version__
from gpuwatch.core.formatting.command_lines import program_in_command
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.recorded_period import (
    GRAPHED,
    Period,
    PeriodDevice,
    PeriodEvent,
    PeriodFinding,
    PeriodProcess,
    PeriodRun,
    PeriodSeries,
)
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc import utc
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.saved_runs import RunStore, is_of_this_machine
from gpuwatch.machine.recording import minute_and_hour_means
from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.session.changes_before_moment import LOOK_BACK_SECONDS, changes_before

_POINT_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
"""Seconds of a point of the graphs."""
_MAX_POINTS = 400
_MAX_PROCESSES_SEARCHED = 3
"""Processes of a lost GPU at whose ends it is looked for."""
_WATCHED_GROUP = "run"
"""The group of runs of the user's own programs."""


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
    graph_begin = begin if point_seconds < minute_and_hour_means.MINUTE else begin // point_seconds * point_seconds
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
        begin=utc(graph_begin),
        end=utc(max(end, graph_begin + point_seconds)),
        step_seconds=point_seconds,
        gaps=usage.gaps,
        primary=main_finding.finding.id if main_finding is not None else None if is_readable else "unknown",
        devices=tuple(_period_devices(recording, graph_begin, end, point_seconds, devices)),
        processes=tuple(_period_processes(recording, begin, end)),
        runs=tuple(_period_runs(runs or RunStore(), begin, end, host, simulated=usage.simulated)),
        events=tuple(
            PeriodEvent(
                at=utc(event.at), kind=event.kind, severity=event.severity, text=event.text,
                device_uuids=event.device_uuids or ((event.device_uuid,) if event.device_uuid else ()),
            )
            for event in recording.events()
            if begin <= event.at <= end
        ),
        findings=findings,
        trouble=utc(problem_at) if problem_at is not None else None,
        changes_begin=utc(problem_at - LOOK_BACK_SECONDS) if problem_at is not None else None,
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
        yield PeriodFinding(begin=utc(finding.since), end=utc(finding.until), finding=finding.finding, active=is_active)


def _period_devices(
    recording: Recording, begin: float, end: float, point_seconds: float, devices: dict[str, Device]
) -> Iterator[PeriodDevice]:
    point_count = int((end - begin) // point_seconds) + 1
    points_by_gpu: dict[str, dict[str, list[minute_and_hour_means.Summary | None]]] = {}
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
) -> Iterator[tuple[float, minute_and_hour_means.Key, minute_and_hour_means.Summary]]:
    """Samples where the steps are short, means of minutes or hours else."""
    metrics = frozenset(GRAPHED)
    for seconds in (minute_and_hour_means.HOUR, minute_and_hour_means.MINUTE):
        are_stored = (
            recording.summaries_begin(seconds) <= begin + point_seconds or seconds == minute_and_hour_means.HOUR
        )
        if point_seconds >= seconds and are_stored:
            for minute, summaries in recording.summaries(seconds, begin, end, metrics).items():
                for key, summary in summaries.items():
                    yield minute, key, summary
            return
    for times, columns in recording.numbers(begin, end, metrics):
        for key, values in columns.items():
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    yield at, key, minute_and_hour_means.Summary(value, value, value, 1)


def _period_series(points: list[minute_and_hour_means.Summary | None]) -> PeriodSeries:
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
            begin=utc(process.first),
            end=utc(process.last),
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

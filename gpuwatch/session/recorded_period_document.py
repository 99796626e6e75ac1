"""A stretch of a recording as a document: graphs, processes, runs, events, findings, and what changed before them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gpuwatch import __version__
from gpuwatch.core.formatting.command_lines import program_in_command
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.reading_text import reading_text
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
from gpuwatch.core.utc import utc
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.sample_gaps import MIN_GAP_INTERVALS, unobserved_limit
from gpuwatch.machine.history.saved_runs import RunStore, is_of_this_machine
from gpuwatch.machine.recording import minute_and_hour_means
from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
from gpuwatch.machine.recording.reader import Recording

LOOK_BACK_SECONDS = 600.0
"""Seconds before the moment that are looked at."""
_COMPARED_SECONDS = 60.0
"""Seconds whose mean is compared with that of the time before."""
_MOVING = frozenset({"clocks.event_reasons", "performance.state"})
_SETTINGS = tuple(
    spec.id
    for spec in METRICS
    if (spec.unit is Unit.NAME and spec.id not in _MOVING)
    or spec.id in ("power.limit_watts", "pcie.width", "nvlink.links_active", "mig.instances")
)
"""Readings that change when somebody or something sets them."""
_READINGS: dict[str, tuple[float, str]] = {
    "utilization.gpu_percent": (30.0, ""),
    "memory.used_bytes": (0.1, "memory.total_bytes"),
    "power.draw_watts": (0.2, "power.limit_watts"),
    "temperature.gpu_celsius": (8.0, ""),
    "clocks.sm_mhz": (0.15, "clocks.sm_max_mhz"),
}
"""By how much a reading must have changed to be named: in its unit, or as a share of another reading."""


def changes(recording: Recording, moment: float, uuid: str | None) -> Iterator[Change]:
    """What changed in the :data:`LOOK_BACK_SECONDS` seconds before ``moment``, oldest first.

    Nothing here says what caused what: it is what somebody would look through first.
    ``uuid``: the GPU whose readings are compared; None: all.
    """
    begin = moment - LOOK_BACK_SECONDS
    found = [*_events(recording, begin, moment), *_gaps(recording, begin, moment)]
    before, after = recording.at(begin), recording.at(moment)
    if before is not None and after is not None and before.at < after.at:
        last = before.snapshot
        for kept in recording.snapshots(begin, moment):
            now = kept.snapshot
            if now.devices is not last.devices or now.driver is not last.driver:
                found += _settings(last, now)
            last = now
        devices = [device for device in after.snapshot.devices if uuid in (None, device.uuid)]
        found += _readings(recording, begin, moment, devices)
    yield from sorted(found, key=lambda change: change.at)


def _events(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    for event in recording.events():
        if begin <= event.at < moment:
            kind: ChangeKind = "process" if event.kind.startswith("process.") else "event"
            yield _change(event.at, "recording" if event.kind.startswith("recording.") else kind, event.text)


def _gaps(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    first, _ = recording.extent()
    interval = max((run.interval for run in recording.sessions), default=1.0)
    longer = unobserved_limit(interval)
    if first - begin > longer:
        unknown = hours_minutes(first - begin)
        yield _change(
            first, "recording", f"the recording begins here; what happened in the preceding {unknown} is unknown"
        )
    for since, until in recording.gaps_of_blocks(max(begin, first), moment):
        if until - since > longer:
            yield _change(until, "recording", f"nothing was recorded in the preceding {hours_minutes(until - since)}")


def _settings(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    at = after.taken_at.timestamp()
    old, new = (snapshot.driver.version if snapshot.driver is not None else None for snapshot in (before, after))
    if old != new:
        yield _change(at, "setting", f"driver {printable(old or 'unknown')} → {printable(new or 'unknown')}")
    for device in after.devices:
        known = before.device(device.uuid)
        if known is None:
            yield _change(at, "setting", f"GPU {device.index} was added")
            continue
        for name in _SETTINGS:
            old_value, new_value = known.get(name), device.get(name)
            if not isinstance(old_value, Missing) and not isinstance(new_value, Missing) and old_value != new_value:
                shown = " → ".join(printable(reading_text(BY_ID[name], value)) for value in (old_value, new_value))
                yield _change(at, "setting", f"GPU {device.index}: {_metric_title(name)} {shown}")
    for device in before.devices:
        if after.device(device.uuid) is None:
            yield _change(at, "setting", f"GPU {device.index} is no longer listed")


def _metric_title(name: str) -> str:
    title = BY_ID[name].title
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def _readings(recording: Recording, begin: float, moment: float, devices: list[Device]) -> Iterator[Change]:
    interval = max((run.interval for run in recording.sessions), default=1.0)
    since = moment - max(_COMPARED_SECONDS, MIN_GAP_INTERVALS * interval)
    sums: dict[tuple[str, str], list[float]] = {}
    for times, columns in recording.numbers(begin, moment, frozenset(_READINGS)):
        for key, values in columns.items():
            total = sums.setdefault(key, [0.0, 0.0, 0.0, 0.0])
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    place = 0 if at < since else 2
                    total[place] += value
                    total[place + 1] += 1
    for device in devices:
        for name, (least, whole) in _READINGS.items():
            total = sums.get((device.uuid, name), [0.0, 0.0, 0.0, 0.0])
            of = device.number(whole) if whole else 1.0
            if not total[1] or not total[3] or not of:
                continue
            old, new = total[0] / total[1], total[2] / total[3]
            if abs(new - old) >= least * of:
                was, now = (reading_text(BY_ID[name], value) for value in (old, new))
                text = (
                    f"GPU {device.index}: {_metric_title(name)} {was} → {now} (mean of the last {moment - since:.0f} s)"
                )
                yield _change(moment, "reading", text)


def _change(at: float, kind: ChangeKind, text: str) -> Change:
    return Change(at=utc(at), kind=kind, text=text)


_STEP_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
"""Seconds of a point of the graphs."""
_MAX_POINTS = 400
_MAX_LIVES = 3
"""Processes of a lost GPU at whose ends it is looked for."""
_WATCHED = "run"
"""The group of runs of the user's own programs."""


def period(
    recording: Recording,
    begin: float,
    end: float,
    progress: Callable[[float], None] = lambda share: None,
    runs: RunStore | None = None,
) -> Period:
    """The stretch from ``begin`` to ``end``, seconds since the epoch; UsageError if nothing of it was recorded."""
    hours = gpu_usage(recording, begin, end, "process", progress)
    interval = max((run.interval for run in recording.sessions), default=1.0)
    step = _step(end - begin, interval)
    first = begin if step < minute_and_hour_means.MINUTE else begin // step * step
    last = recording.at(end)
    read = last is not None and begin <= last.at <= end and not any(map(unreadable_metrics, last.snapshot.devices))
    devices = {} if last is None else {device.uuid: device for device in last.snapshot.devices}
    findings = tuple(_findings(recording, begin, end, () if last is None else last.findings))
    main = min(findings, key=lambda finding: finding.rank, default=None)
    first_problem = next((finding for finding in findings if finding.finding.severity != "info"), None)
    trouble = None if first_problem is None else first_problem.begin.timestamp()
    uuid = None if first_problem is None else first_problem.finding.device_uuid
    host = hours.host
    return Period(
        source=hours.source,
        host=host,
        simulated=hours.simulated,
        gpuwatch_version=__version__,
        begin=utc(first),
        end=utc(max(end, first + step)),
        step_seconds=step,
        gaps=hours.gaps,
        primary=main.finding.id if main is not None else None if read else "unknown",
        devices=tuple(_devices(recording, first, end, step, devices)),
        processes=tuple(_processes(recording, begin, end)),
        runs=tuple(_runs(runs or RunStore(), begin, end, host, simulated=hours.simulated)),
        events=tuple(
            PeriodEvent(
                at=utc(event.at), kind=event.kind, severity=event.severity, text=event.text,
                device_uuids=event.device_uuids or ((event.device_uuid,) if event.device_uuid else ()),
            )
            for event in recording.events()
            if begin <= event.at <= end
        ),
        findings=findings,
        trouble=utc(trouble) if trouble is not None else None,
        changes_begin=utc(trouble - LOOK_BACK_SECONDS) if trouble is not None else None,
        changes=tuple(changes(recording, trouble, uuid)) if trouble is not None else (),
        usage=hours,
        notes=hours.notes,
    )  # fmt: skip


def _step(seconds: float, interval: float) -> float:
    """The shortest step with which a graph has not too many points, and a sample in each."""
    least = max(seconds / _MAX_POINTS, interval)
    return float(next((step for step in _STEP_SECONDS if step >= least), _STEP_SECONDS[-1]))


def _findings(recording: Recording, begin: float, end: float, last: tuple[Finding, ...]) -> Iterator[PeriodFinding]:
    """The earliest onset first. ``last``: those of the last sample."""
    active = {finding.key for finding in last if not (finding.until or finding.last)}
    kept = [finding for finding in recording.findings(begin, end) if finding.finding.id != "healthy"]
    latest = {finding.finding.key: finding for finding in kept}
    for finding in kept:
        key = finding.finding.key
        still = key in active and latest[key] is finding  # earlier ones have ended
        yield PeriodFinding(begin=utc(finding.since), end=utc(finding.until), finding=finding.finding, active=still)


def _devices(
    recording: Recording, begin: float, end: float, step: float, known: dict[str, Device]
) -> Iterator[PeriodDevice]:
    count = int((end - begin) // step) + 1
    series: dict[str, dict[str, list[minute_and_hour_means.Summary | None]]] = {}
    for at, (uuid, metric), summary in _points(recording, begin, end, step):
        place = int((at - begin) // step)
        if 0 <= place < count:
            there = series.setdefault(uuid, {}).setdefault(metric, [None] * count)
            old = there[place]
            there[place] = summary if old is None else old.merged_with(summary)
    for uuid in series:
        if uuid not in known:  # lost or removed before the end
            known |= {device.uuid: device for device in islice(_device_before_loss(recording, begin, end, uuid), 1)}
    found = [
        PeriodDevice(
            index=device.index,
            uuid=uuid,
            name=device.name,
            series={metric: _series(points) for metric, points in series.get(uuid, {}).items()},
            tops=_axis_tops(
                [device, *(() if device.state == "ok" else _device_before_loss(recording, begin, end, uuid))]
            ),
        )
        for uuid, device in known.items()
    ]
    yield from sorted(found, key=lambda device: (device.index, device.uuid))


def _device_before_loss(recording: Recording, begin: float, end: float, uuid: str) -> Iterator[Device]:
    """A lost device as it was at the start, and when its processes were last seen."""
    lives = [process.last for process in recording.processes(begin, end) if process.device_uuid == uuid]
    for at in (begin, *lives[:_MAX_LIVES], (begin + end) / 2):
        kept = recording.at(at)
        device = kept.snapshot.device(uuid) if kept is not None else None
        if device is not None:
            yield device


def _axis_tops(devices: Iterable[Device]) -> dict[str, float]:
    """Where the axes end, as the first of these that knows it says."""
    found: dict[str, float] = {}
    for device in devices:
        for metric in GRAPHED:
            axis = BY_ID[metric].axis
            ends = axis.ends(device.number) if axis is not None else None
            found |= {metric: ends[1]} if ends is not None and metric not in found else {}
    return found


def _points(
    recording: Recording, begin: float, end: float, step: float
) -> Iterator[tuple[float, minute_and_hour_means.Key, minute_and_hour_means.Summary]]:
    """Samples where the steps are short, means of minutes or hours else."""
    metrics = frozenset(GRAPHED)
    for seconds in (minute_and_hour_means.HOUR, minute_and_hour_means.MINUTE):
        stored = recording.summaries_begin(seconds) <= begin + step or seconds == minute_and_hour_means.HOUR
        if step >= seconds and stored:
            for minute, found in recording.summaries(seconds, begin, end, metrics).items():
                for key, summary in found.items():
                    yield minute, key, summary
            return
    for times, columns in recording.numbers(begin, end, metrics):
        for key, values in columns.items():
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    yield at, key, minute_and_hour_means.Summary(value, value, value, 1)


def _series(points: list[minute_and_hour_means.Summary | None]) -> PeriodSeries:
    return PeriodSeries(
        least=tuple(None if point is None else round(point.least, 2) for point in points),
        mean=tuple(None if point is None else round(point.mean, 2) for point in points),
        most=tuple(None if point is None else round(point.most, 2) for point in points),
    )


def _processes(recording: Recording, begin: float, end: float) -> Iterator[PeriodProcess]:
    for life in recording.processes(begin, end):
        yield PeriodProcess(
            pid=life.pid,
            device_uuid=life.device_uuid,
            user=life.user,
            program=program_in_command(printable(life.command or life.name or "")) or None,
            begin=utc(life.first),
            end=utc(life.last),
        )


def _runs(store: RunStore, begin: float, end: float, host: str | None, *, simulated: bool) -> Iterator[PeriodRun]:
    kept = [run for run in store.latest() if is_of_this_machine(run, host, simulated=simulated)]
    for run in sorted(kept, key=lambda run: run.started_at):
        took = run.phases.total_seconds
        started = run.started_at.timestamp()
        mapped = (mapping.uuid for mapping in run.device_map)
        seen = [run.memory.device_uuid, *(device.uuid for device in run.memory.devices), *mapped]
        if started <= end and started + (took or 0.0) >= begin:
            yield PeriodRun(
                name=program_in_command(printable(run.title)) or run.config
                if run.group == _WATCHED
                else f"probe {run.config}",
                verdict=run.verdict,
                begin=run.started_at,
                end=None if took is None else run.started_at + datetime.timedelta(seconds=took),
                device_uuids=tuple(dict.fromkeys(uuid for uuid in seen if uuid)),
            )

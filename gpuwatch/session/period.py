"""A stretch of a recording as a document: graphs, processes, saved runs, events and findings on one clock."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gpuwatch import __version__
from gpuwatch.core.formatting.short_names import program_of
from gpuwatch.core.formatting.text import printable
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.period import (
    GRAPHED,
    Period,
    PeriodDevice,
    PeriodEvent,
    PeriodFinding,
    PeriodProcess,
    PeriodRun,
    PeriodSeries,
)
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.diagnostic import of_this_machine
from gpuwatch.machine.history.runs import RunStore
from gpuwatch.machine.recording import minute_means
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.usage import usage
from gpuwatch.session.changes_before import LOOK_BACK, changes

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
"""Seconds of a point of the graphs."""
_MOST_POINTS = 400
_MOST_LIVES = 3
"""Processes of a lost GPU at whose ends it is looked for."""
_WATCHED = "run"
"""The group of runs of the user's own programs."""
_QUIET = ("healthy",)


def period(
    recording: Recording,
    begin: float,
    end: float,
    progress: Callable[[float], None] = lambda share: None,
    runs: RunStore | None = None,
) -> Period:
    """The stretch from ``begin`` to ``end``, seconds since the epoch; UsageError if nothing of it was recorded."""
    hours = usage(recording, begin, end, "process", progress)
    interval = max((run.interval for run in recording.runs), default=1.0)
    step = _step(end - begin, interval)
    first = begin if step < minute_means.MINUTE else begin // step * step
    last = recording.at(end)
    read = last is not None and begin <= last.at <= end
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
        begin=_time(first),
        end=_time(max(end, first + step)),
        step_seconds=step,
        gaps=hours.gaps,
        primary=main.finding.id if main is not None else None if read else "unknown",
        devices=tuple(_devices(recording, first, end, step, devices)),
        processes=tuple(_processes(recording, begin, end)),
        runs=tuple(_runs(runs or RunStore(), begin, end, host, simulated=hours.simulated)),
        events=tuple(
            PeriodEvent(
                at=_time(event.at), kind=event.kind, severity=event.severity, text=event.text,
                device_uuids=event.device_uuids or ((event.device_uuid,) if event.device_uuid else ()),
            )
            for event in recording.events()
            if begin <= event.at <= end
        ),
        findings=findings,
        trouble=_time(trouble) if trouble is not None else None,
        changes_begin=_time(trouble - LOOK_BACK) if trouble is not None else None,
        changes=tuple(changes(recording, trouble, uuid)) if trouble is not None else (),
        usage=hours,
        notes=hours.notes,
    )  # fmt: skip


def _step(seconds: float, interval: float) -> float:
    """The shortest step with which a graph has not too many points, and a sample in each."""
    least = max(seconds / _MOST_POINTS, interval)
    return float(next((step for step in _STEPS if step >= least), _STEPS[-1]))


def _findings(recording: Recording, begin: float, end: float, last: tuple[Finding, ...]) -> Iterator[PeriodFinding]:
    """The earliest onset first. ``last``: those of the last sample."""
    active = {(finding.id, finding.device_uuid, finding.pid) for finding in last if finding.until is None}
    kept = [finding for finding in recording.findings(begin, end) if finding.finding.id not in _QUIET]
    latest = {(finding.finding.id, finding.finding.device_uuid, finding.finding.pid): finding for finding in kept}
    for finding in kept:
        whose = (finding.finding.id, finding.finding.device_uuid, finding.finding.pid)
        still = whose in active and latest[whose] is finding  # earlier ones have ended
        yield PeriodFinding(begin=_time(finding.since), end=_time(finding.until), finding=finding.finding, active=still)


def _devices(
    recording: Recording, begin: float, end: float, step: float, known: dict[str, Device]
) -> Iterator[PeriodDevice]:
    count = int((end - begin) // step) + 1
    series: dict[str, dict[str, list[minute_means.Summary | None]]] = {}
    for at, (uuid, metric), summary in _points(recording, begin, end, step):
        place = int((at - begin) // step)
        if 0 <= place < count:
            there = series.setdefault(uuid, {}).setdefault(metric, [None] * count)
            old = there[place]
            there[place] = summary if old is None else old.with_(summary)
    for uuid in series:
        if uuid not in known:  # lost or removed before the end
            known |= {device.uuid: device for device in islice(_earlier(recording, begin, end, uuid), 1)}
    found = [
        PeriodDevice(
            index=device.index,
            uuid=uuid,
            name=device.name,
            series={metric: _series(points) for metric, points in series.get(uuid, {}).items()},
            tops=_tops([device, *(() if device.state == "ok" else _earlier(recording, begin, end, uuid))]),
        )
        for uuid, device in known.items()
    ]
    yield from sorted(found, key=lambda device: (device.index, device.uuid))


def _earlier(recording: Recording, begin: float, end: float, uuid: str) -> Iterator[Device]:
    """A device that is lost at the end, as of the begin, and of when its processes were last seen."""
    lives = [process.last for process in recording.processes(begin, end) if process.device_uuid == uuid]
    for at in (begin, *lives[:_MOST_LIVES], (begin + end) / 2):
        kept = recording.at(at)
        device = kept.snapshot.device(uuid) if kept is not None else None
        if device is not None:
            yield device


def _tops(devices: Iterable[Device]) -> dict[str, float]:
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
) -> Iterator[tuple[float, minute_means.Key, minute_means.Summary]]:
    """Samples where the steps are short, means of minutes or hours else."""
    metrics = frozenset(GRAPHED)
    for seconds in (minute_means.HOUR, minute_means.MINUTE):
        stored = recording.summaries_begin(seconds) <= begin + step or seconds == minute_means.HOUR
        if step >= seconds and stored:
            for minute, found in recording.summaries(seconds, begin, end, metrics).items():
                for key, summary in found.items():
                    yield minute, key, summary
            return
    for times, columns in recording.numbers(begin, end, metrics):
        for key, values in columns.items():
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    yield at, key, minute_means.Summary(value, value, value, 1)


def _series(points: list[minute_means.Summary | None]) -> PeriodSeries:
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
            program=program_of(printable(life.command or life.name or "")) or None,
            begin=_time(life.first),
            end=_time(life.last),
        )


def _runs(store: RunStore, begin: float, end: float, host: str | None, *, simulated: bool) -> Iterator[PeriodRun]:
    kept = [run for run in store.latest() if of_this_machine(run, host, simulated=simulated)]
    for run in sorted(kept, key=lambda run: run.started_at):
        took = run.phases.total_seconds
        started = run.started_at.timestamp()
        if started <= end and started + (took or 0.0) >= begin:
            yield PeriodRun(
                name=_name(run),
                verdict=run.verdict,
                begin=run.started_at,
                end=None if took is None else run.started_at + datetime.timedelta(seconds=took),
                device_uuids=_gpus_of(run),
            )


def _name(run: Run) -> str:
    if run.group != _WATCHED:
        return f"probe {run.config}"
    return program_of(printable(run.title)) or run.config


def _gpus_of(run: Run) -> tuple[str, ...]:
    seen = [
        run.memory.device_uuid,
        *(device.uuid for device in run.memory.devices),
        *(mapping.uuid for mapping in run.device_map),
    ]
    return tuple(dict.fromkeys(uuid for uuid in seen if uuid))


def _time(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)

"""The content of a report on a stretch of a recording: what was wrong, what changed before, graphs, who used what."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from msgspec.structs import replace

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.recorded_period import GRAPHED, Period, PeriodDevice, PeriodFinding
from gpuwatch.share.reports.gpu_time_report import gaps_table, groups_table, hours_formatter, recording_subtitle
from gpuwatch.share.reports.recorded_period_graphs import GRAPH_NAMES, known_values, value_text
from gpuwatch.share.reports.report_elements import GLYPHS, STATE_BY_SEVERITY, Content, PeriodGraphs, Table
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean, clean_finding, redaction_text

_MAX_ROWS = 200
"""Events in the table; the last ones."""
_FAILURE_TEXTS = {"error": "failed", "oom": "ran out of memory", "timeout": "stopped at a deadline"}
"""What is said of runs with a verdict that is a failure."""
_XID = re.compile(r"\bXid \d+")
_LONG_TABLE_ROWS = 12
"""Rows from which a table is folded away."""


def period_content(period: Period) -> Content:
    """The content of a report on a stretch of a recording."""
    named = (finding for finding in period.findings if finding.finding.id == period.primary)
    main = min(named, key=attrgetter("rank"), default=None)
    tables = (
        _change_table(period),
        *(_graph_table(period, device) for device in period.devices),
        _reading_table(period),
        groups_table(period.usage) if period.usage.groups else None,
        _finding_table(period),
        _run_table(period),
        _event_table(period),
        gaps_table(period.gaps, partial(_time_text, period)),
    )
    is_problem = main is not None and main.finding.severity != "info"
    is_readable = period.primary != "unknown"
    has_program_problems = is_readable and main is None and bool(_program_problems(period))
    state = "warning" if has_program_problems else "ok" if is_readable else "unknown"
    return Content(
        title="GPU report of a recording",
        subtitle=recording_subtitle(period, _date_and_time),
        state=STATE_BY_SEVERITY[main.finding.severity] if main is not None else state,
        verdict=main.finding.id if main is not None else {"ok": "healthy"}.get(state, state),
        reason=_reason(period, main),
        certainty=main.finding.certainty if main is not None else "",
        simulated=SIMULATED_MACHINE if period.simulated else "",
        facts=tuple(_facts(period)),
        tables=tuple(table for table in tables if table is not None and (table.rows or table.charts or table.note)),
        action=clean(main.finding.action) if main is not None and is_problem and main.finding.action else "",
        evidence=tuple(map(clean, main.finding.evidence[:6])) if main is not None else (),
        findings=tuple(map(clean_finding, _others(period, main))),
        footer=f"gpuwatch {clean(period.gpuwatch_version)}; secrets are masked; {redaction_text(period.redacted)}.",
    )


def _others(period: Period, main: PeriodFinding | None) -> Iterator[Finding]:
    """The other findings with their time: what still holds, of the rest one of each cause on each GPU."""
    named = set() if main is None else {(main.finding.id, main.finding.device_uuid)}
    for finding in sorted(period.findings, key=attrgetter("rank")):
        key = (finding.finding.id, finding.finding.device_uuid)
        if finding is not main and (key not in named or (finding.active and finding.finding.severity != "info")):
            named.add(key)
            title = f"{finding.finding.title.rstrip('.')} ({_time_and_duration(period, finding)})"
            yield replace(finding.finding, title=title)


def _time_and_duration(period: Period, finding: PeriodFinding) -> str:
    duration = hours_minutes((finding.end - finding.begin).total_seconds())
    if finding.active:
        return f"since {_time_text(period, finding.begin)}, for {duration}, still so at the end"
    return f"at {_time_text(period, finding.begin)}, for {duration}"


def _reason(period: Period, main: PeriodFinding | None) -> str:
    if period.primary == "unknown" and period.usage.hours_recorded:
        return "At the end of this time, too little of its GPUs can be read to say that nothing is wrong."
    if period.primary == "unknown":
        return "No sample of this time can be read."
    if main is None:
        missing = _unrecorded_seconds(period)
        part = f"the {hours_minutes(period.usage.hours_recorded * 3600)} that can be read" if missing else "this time"
        if programs := _program_problems(period):
            return f"No problems of the GPUs found in {part}; of programs: {', '.join(programs)}."
        return f"{CAUSES['healthy']} in {part}."
    return f"{clean(main.finding.title).rstrip('.')} ({_time_and_duration(period, main)})."


def _program_problems(period: Period) -> list[str]:
    """What went wrong with programs alone: how many runs ended how, and the driver's Xids, which name no program."""
    verdict_counts = Counter(run.verdict for run in period.runs)
    failures = [
        f"{verdict_counts[verdict]} {'run' if verdict_counts[verdict] == 1 else 'runs'} {failure_text}"
        for verdict, failure_text in _FAILURE_TEXTS.items()
        if verdict_counts[verdict]
    ]
    texts = (event.text for event in period.events if event.kind == "program.xid")
    xids = Counter(code.group() for text in texts for code in _XID.finditer(text))
    return [*failures, *(f"{code}{f' ({count} times)' if count > 1 else ''}" for code, count in xids.items())]


def _unrecorded_seconds(period: Period) -> float:
    """Seconds of which no sample can be read; 0 if there are hardly any."""
    missing = max(period.usage.hours - period.usage.hours_recorded, 0.0)
    return missing * 3600 if missing > 0.001 * period.usage.hours else 0.0


def _facts(period: Period) -> Iterator[tuple[str, str]]:
    usage, hours, missing = period.usage, hours_formatter(period.usage), _unrecorded_seconds(period)
    gaps = f"; {hours_minutes(missing)} not recorded" if missing else ""
    length = hours_minutes((period.end - period.begin).total_seconds())
    yield "time", f"{length}{gaps}; a point of the graphs is {hours_minutes(period.step_seconds)}"
    total = usage.total
    used = f", {hours(total.gpu_hours_used)} used" if total.gpu_hours_used is not None else ""
    recorded = sum(device.hours_recorded for device in usage.devices)
    yield "GPU-hours", f"{hours(total.gpu_hours_held)} of {hours(recorded)} held{used}"
    counts = Counter(finding.finding.id for finding in period.findings)
    yield "findings", ", ".join(f"{count} × {clean(name)}" for name, count in counts.most_common()) or "none"
    yield "events", str(len(period.events))
    for note in period.notes:
        yield "note", clean(note)


def _change_table(period: Period) -> Table | None:
    if period.trouble is None or period.changes_begin is None:
        return None
    rows = tuple((_time_text(period, change.at), change.kind, clean(change.text)) for change in period.changes)
    problems = (finding.finding.id for finding in period.findings if finding.finding.severity != "info")
    what = clean(next(problems, "the first finding"))
    span = hours_minutes((period.trouble - period.changes_begin).total_seconds())
    before = f"the {span} before {what} ({_time_text(period, period.trouble)})"
    note = f"In {before}. It is not known whether one of them is the cause."
    if not rows:
        note = f"Nothing that was recorded changed in {before}."
    heads = ("When", "What", "Change")
    return Table("What changed before", heads, rows, note=note, keep=heads[:2], below="Change")


def _graph_table(period: Period, device: PeriodDevice) -> Table:
    note = "" if device.series else "None of its readings was recorded in this time."
    charts = (PeriodGraphs(period, device),) if device.series else ()
    return Table(f"GPU {device.index} · {clean(device.name)}", (), (), note=note, charts=charts)


def _reading_table(period: Period) -> Table:
    """Mean and range of each graph in numbers, for formats that cannot draw."""
    rows = []
    for device in period.devices:
        cells = [str(device.index)]
        for metric in GRAPHED:
            series = device.series.get(metric)
            means, most = (known_values(series.mean), known_values(series.most)) if series is not None else ([], [])
            mean = sum(means) / len(means) if means else None
            cells += [value_text(metric, mean), value_text(metric, max(most, default=None))]
        rows.append(tuple(cells))
    heads = ("GPU", *(f"{GRAPH_NAMES[metric]} {statistic}" for metric in GRAPHED for statistic in ("avg", "max")))
    optional = ("SM clock avg", "SM clock max", "Temp avg", "Power avg", "Memory avg")
    return Table("Readings", heads, tuple(rows), right=heads, optional=optional, sortable=True)


def _finding_table(period: Period) -> Table:
    rows = []
    for period_finding in period.findings:
        finding = period_finding.finding
        end = "still" if period_finding.active else _time_text(period, period_finding.end)
        severity = f"{GLYPHS[finding.severity]} {finding.severity}"
        rows.append((severity, _time_text(period, period_finding.begin), end, clean(finding.id), clean(finding.title)))
    heads = ("Severity", "From", "To", "Cause", "Finding")
    long = len(rows) > _LONG_TABLE_ROWS
    return Table("Findings in this time", heads, tuple(rows), keep=heads[:3], below="Finding", folded=long)


def _run_table(period: Period) -> Table:
    rows = []
    for run in period.runs:
        end = _time_text(period, run.end) if run.end is not None else UNKNOWN
        rows.append((_time_text(period, run.begin), end, clean(run.name), clean(run.verdict)))
    return Table("Saved runs", ("From", "To", "Run", "Verdict"), tuple(rows), keep=("From", "To"))


def _event_table(period: Period) -> Table:
    rows = tuple(
        (_time_text(period, event.at), f"{GLYPHS.get(event.severity, '•')} {clean(event.severity)}", clean(event.text))
        for event in period.events[-_MAX_ROWS:]
    )
    left_out = len(period.events) - len(rows)
    note = (
        f"{count_text(left_out, 'earlier event is', 'earlier events are')} omitted; JSON has them all."
        if left_out
        else ""
    )
    heads = ("When", "Severity", "Event")
    return Table("Events", heads, rows, note=note, keep=heads[:2], folded=len(rows) > _LONG_TABLE_ROWS)


def _date_and_time(at: datetime.datetime) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _time_text(period: Period, at: datetime.datetime) -> str:
    """Without the day, where all is of one."""
    days = {item.astimezone().date() for item in (period.begin, period.end, at)}
    return at.astimezone().strftime("%H:%M:%S") if len(days) == 1 else _date_and_time(at)

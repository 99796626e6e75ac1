"""What differs between two sides: structure first, then findings by cause, then numbers beyond their noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuwatch.core.formatting.units import UNKNOWN, reading_text, size
from gpuwatch.core.model.findings import CAUSES, SEVERITY_ORDER
from gpuwatch.core.model.machine_diff import Change, Diff, FactChange, FindingChange, NumberChange, Side, Spread
from gpuwatch.core.model.metrics import Unit
from gpuwatch.core.model.run import Run
from gpuwatch.experiment.trials.step_times import step_time_text
from gpuwatch.experiment.trials.trial_summary import SAME_MEMORY_SHARE
from gpuwatch.share.reports import comparable_runs, diff_memory
from gpuwatch.share.reports.diff_sides import COUNTERS, SPECS, DiffSide
from gpuwatch.share.reports.report_elements import SIMULATED_MACHINE, Content, Table, clean

MIN_SHARE = 0.05
"""Medians that are closer are the same, however little they vary."""
_MIN_DIFFERENCE = {Unit.PERCENT: 5.0, Unit.CELSIUS: 3.0}
"""Least differences by unit: points of a percentage, degrees."""
_MIN_GROWTH_RATIO = 2.0
"""Error counters differ if one grows this many times as fast."""
_NAMES = {
    "median_step_seconds": "step time",
    "nvml_peak_bytes": "peak memory (NVML)",
    "allocator_peak_bytes": "peak memory (allocator)",
    **diff_memory.NAMES,
}
_COUNTED = frozenset(spec.id for spec in COUNTERS)
_ORDER = {"came": 0, "went": 1, "stayed": 2}


def diff(first: DiffSide, second: DiffSide) -> Diff:
    """What differs, where both sides have the same kind of content."""
    shared = first.parts & second.parts
    first, second = _of_one_scope(first, second), _of_one_scope(second, first)
    # A GPU that only one side has is a difference; its readings are not.
    facts, alike = [], 0
    for part, name in dict.fromkeys((*first.facts, *second.facts)):
        if part not in shared or (part, name) in first.unknown | second.unknown:
            continue
        pair, two = first.facts.get((part, name)), second.facts.get((part, name))
        if part == "Machine" and (pair is None or two is None):
            continue  # a run knows less of the machine than a sample
        if (pair and pair[1]) == (two and two[1]):
            alike += 1
        else:
            facts.append(FactChange(part=part, name=clean(name), values=(pair and pair[0], two and two[0])))
    findings = sorted(
        _findings(first, second), key=lambda finding: (_ORDER[finding.change], SEVERITY_ORDER[finding.severity])
    )
    numbers, same = [], 0
    for key in sorted(first.numbers.keys() & second.numbers.keys()):
        change = _number(*key, first.numbers[key], second.numbers[key], (first.run, second.run))
        if change is None:
            same += 1
        else:
            numbers.append(change)
    numbers.sort(key=_importance, reverse=True)
    holders = diff_memory.holder_changes(first, second)
    return Diff(
        sides=(first.side, second.side),
        simulated=first.simulated or second.simulated,
        differs=bool(facts or numbers or holders or any(finding.change != "stayed" for finding in findings)),
        facts=tuple(facts),
        findings=tuple(findings),
        numbers=tuple(numbers),
        holders=tuple(holders),
        alike=alike + same,
        notes=tuple(_notes(first, second)),
    )


def _of_one_scope(side: DiffSide, other: DiffSide) -> DiffSide:
    """With the machine's findings alone, if the other side has no others."""
    if side.findings_of_machine is None or other.side.kind not in ("snapshot", "recording"):
        return side
    return replace(side, findings=side.findings_of_machine)


def _findings(first: DiffSide, second: DiffSide) -> Iterator[FindingChange]:
    for cause in dict.fromkeys((*first.findings, *second.findings)):
        before, after = first.findings.get(cause), second.findings.get(cause)
        change: Change = "stayed" if before and after else "came" if after else "went"
        finding = (after or before or [])[0]
        yield FindingChange(
            id=cause,
            change=change,
            severity=finding.severity,
            title=clean(finding.title or CAUSES.get(cause, cause)),
            where=(first.where(cause), second.where(cause)),
        )


def _number(
    part: str, metric: str, spread: Spread, two: Spread, runs: tuple[Run | None, Run | None]
) -> NumberChange | None:
    """The difference, if it is more than noise."""
    away = abs(two.median - spread.median)
    larger = max(abs(spread.median), abs(two.median))
    spec = SPECS.get(metric)
    if metric in _COUNTED:
        least = max(min(spread.median, two.median) * (_MIN_GROWTH_RATIO - 1), 1e-9)
    elif metric == "median_step_seconds":
        run, other = runs
        if run is None or other is None or comparable_runs.why_speeds_equal(run, other):
            return None
        if not comparable_runs.same_work(run, other):
            return None
        least = 0.0
    elif spec is None:
        least = SAME_MEMORY_SHARE * larger
    else:
        noise = ((spread.high - spread.low) + (two.high - two.low)) / 2
        least = max(noise, MIN_SHARE * larger, _MIN_DIFFERENCE.get(spec.unit, 0.0))
    if away <= least:
        return None
    name = spec.title if spec is not None else _NAMES[metric]
    if metric in _COUNTED:
        name += ", per hour"
    unit = spec.unit.value if spec is not None else "s" if metric == "median_step_seconds" else "B"
    return NumberChange(part=part, name=name, metric=metric, unit=unit, values=(spread, two), threshold=least)


def _importance(change: NumberChange) -> float:
    number, two = (abs(value.median) for value in change.values)
    return abs(two - number) / max(number, two) if max(number, two) else 0.0


def _notes(first: DiffSide, second: DiffSide) -> Iterator[str]:
    for facts, two in ((first, second), (second, first)):
        only = sorted(part for part in facts.parts - two.parts if not part.startswith("GPU "))
        if only:
            yield f"{', '.join(only)}: only {facts.side.name} has them"
    unknown = (first.unknown | second.unknown) & (first.facts.keys() | second.facts.keys())
    if unknown:
        named = sorted(f"{part} {name}" for part, name in unknown)
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        yield f"{', '.join(named[:3])}{more}: one side could not read them"
    kinds = {first.side.kind, second.side.kind}
    if first.holders or second.holders:
        return
    if "run" not in kinds and kinds != {"recording"}:
        yield "load, memory, power and temperature: only recordings have enough samples"
    if "run" in kinds and kinds != {"run"}:
        yield "settings, memory and speed of the run: the other side is not a run"


# Content


def diff_content(document: Diff) -> Content:
    """Findings, a table of facts for each part, and numbers."""
    item, two = document.sides
    heads = ("What", item.name, two.name)
    tables = list[Table]()
    if document.findings:
        rows = tuple(
            (change.change, change.id, clean(change.title), change.where[0] or UNKNOWN, change.where[1] or UNKNOWN)
            for change in document.findings
        )
        tables.append(Table("Findings", ("Change", "Cause", "Finding", item.name, two.name), rows, below="Finding"))
    for part in dict.fromkeys(change.part for change in document.facts):
        rows3 = tuple(
            (clean(change.name), *(clean(value) if value is not None else UNKNOWN for value in change.values))
            for change in document.facts
            if change.part == part
        )
        tables.append(Table(clean(part), heads, rows3))
    if document.holders:
        tables.append(diff_memory.holder_table(document.holders, (item.name, two.name)))
    if document.numbers:
        rows5 = tuple(
            (
                clean(f"{change.part}, {change.name}"),
                *(_shown(change, value) for value in change.values),
                _times(change),
            )
            for change in document.numbers
        )
        note = (
            "Medians, with the range of the middle half of the values. Only differences larger than the noise are "
            "listed."
        )
        tables.append(Table("Numbers", (*heads, "Change"), rows5, right=("Change",), note=note))
    came = [change for change in document.findings if change.change == "came"]
    went = [change for change in document.findings if change.change == "went"]
    counts = [
        _count(len(document.facts), "fact"),
        _count(len(came), "new finding"),
        _count(len(went), "finding", " gone"),
        _count(len(document.numbers), "number"),
        _count(len(document.holders), "holder"),
    ]
    names = f"{clean(item.name)} and {clean(two.name)}"
    worse = any(change.severity == "error" for change in came)
    return Content(
        title=f"{names} differ: {', '.join(filter(None, counts))}" if document.differs else f"{names} do not differ",
        subtitle=" · ".join(_about(side) for side in document.sides),
        state="error" if worse else "warning" if document.differs else "ok",
        verdict="Different" if document.differs else "No difference",
        reason=diff_memory.grew_most(document.holders),
        simulated=SIMULATED_MACHINE if document.simulated else "",
        facts=(
            ("alike", f"{document.alike} facts and numbers do not differ"),
            *(("not compared", clean(note)) for note in document.notes),
        ),
        tables=tuple(tables),
        footer="gpuwatch diff",
    )


def _count(count: int, what: str, after: str = "") -> str:
    return f"{count} {what}{'' if count == 1 else 's'}{after}" if count else ""


def _about(side: Side) -> str:
    if side.begin is None or side.end is None:
        return f"{clean(side.name)}: {side.kind} without times"
    begin = f"{side.begin:%Y-%m-%d %H:%M:%S}"
    samples = ""
    if side.kind == "recording":
        same = side.begin.date() == side.end.date()
        begin += f" to {side.end:{'%H:%M:%S' if same else '%Y-%m-%d %H:%M:%S'}}"
        samples = f", {side.samples:,} samples"
    host = f" of {clean(side.host)}" if side.host else "" if " " in side.kind else " of an unknown machine"
    return f"{clean(side.name)}: {side.kind}{host}, {begin} UTC{samples}"


def _shown(change: NumberChange, value: Spread) -> str:
    median = _value(change, value.median)
    if value.low == value.high:
        return median
    low, high = _value(change, value.low), _value(change, value.high)
    number, _, unit = low.rpartition(" ")
    return f"{median} ({number if number and high.endswith(f' {unit}') else low} – {high})"


def _value(change: NumberChange, value: float) -> str:
    spec = SPECS.get(change.metric)
    if spec is not None and change.metric in _COUNTED:
        return f"{value:.3g}"
    if spec is not None:
        return reading_text(spec, value)
    return step_time_text(value) if change.unit == "s" else size(value)


def _times(change: NumberChange) -> str:
    number, two = (value.median for value in change.values)
    if change.unit == "%":
        return f"{two - number:+.0f} points"
    if change.unit == Unit.CELSIUS.value:
        return f"{two - number:+.0f} °C"
    return f"{(two / number - 1) * 100:+.0f} %" if number else "from 0"

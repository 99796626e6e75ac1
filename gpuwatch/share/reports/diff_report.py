"""What differs between two sides, as a document and as the content of a report.

Structure, findings by cause, numbers beyond their noise, holders of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.sentences import count_text, first_and_more
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import SEVERITY_ORDER
from gpuwatch.core.model.machine_diff import (
    Change,
    Diff,
    FactChange,
    FindingChange,
    HolderChange,
    NumberChange,
    Side,
    Spread,
)
from gpuwatch.core.model.metrics import Unit
from gpuwatch.core.model.run import Run
from gpuwatch.experiment.probing.step_times import step_time_text
from gpuwatch.experiment.trials.trial_results import SAME_MEMORY_SHARE
from gpuwatch.share.reports import comparable_runs
from gpuwatch.share.reports.diff_sides import COUNTER_IDS, NUMBER_METRICS, DiffSide
from gpuwatch.share.reports.report_elements import Content, Table
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean

_MIN_MEDIAN_CHANGE = 0.05
"""Share of the larger median: medians that are closer are the same, however little they vary."""
_MIN_DIFFERENCE = {Unit.PERCENT: 5.0, Unit.CELSIUS: 3.0}
"""Least differences by unit: points of a percentage, degrees."""
_MIN_GROWTH_RATIO = 2.0
"""Error counters differ if one grows this many times as fast."""
_NUMBER_NAMES = {
    "median_step_seconds": "step time",
    "nvml_peak_bytes": "peak memory (NVML)",
    "allocator_peak_bytes": "peak memory (allocator)",
    "alive_bytes": "in use when taken",
    "peak_bytes": "in use at the peak",
    "pool_bytes": "taken from the driver",
}
_MIN_HOLDER_BYTES = 1 << 20
_MIN_HOLDER_SHARE = 0.01
"""Share of the memory of both sides: smaller changes of a holder are ignored."""
_MAX_HOLDERS, _MAX_HOLDERS_SHOWN = 200, 25
_CHANGE_ORDER = {"came": 0, "went": 1, "stayed": 2}
_CHANGE_WORDS: dict[Change, str] = {"came": "new", "went": "gone", "stayed": "unchanged"}


def diff(first: DiffSide, second: DiffSide) -> Diff:
    """What differs, where both sides have the same kind of content."""
    shared = first.parts & second.parts
    first, second = _with_common_findings(first, second), _with_common_findings(second, first)
    # A GPU that only one side has is a difference; its readings are not.
    facts, equal_count = [], 0
    for part, name in dict.fromkeys((*first.facts, *second.facts)):
        if part not in shared or (part, name) in first.unknown | second.unknown:
            continue
        before, after = first.facts.get((part, name)), second.facts.get((part, name))
        if part == "Machine" and (before is None or after is None):
            continue  # a run knows less of the machine than a sample
        if (before and before[1]) == (after and after[1]):
            equal_count += 1
        else:
            values = before and before[0], after and after[0]
            facts.append(FactChange(part=part, name=clean(name), values=values))
    findings = list(_findings(first, second))
    findings.sort(key=lambda finding: (_CHANGE_ORDER[finding.change], SEVERITY_ORDER[finding.severity]))
    keys = sorted(first.numbers.keys() & second.numbers.keys())
    changes = (_number_change(*key, first.numbers[key], second.numbers[key], (first.run, second.run)) for key in keys)
    numbers = [change for change in changes if change is not None]
    numbers.sort(key=_importance, reverse=True)
    holders = _holder_changes(first, second)
    return Diff(
        sides=(first.side, second.side),
        simulated=first.simulated or second.simulated,
        differs=bool(facts or numbers or holders or any(finding.change != "stayed" for finding in findings)),
        facts=tuple(facts),
        findings=tuple(findings),
        numbers=tuple(numbers),
        holders=tuple(holders),
        alike=equal_count + len(keys) - len(numbers),
        notes=tuple(_notes(first, second)),
    )


def _with_common_findings(side: DiffSide, other: DiffSide) -> DiffSide:
    """With the machine's findings alone, if the other side has no others."""
    if side.findings_of_machine is None or other.side.kind not in ("snapshot", "recording"):
        return side
    return replace(side, findings=side.findings_of_machine)


def _findings(first: DiffSide, second: DiffSide) -> Iterator[FindingChange]:
    for cause in first.findings | second.findings:
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


def _number_change(
    part: str, metric: str, before: Spread, after: Spread, runs: tuple[Run | None, Run | None]
) -> NumberChange | None:
    """The difference, if it is more than noise."""
    larger = max(abs(before.median), abs(after.median))
    spec = NUMBER_METRICS.get(metric)
    if metric in COUNTER_IDS:
        threshold = max(min(before.median, after.median) * (_MIN_GROWTH_RATIO - 1), 1e-9)
    elif metric == "median_step_seconds":
        run, other = runs
        if run is None or other is None or not comparable_runs.same_work(run, other):
            return None
        if comparable_runs.why_speeds_alike(run, other):
            return None
        threshold = 0.0
    elif spec is None:
        threshold = SAME_MEMORY_SHARE * larger
    else:
        noise = ((before.high - before.low) + (after.high - after.low)) / 2
        threshold = max(noise, _MIN_MEDIAN_CHANGE * larger, _MIN_DIFFERENCE.get(spec.unit, 0.0))
    if abs(after.median - before.median) <= threshold:
        return None
    name = spec.title if spec is not None else _NUMBER_NAMES[metric]
    if metric in COUNTER_IDS:
        name += ", per hour"
    unit = spec.unit.value if spec is not None else "s" if metric == "median_step_seconds" else "B"
    return NumberChange(part=part, name=name, metric=metric, unit=unit, values=(before, after), threshold=threshold)


def _holder_changes(first: DiffSide, second: DiffSide) -> list[HolderChange]:
    """The holders that differ, what grew most first."""
    before, after = (sum(held for _, held in side.holders.values()) for side in (first, second))
    min_change = max(_MIN_HOLDER_SHARE * max(before, after), min(_MIN_HOLDER_BYTES, after / 20))
    changes = []
    for key in second.holders | first.holders:
        counts, held = zip(*(side.holders.get(key, (0, 0)) for side in (first, second)), strict=True)
        if abs(held[1] - held[0]) >= min_change:
            device, group, source, layer, op = key
            change = HolderChange(
                device=device, group=group, source=source, layer=layer, op=op, counts=counts, held_bytes=held
            )
            changes.append(change)
    changes.sort(key=lambda change: change.held_bytes[0] - change.held_bytes[1])
    return changes[:_MAX_HOLDERS]


def _importance(change: NumberChange) -> float:
    before, after = (abs(value.median) for value in change.values)
    return abs(after - before) / max(before, after) if max(before, after) else 0.0


def _notes(first: DiffSide, second: DiffSide) -> Iterator[str]:
    for side, other in ((first, second), (second, first)):
        only_here = sorted(part for part in side.parts - other.parts if not part.startswith("GPU "))
        if only_here:
            yield f"{', '.join(only_here)}: only {side.side.name} has them"
    unknown = (first.unknown | second.unknown) & (first.facts.keys() | second.facts.keys())
    if unknown:
        fact_names = sorted(f"{part} {name}" for part, name in unknown)
        yield f"{first_and_more(fact_names, 3)}: one side could not read them"
    side_kinds = {first.side.kind, second.side.kind}
    if first.holders or second.holders:
        return
    if "run" not in side_kinds and side_kinds != {"recording"}:
        yield "load, memory, power and temperature: only recordings have enough samples"
    if "run" in side_kinds and side_kinds != {"run"}:
        yield "settings, memory and speed of the run: the other side is not a run"


# Content


def diff_content(document: Diff) -> Content:
    """Findings, a table of facts for each part, and numbers."""
    names = document.sides[0].name, document.sides[1].name
    tables = [_finding_table(document, names)]
    for part, facts in group_by(document.facts, lambda change: change.part).items():
        rows = ((clean(change.name), *map(clean, change.values)) for change in facts)
        tables.append(Table(clean(part), ("What", *names), tuple(rows)))
    tables += [_holder_table(document.holders, names), _number_table(document, names)]
    new_findings = [change for change in document.findings if change.change == "came"]
    gone_findings = [change for change in document.findings if change.change == "went"]
    counts = [
        (len(document.facts), "fact", ""),
        (len(new_findings), "new finding", ""),
        (len(gone_findings), "finding", " gone"),
        (len(document.numbers), "number", ""),
        (len(document.holders), "holder", ""),
    ]
    counts_text = ", ".join(f"{count_text(count, noun)}{suffix}" for count, noun, suffix in counts if count)
    names_text = " and ".join(map(clean, names))
    is_worse = any(change.severity == "error" for change in new_findings)
    return Content(
        title=f"{names_text} differ: {counts_text}" if document.differs else f"{names_text} do not differ",
        subtitle=" · ".join(_side_text(side) for side in document.sides),
        state="error" if is_worse else "warning" if document.differs else "ok",
        verdict="Different" if document.differs else "No difference",
        reason=_largest_growth_text(document.holders),
        simulated=SIMULATED_MACHINE if document.simulated else "",
        facts=(
            ("alike", f"{count_text(document.alike, 'fact or number does', 'facts and numbers do')} not differ"),
            *(("not compared", clean(note)) for note in document.notes),
        ),
        tables=tuple(table for table in tables if table.rows),
        footer="gpuwatch diff",
    )


def _finding_table(document: Diff, names: tuple[str, str]) -> Table:
    rows = (
        (_CHANGE_WORDS[change.change], change.id, clean(change.title), *(where or UNKNOWN for where in change.where))
        for change in document.findings
    )
    return Table("Findings", ("Change", "Cause", "Finding", *names), tuple(rows), below="Finding")


def _holder_table(changes: tuple[HolderChange, ...], names: tuple[str, str]) -> Table:
    """The changes, with the growth of each; ``names``: what the sides are called."""
    several_devices = len({change.device for change in changes}) > 1
    rows = []
    for change in changes[:_MAX_HOLDERS_SHOWN]:
        growth = change.held_bytes[1] - change.held_bytes[0]
        sides = zip(change.held_bytes, change.counts, strict=True)
        side_texts = (f"{size(amount)} ×{count}" if count else UNKNOWN for amount, count in sides)
        holder = clean(_holder_text(change, several_devices=several_devices))
        rows.append((f"{'+' if growth >= 0 else '-'}{size(abs(growth))}", *side_texts, clean(change.group), holder))
    heads = ("Change", *names)
    return Table("What grew", (*heads, "Group", "Holder"), tuple(rows), heads, below="Holder")


def _largest_growth_text(changes: tuple[HolderChange, ...]) -> str:
    """``train.py:9 in step grew most, by 16.0 MiB.``; empty if nothing that is named grew."""
    for change in changes:
        growth = change.held_bytes[1] - change.held_bytes[0]
        if growth > 0:
            holder = _holder_text(change, several_devices=False) or change.group
            return f"{clean(holder)} grew the most, by {size(growth)}."
    return ""


def _holder_text(change: HolderChange, *, several_devices: bool) -> str:
    line = f"{change.source} ({change.op})" if change.source and change.op else change.source or change.op
    layer_text = f", through {change.layer}" if change.source and change.layer else ""
    return f"{line}{layer_text}" + (f" on {change.device}" if several_devices else "")


def _number_table(document: Diff, names: tuple[str, str]) -> Table:
    rows = (
        (
            clean(f"{change.part}, {change.name}"),
            *(_spread_text(change, value) for value in change.values),
            _change_text(change),
        )
        for change in document.numbers
    )
    note = (
        "Medians, with the range of the middle half of the values. Only differences larger than the noise are listed."
    )
    return Table("Numbers", ("What", *names, "Change"), tuple(rows), right=("Change",), note=note)


def _side_text(side: Side) -> str:
    if side.begin is None or side.end is None:
        return f"{clean(side.name)}: {side.kind}, time unknown"
    begin = f"{side.begin:%Y-%m-%d %H:%M:%S}"
    samples = ""
    if side.kind == "recording":
        same_day = side.begin.date() == side.end.date()
        begin += f" to {side.end:{'%H:%M:%S' if same_day else '%Y-%m-%d %H:%M:%S'}}"
        samples = f", {count_text(side.samples, 'sample')}"
    host = f" of {clean(side.host)}" if side.host else "" if " " in side.kind else " of an unknown machine"
    return f"{clean(side.name)}: {side.kind}{host}, {begin} UTC{samples}"


def _spread_text(change: NumberChange, value: Spread) -> str:
    median = _value_text(change, value.median)
    if value.low == value.high:
        return median
    low, high = _value_text(change, value.low), _value_text(change, value.high)
    number, _, unit = low.rpartition(" ")
    return f"{median} ({number if number and high.endswith(f' {unit}') else low} – {high})"


def _value_text(change: NumberChange, value: float) -> str:
    if change.metric in COUNTER_IDS:
        return f"{value:.3g}"
    if (spec := NUMBER_METRICS.get(change.metric)) is not None:
        return metric_value_text(spec, value)
    return step_time_text(value) if change.unit == "s" else size(value)


def _change_text(change: NumberChange) -> str:
    before, after = (value.median for value in change.values)
    if change.unit == "%":
        return f"{after - before:+.0f} points"
    if change.unit == Unit.CELSIUS.value:
        return f"{after - before:+.0f} °C"
    return f"{(after / before - 1) * 100:+.0f} %" if before else "from 0"

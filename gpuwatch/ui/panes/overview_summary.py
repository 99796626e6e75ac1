"""The answer at the top of the Overview: which GPUs are free, who holds memory idle, what is wrong. Pure, no Textual.

The list of hosts says the same of all hosts, in the same words: :func:`draw_problem`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.grouped_findings import grouped_findings
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, memory, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import IDLE_SINCE, Device, MigInstance, Process, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.session.free_gpus import free_or_used_devices, is_silent
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.glyphs import SEVERITY_MARKS
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.text_width import drop_last_clauses, width_of
from gpuwatch.ui.panes.verdict import notable_notes
from gpuwatch.ui.tables.device_notes import throttled_text
from gpuwatch.ui.tables.process_columns import owner_and_pid
from gpuwatch.ui.tables.process_table_rows import RowKey

_MAX_UNKNOWN_ONSET_SECONDS = 2.0
"""Seconds after the first sample up to which what is seen may have begun before it."""


def idle_holders(view: View) -> list[tuple[float, Process, Finding]]:
    """Idle processes, as a finding judges them, and the bytes that each holds; the one with most first."""
    found = [finding for finding in view.findings if finding.id == "idle.memory-held" and finding.until is None]
    holders = [
        (row.number("gpu_memory_bytes") or 0.0, row, finding)
        for finding in found
        for row in view.processes
        if (row.pid, row.device_uuid) == (finding.pid, finding.device_uuid)
    ]
    return sorted(holders, key=lambda holder: -holder[0])


def idle_text(view: View, row: Process) -> str:
    """``4 min, since 02:31``; ``at least since`` if it may have been idle before. Empty if it is not idle, or
    is no longer on its GPU."""
    finding = next((found for *_, its, found in idle_holders(view) if its is row), None)
    since = idle_since(row, finding)
    if not since or not any(other is row for other in view.processes):
        return ""
    begun, first = clock_text(since, view.moment)[:-3], view.since.first
    seen = first is not None and since > first + _MAX_UNKNOWN_ONSET_SECONDS and not (finding and finding.may_be_older)
    return f"{steady_duration(view.moment - since)}, {'' if seen else 'at least '}since {begun}"


def idle_since(row: Process, finding: Finding | None) -> float | None:
    """When it was last seen to begin; None if that is unknown, or it is not idle."""
    reported = row.number(IDLE_SINCE)
    return reported or (finding.since.timestamp() if finding is not None and finding.since is not None else None)


def nobody_idle_text(view: View) -> str:
    """That no process is judged an idle holder, and which one comes nearest."""
    idle = [(row.idle_seconds(view.moment), row) for row in view.processes if row.number("gpu_memory_bytes")]
    resting = [(seconds, row) for seconds, row in idle if seconds]
    if not resting:
        unknown = any(seconds is None for seconds, _ in idle)
        return "whether a process is idle cannot be read" if unknown else "no process holds memory idle"
    seconds, row = max(resting, key=lambda found: found[0])
    longest = owner_and_pid(row), steady_duration(seconds), memory(row.number("gpu_memory_bytes"))
    return f"nobody idle for long; longest: {', '.join(longest)}"


_MIN_WRONG_CELLS = 80
"""Cells that what is wrong may take before the other items get shorter."""
_MIN_RANGE_GPUS = 3
"""This many GPUs in a row are written as a range."""


class SummaryItem(NamedTuple):
    """One of the answers, longest form first."""

    id: str
    """``free``, ``idle`` or ``wrong``: where it leads to."""
    forms: tuple[str, ...]
    style: str
    target: RowKey | None = None
    """GPU (UUID), and the pid and start time of the process; the pid is 0 for the GPU alone."""


PlacedItem = tuple[int, int, SummaryItem]
"""Where an item begins and ends, in cells."""


class MainProblem(NamedTuple):
    """The most important of what is wrong."""

    severity: str
    lead: str
    """The GPU, where the text does not name it; else empty."""
    text: str
    action: str
    number: int
    """How many there are."""


def main_problem(view: View) -> MainProblem | None:
    """Errors and warnings but for idle holders, then problems of sources, then a GPU throttled just now, then notes."""
    snapshot = view.snapshot
    if snapshot is None:
        return None
    idle = [finding for *_, finding in idle_holders(view)]
    if found := grouped_findings(
        (finding for finding in view.errors_and_warnings if finding not in idle), view.devices
    ):
        return _problem_of(found[0], snapshot, len(found))
    if snapshot.problems and not view.errors_and_warnings:
        problem = snapshot.problems[0]
        return MainProblem("warning", "", printable(problem.detail), printable(problem.hint), len(snapshot.problems))
    throttled = [(device, text) for device in view.devices if (text := throttled_text(device, view.findings))]
    if throttled:
        return MainProblem("warning", "", f"GPU {throttled[0][0].index} {throttled[0][1]}", "", len(throttled))
    noted = grouped_findings((note for note in notable_notes(view.findings) if note not in idle), view.devices)
    return _problem_of(noted[0], snapshot, len(noted)) if noted else None


def _problem_of(finding: Finding, snapshot: Snapshot, count: int) -> MainProblem:
    device = snapshot.device(finding.device_uuid)
    named = f"GPU {device.index}" if device is not None else ""
    lead = f"{named}: " if named and named not in finding.title else ""
    text = printable(finding.title) + " (likely)" * (finding.certainty == "likely")
    return MainProblem(finding.severity, lead, text, printable(finding.action), count)


def draw_problem(builder: LineBuilder, wrong: MainProblem, key: tuple[str, str]) -> None:
    """``✖ Wrong: GPU 1 lost  → reboot   1 of 3 [f] why``, up to the end of the line; ``key``: what shows the rest."""
    label, (glyph, style) = SEVERITY_LABELS[wrong.severity], SEVERITY_MARKS[wrong.severity]
    more = _count_text(wrong)
    builder.add(f"{glyph} {label}: ", style).add(wrong.lead, "strong")
    room = builder.cells_left - len(more + key[0]) - 1
    shown = drop_last_clauses(wrong.text, room)
    why = f" {key[1]} " if width_of(shown) + len(key[1]) + 1 <= room else " "
    text = LineBuilder(room + 1 - len(why))
    text.add(shown, "text")
    if wrong.action and text.cells_left > 12:
        text.add("  → ", style).add(wrong.action, "dim")
    end = builder.x + text.width
    builder.add_spans(text.spans).fill_to(end).add(more, "dim").add(key[0], "key").add(why, "dim")


def _count_text(wrong: MainProblem) -> str:
    return f" 1 of {wrong.number}  " if wrong.number > 1 else " "


SEVERITY_LABELS = {"error": "Wrong", "warning": "Wrong", "info": "Note"}


def draw_summary(builder: LineBuilder, view: View, chosen: str = "") -> list[PlacedItem]:
    """Draws the line; returns its places (start, end, item). ``chosen``: the item under the cursor."""
    items, wrong = summary_items(view), main_problem(view)
    least = 0
    if wrong is not None:
        around = width_of(wrong.lead + _count_text(wrong)) + len(f" ▲ {SEVERITY_LABELS[wrong.severity]}: [f] ")
        shown = drop_last_clauses(wrong.text, max(_MIN_WRONG_CELLS, builder.width // 2) - around)
        least = min(_MIN_WRONG_CELLS, width_of(shown) + around)
    texts = [item.forms[0] for item in items]
    for number in range(max((len(item.forms) for item in items), default=1)):
        for place, item in enumerate(items):
            if sum(width_of(text) + 3 for text in texts) + least <= builder.width:
                break
            texts[place] = item.forms[min(number + 1, len(item.forms) - 1)]
    places = []
    for item, text in zip(items, texts, strict=True):
        start = _start_item(builder, item.id == chosen)
        label, _, rest = text.partition(": ")
        builder.add(f"{label}: ", "dim" if item.style == "dim" else "text").add(rest, item.style)
        places.append((start, builder.x, item))
    if wrong is not None:
        start = _start_item(builder, chosen == "wrong")
        draw_problem(builder, wrong, ("[f]", "why"))
        places.append((start, builder.width, SummaryItem("wrong", (), "")))
    return places


def _start_item(builder: LineBuilder, chosen: bool) -> int:
    if builder.x:
        builder.add(" ·", "faint")
    start = builder.x
    builder.add("▸" if chosen else " ", "focus")
    return start


def summary_items(view: View) -> list[SummaryItem]:
    """Who is free and who holds memory idle, as far as that is known now."""
    snapshot = view.snapshot
    if snapshot is None or view.waiting or not snapshot.devices:
        return []
    if is_silent(view):
        # What was free before the driver or the collector fell silent may be taken.
        return [SummaryItem("free", (f"Free: {UNKNOWN}",), "dim")]
    return [_free_item(view, snapshot), *_idle_item(view)]


GpuOrInstance = tuple[Device, MigInstance | None]


def _free_item(view: View, snapshot: Snapshot) -> SummaryItem:
    units = free_or_used_devices(view, snapshot)
    free = [(device, instance) for device, instance, idle in units if idle]
    if free:
        forms: tuple[str, ...] = (f"Free: {_sizes_text(free)}", f"Free: {_names_text(free)}")
        number = f"Free: {count_text(len(free), 'GPU' if all(mig is None for _, mig in free) else 'device')}"
        forms += (number,) if len(forms[-1]) > len(number) else ()
        first = next((device for device, _ in free if not _has_problem(device, view)), free[0][0])
        return SummaryItem("free", forms, "ok", (first.uuid, 0, None))
    known = {amount: (device, mig) for device, mig, _ in units if (amount := _free_memory((device, mig))) is not None}
    if not known:
        return SummaryItem("free", (f"Free: {UNKNOWN}",), "dim")
    most = known[max(known)]
    none = f"Free: no GPU (most {size(max(known))} on {_unit_name(most)})", "Free: no GPU"
    return SummaryItem("free", none, "dim", (most[0].uuid, 0, None))


def _has_problem(device: Device, view: View) -> bool:
    """Whether a free GPU is not the first one to use."""
    wrong = any(finding.device_uuid == device.uuid for finding in view.errors_and_warnings)
    return wrong or bool(throttled_text(device, view.findings))


def _free_memory(unit: GpuOrInstance) -> float | None:
    device, instance = unit
    return (device if instance is None else instance).number("memory.free_bytes")


def _unit_name(unit: GpuOrInstance) -> str:
    device, instance = unit
    return str(device.index) if instance is None else f"{device.index} MIG {instance.id}"


def _sizes_text(free: Sequence[GpuOrInstance]) -> str:
    """``2, 5 (23.8 GiB each), 7 (47.5 GiB)``."""
    of: dict[str, list[GpuOrInstance]] = {}
    for unit in free:
        of.setdefault(size(_free_memory(unit)), []).append(unit)
    return ", ".join(f"{_names_text(units)} ({text}{' each' * (len(units) > 1)})" for text, units in of.items())


def _names_text(free: Sequence[GpuOrInstance]) -> str:
    """``0-3, 5``."""
    runs: list[list[GpuOrInstance]] = []
    for unit in free:
        last = runs[-1][-1] if runs else None
        if last is not None and last[1] is None and unit[1] is None and unit[0].index == last[0].index + 1:
            runs[-1].append(unit)
        else:
            runs.append([unit])
    return ", ".join(
        f"{_unit_name(run[0])}-{_unit_name(run[-1])}"
        if len(run) >= _MIN_RANGE_GPUS
        else ", ".join(map(_unit_name, run))
        for run in runs
    )


def _idle_item(view: View) -> list[SummaryItem]:
    holders = idle_holders(view)
    if not holders:
        return []
    held, row, finding = holders[0]
    who = owner_and_pid(row)
    since = idle_since(row, finding)
    lasts = f", {steady_duration(view.moment - since)}" if since else ""
    more = f" (+{len(holders) - 1})" if len(holders) > 1 else ""
    forms = (
        f"Idle: {who} holds {memory(held)} on {row.device_index}{lasts}{more}",
        f"Idle: {who} {memory(held)} on {row.device_index}{more}",
        f"Idle: {who}{more}",
    )
    return [SummaryItem("idle", forms, "warning" if finding.severity != "info" else "text", row.key)]

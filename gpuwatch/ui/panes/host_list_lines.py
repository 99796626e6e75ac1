"""The lines of the list of hosts: which GPUs are free, who has the others, what is wrong, one line a host. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, short_gib
from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.safe_text import printable
from gpuwatch.fleet.fleet_summary import FleetSummary, GpuUse, HostSummary
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder, vertical_bar
from gpuwatch.ui.drawing.styled_lines import Line, Span, spans_width
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.panes.overview_summary import MainProblem, draw_problem
from gpuwatch.ui.panes.verdict import error_count_spans
from gpuwatch.ui.tables.gpu_loads import HOT_CELSIUS
from gpuwatch.ui.tables.host_columns import PlacedColumn, model_of, used_by

_LATE_SECONDS = 3.0
"""Seconds beyond the interval after which the list is old."""
_LABEL_CELLS = 9


def answered_hosts(fleet: Fleet | None, *, short: bool = False) -> Span:
    """``118 of 125 hosts answered``."""
    if fleet is None:
        return ("◌ asking…" if short else "◌ asking for hosts…"), "accent"
    if fleet.problem:
        return f"✖ {'no answer' if short else printable(fleet.problem)}", "badge-error"
    total, answered = len(fleet.hosts), fleet.answered
    hosts = f"host{'s' * (total != 1)}"
    text = f"{answered} of {total}" if short else f"{answered} of {total} {hosts} answered"
    awaited = sum(host.pending for host in fleet.hosts)
    return text, "badge-warning" if answered + awaited < total else "text"


def fleet_top_line(
    builder: LineBuilder, summary: FleetSummary | None, source: str, now: float, interval: float
) -> None:
    """The source, how many hosts answered, the verdict, the clock."""
    fleet = summary.fleet if summary is not None else None
    ends: list[Span] = [(clock_text(now), "text"), (f"  {interval:g}s ", "dim")]
    marks: list[Span] = []
    if summary is not None and fleet is not None:
        if any(host.view.snapshot is not None and host.view.snapshot.simulated for host in summary.hosts):
            marks.append((" SIMULATED ", "badge-neutral"))
        age = now - fleet.taken_at
        if age > interval + _LATE_SECONDS:
            marks.append((f"data {age:.0f} s old", "warning"))
        errors = sum(finding.severity == "error" for _, finding in summary.errors_and_warnings)
        warnings = len(summary.errors_and_warnings) - errors
        marks += [(f" {text} ", style) for text, style in error_count_spans(errors, warnings)]
    room = builder.width - spans_width(ends) - spans_width(marks) - 2 * len(marks)
    builder.add(" gpuwatch ", "title")
    text, style = answered_hosts(fleet)
    if builder.x + width_of(text) + 4 > room:
        text, style = answered_hosts(fleet, short=True)
    named = printable(source)
    if builder.x + width_of(named) + width_of(text) + 6 <= room:
        builder.add(f" {named} ", "dim")
    builder.add(" ").add(f" {text} " if style.startswith("badge") else text, style)
    builder.fill_to(room)
    for text, style in marks:
        builder.add(text, style).add("  ")
    builder.add_spans(ends)


def free_line(builder: LineBuilder, summary: FleetSummary | None) -> None:
    """``Free  ○ 212 of 943 GPUs   n03 8  n07 8  … and 41 more hosts``."""
    builder.add(align_left(" Free", _LABEL_CELLS), "strong")
    if summary is None:
        return
    builder.add(f"○ {summary.free_count}", "ok" if summary.free_count else "dim")
    builder.add(f" of {count_text(summary.gpu_count, 'GPU')}", "text")
    _add_counts(builder, summary.free_hosts, "host", " ")


def used_line(builder: LineBuilder, summary: FleetSummary | None) -> None:
    """``In use  alice 40  bob 12 …``, in GPUs."""
    builder.add(align_left(" In use", _LABEL_CELLS), "strong")
    if summary is None:
        return
    used = [gpu for host in summary.hosts if host.view.answered for gpu in host.gpus if gpu.use == "used"]
    builder.add(f"■ {len(used)}", "text" if used else "dim")
    nobody = sum(not any(holder.name for holder in gpu.holders) for gpu in used)
    _add_counts(builder, [*summary.holders, *([("not known", nobody)] if nobody else [])], "user", " ×")


def _add_counts(builder: LineBuilder, counts: Sequence[tuple[str, int]], what: str, sign: str) -> None:
    """Names with numbers, as many as fit."""
    builder.add("  ")
    for place, (name, number) in enumerate(counts):
        rest = len(counts) - place - 1
        more = f"  and {count_text(rest + 1, f'more {what}')}"
        text, amount = f"  {printable(name)}", f"{sign}{number}"
        need = width_of(text) + len(amount) + (len(f"  and {rest} more {what}s") if rest else 0)
        if builder.cells_left < need + 1:
            builder.add(more if place else more[1:], "dim")
            return
        builder.add(text, "text").add(amount, "dim")


def problem_line(builder: LineBuilder, summary: FleetSummary | None) -> None:
    """The most important finding of all hosts; else the hosts that do not answer; else that all is well."""
    if summary is None:
        return
    if summary.fleet.problem:
        builder.add(" ✖ ", "error").add(printable(summary.fleet.problem), "text")
        if summary.fleet.hint:
            builder.add(f"  → {printable(summary.fleet.hint)}", "dim")
        return
    silent = [host for host in summary.hosts if not host.view.answered and not host.view.pending]
    if summary.errors_and_warnings:
        host, finding = summary.errors_and_warnings[0]
        lead = f"{printable(host.name)}  {gpu_label(host, finding.device_uuid)}"
        wrong = MainProblem(finding.severity, lead, printable(finding.title), "", len(summary.errors_and_warnings))
        draw_problem(builder.add(" "), wrong, ("[f]", "list"))
    elif silent:
        names = ", ".join(printable(host.name) for host in silent)
        why = f": {printable(silent[0].view.reason)}" if len(silent) == 1 else ""
        builder.add(" ✖ ", "error").add(cut_to_width(f"no answer from {names}{why}", builder.cells_left), "text")
    elif any(host.view.pending for host in summary.hosts):
        builder.add(" ◌ connecting…", "dim")
    elif summary.hosts:
        unread = sum(gpu.use == "unknown" for host in summary.hosts for gpu in host.gpus)
        builder.add(*((" ◌ ", "dim") if unread else (" ● ", "ok"))).add("no errors or warnings reported", "dim")
        builder.add(f"; of {count_text(unread, 'GPU')} too little is known" if unread else "", "dim")
    else:
        builder.add(" – ", "dim").add("no GPUs reported", "dim")


def gpu_label(host: HostSummary, uuid: str | None) -> str:
    """``GPU 3: `` for a finding of one GPU."""
    found = next((gpu.device for gpu in host.gpus if gpu.device.uuid == uuid), None)
    return f"GPU {found.index}: " if found is not None and found.index >= 0 else ""


def header_line(placed: Sequence[PlacedColumn], width: int, sort: str, *, reverse: bool) -> Line:
    """The titles of the columns; an arrow beside the one that sorts."""
    builder = LineBuilder(width)
    for place in placed:
        chosen = place.column.id == sort
        title = place.column.title
        if place.column.id == "state" and not any(placement.column.id == "user" for placement in placed):
            title = "USED BY, STATE"
        if chosen:
            arrow = "↓" if place.column.descending != reverse else "↑"
            title = f"{arrow}{title}" if place.column.at_right else f"{title}{arrow}"
        text = align_right(title, place.width) if place.column.at_right else align_left(title, place.width)
        builder.fill_to(place.x, style="header").add(text, "sorted" if chosen else "header")
    return builder.fill_to(width, style="header").line()


def host_row(host: HostSummary, placed: Sequence[PlacedColumn], width: int) -> Line:
    """One host."""
    builder = LineBuilder(width)
    has_user_column = any(placement.column.id == "user" for placement in placed)
    for place in placed:
        builder.fill_to(place.x)
        room = LineBuilder(place.width)
        if place.column.id == "state":
            _state_cell(room, host, has_user_column=has_user_column)
        else:
            _CELLS[place.column.id](room, host)
        builder.add_spans(room.spans)
    return builder.fill_to(width).line()


def _free_cell(builder: LineBuilder, host: HostSummary) -> None:
    if not host.view.answered or not host.gpus:
        _add_value(builder, None)
        return
    text = f"{host.free_count}/{len(host.gpus)}"
    builder.fill_to(builder.width - len(text)).add(str(host.free_count), "ok" if host.free_count else "dim")
    builder.add(f"/{len(host.gpus)}", "dim")


def _gpus_cell(builder: LineBuilder, host: HostSummary) -> None:
    more = len(host.gpus) - builder.width
    shown = host.gpus if more <= 0 else host.gpus[: builder.width - len(f"+{more + 3}")]
    for gpu in shown:
        builder.add(*(gpu_mark(gpu) if host.view.answered else ("–", "dim")))
    if more > 0:
        builder.add(f"+{len(host.gpus) - len(shown)}", "dim")


def gpu_mark(gpu: GpuUse) -> Span:
    """One cell: free, how busy, lost, or not known."""
    if gpu.use == "free":
        return "○", "ok"
    if gpu.use == "bad":
        return "✖", "error"
    if gpu.use == "unknown":
        return "?", "dim"
    busy = gpu.utilization
    if busy is None:
        return "■", "text"
    return vertical_bar(max(busy / 100, 0.01)), "text"  # green is for what is free


def _add_value(builder: LineBuilder, text: str | None, style: str = "text") -> None:
    """At the right of its column; None: unknown."""
    builder.add(align_right(UNKNOWN if text is None else text, builder.width), "dim" if text is None else style)


def _memory_text(host: HostSummary) -> str | None:
    if host.memory_used is None or host.memory_total is None:
        return None
    return f"{host.memory_used / 2**30:.0f}/{host.memory_total / 2**30:.0f}G"


def _temperature_cell(builder: LineBuilder, host: HostSummary) -> None:
    hot = host.hottest is not None and host.hottest >= HOT_CELSIUS
    text = None if host.hottest is None else f"{host.hottest:.0f}°{'▲' if hot else ' '}"
    _add_value(builder, text, "high" if hot else "text")


def _state_cell(builder: LineBuilder, host: HostSummary, *, has_user_column: bool) -> None:
    """Draws what is wrong, or who uses the GPUs if that has no column of its own."""
    if not host.view.answered:
        builder.add(*(("◌ ", "dim") if host.view.pending else ("✖ ", "error")))
        builder.add(cut_to_width(printable(host.view.reason), builder.cells_left), "dim")
        return
    if host.errors_and_warnings:
        first, count = host.errors_and_warnings[0], len(host.errors_and_warnings)
        bad = first.severity == "error"
        builder.add("✖ " if bad else "▲ ", "error" if bad else "warning")
        more = f" +{count - 1}" if count > 1 else ""
        title = f"{gpu_label(host, first.device_uuid)}{printable(first.title)}"
        builder.add(cut_to_width(title, builder.cells_left - len(more)), "text").add(more, "dim")
    elif not has_user_column:
        builder.add(cut_to_width(used_by(host), builder.cells_left), "text")


_CELLS: dict[str, Callable[[LineBuilder, HostSummary], object]] = {
    "host": lambda builder, host: builder.add(
        cut_to_width(printable(host.name), builder.width), "strong" if host.view.answered else "dim"
    ),
    "free": _free_cell,
    "gpus": _gpus_cell,
    "util": lambda builder, host: _add_value(builder, None if host.utilization is None else f"{host.utilization:.0f}%"),
    "mem": lambda builder, host: _add_value(builder, _memory_text(host)),
    "free-mem": lambda builder, host: _add_value(
        builder, None if host.memory_free is None else short_gib(host.memory_free)
    ),
    "temp": _temperature_cell,
    "model": lambda builder, host: builder.add(cut_to_width(printable(model_of(host)), builder.width), "dim"),
    "user": lambda builder, host: builder.add(cut_to_width(used_by(host), builder.width), "text"),
}

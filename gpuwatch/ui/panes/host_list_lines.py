"""The lines of the list of hosts: which GPUs are free, who has the others, what is wrong, one line a host. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuwatch.core.formatting.units import UNKNOWN, short_gib
from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.safe_text import printable
from gpuwatch.fleet.host_summary import FleetSummary, GpuUse, HostSummary
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import Pen, meter
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.panes.overview_summary import Wrong, write_wrong
from gpuwatch.ui.panes.top_and_host_lines import error_count
from gpuwatch.ui.tables.host_columns import Placed, model_of, used_by

_LATE_SECONDS = 3.0
"""Seconds beyond the interval after which the list is old."""
_LABEL_CELLS = 9
_HOT_CELSIUS = 85.0
"""°C from which a temperature is marked; the limits of these cards are not known here."""


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


def fleet_top_line(pen: Pen, summary: FleetSummary | None, source: str, now: float, interval: float) -> None:
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
        marks += [(f" {text} ", ink) for text, ink in error_count(errors, len(summary.errors_and_warnings) - errors)]
    room = pen.limit - sum(width_of(text) for text, _ in ends) - sum(width_of(text) + 2 for text, _ in marks)
    pen.add(" gpuwatch ", "title")
    text, ink = answered_hosts(fleet)
    if pen.x + width_of(text) + 4 > room:
        text, ink = answered_hosts(fleet, short=True)
    named = printable(source)
    if pen.x + width_of(named) + width_of(text) + 6 <= room:
        pen.add(f" {named} ", "dim")
    pen.add(" ").add(f" {text} " if ink.startswith("badge") else text, ink)
    pen.to(room)
    for text, ink in marks:
        pen.add(text, ink).add("  ")
    pen.write(ends)


def free_line(pen: Pen, summary: FleetSummary | None) -> None:
    """``Free  ○ 212 of 943 GPUs   n03 8  n07 8  … and 41 more hosts``."""
    pen.add(align_left(" Free", _LABEL_CELLS), "strong")
    if summary is None:
        return
    pen.add(f"○ {summary.free}", "ok" if summary.free else "dim")
    pen.add(f" of {summary.gpus} GPU{'s' * (summary.gpus != 1)}", "text")
    _counts(pen, summary.free_hosts, "host", " ")


def used_line(pen: Pen, summary: FleetSummary | None) -> None:
    """``In use  alice 40  bob 12 …``, in GPUs."""
    pen.add(align_left(" In use", _LABEL_CELLS), "strong")
    if summary is None:
        return
    used = [gpu for host in summary.hosts if host.view.answered for gpu in host.gpus if gpu.use == "used"]
    pen.add(f"■ {len(used)}", "text" if used else "dim")
    nobody = sum(not any(holder.name for holder in gpu.holders) for gpu in used)
    _counts(pen, [*summary.holders, *([("not known", nobody)] if nobody else [])], "user", " ×")


def _counts(pen: Pen, counts: Sequence[tuple[str, int]], what: str, sign: str) -> None:
    """Names with numbers, as many as fit."""
    pen.add("  ")
    for place, (name, number) in enumerate(counts):
        rest = len(counts) - place - 1
        more = f"  and {rest + 1} more {what}{'s' * (rest > 0)}"
        text, amount = f"  {printable(name)}", f"{sign}{number}"
        need = width_of(text) + len(amount) + (len(f"  and {rest} more {what}s") if rest else 0)
        if pen.left < need + 1:
            pen.add(more if place else more[1:], "dim")
            return
        pen.add(text, "text").add(amount, "dim")


def wrong_line(pen: Pen, summary: FleetSummary | None) -> None:
    """The most important finding of all hosts; else the hosts that do not answer; else that all is well."""
    if summary is None:
        return
    if summary.fleet.problem:
        pen.add(" ✖ ", "error").add(printable(summary.fleet.problem), "text")
        if summary.fleet.hint:
            pen.add(f"  → {printable(summary.fleet.hint)}", "dim")
        return
    silent = [host for host in summary.hosts if not host.view.answered and not host.view.pending]
    if summary.errors_and_warnings:
        host, finding = summary.errors_and_warnings[0]
        lead = f"{printable(host.name)}  {gpu_label(host, finding.device_uuid)}"
        wrong = Wrong(finding.severity, lead, printable(finding.title), "", len(summary.errors_and_warnings))
        write_wrong(pen.add(" "), wrong, ("[f]", "list"))
    elif silent:
        names = ", ".join(printable(host.name) for host in silent)
        why = f": {printable(silent[0].view.reason)}" if len(silent) == 1 else ""
        pen.add(" ✖ ", "error").add(cut_to_width(f"no answer from {names}{why}", pen.left), "text")
    elif any(host.view.pending for host in summary.hosts):
        pen.add(" ◌ connecting…", "dim")
    elif summary.hosts:
        unread = sum(gpu.use == "unknown" for host in summary.hosts for gpu in host.gpus)
        pen.add(*((" ◌ ", "dim") if unread else (" ● ", "ok"))).add("no errors or warnings reported", "dim")
        pen.add(f"; of {unread} GPU{'s' * (unread > 1)} too little is known" if unread else "", "dim")
    else:
        pen.add(" – ", "dim").add("no GPUs reported", "dim")


def gpu_label(host: HostSummary, uuid: str | None) -> str:
    """``GPU 3: `` for a finding of one GPU."""
    found = next((gpu.device for gpu in host.gpus if gpu.device.uuid == uuid), None)
    return f"GPU {found.index}: " if found is not None and found.index >= 0 else ""


def header(placed: Sequence[Placed], width: int, sort: str, *, reverse: bool) -> Line:
    """The titles of the columns; an arrow beside the one that sorts."""
    pen = Pen(width)
    for place in placed:
        chosen = place.column.id == sort
        title = place.column.title
        if place.column.id == "state" and not any(placement.column.id == "user" for placement in placed):
            title = "USED BY, STATE"
        if chosen:
            arrow = "↓" if place.column.descending != reverse else "↑"
            title = f"{arrow}{title}" if place.column.at_right else f"{title}{arrow}"
        text = align_right(title, place.width) if place.column.at_right else align_left(title, place.width)
        pen.to(place.x, ink="header").add(text, "sorted" if chosen else "header")
    return pen.to(width, ink="header").line()


def host_line(host: HostSummary, placed: Sequence[Placed], width: int) -> Line:
    """One host."""
    pen = Pen(width)
    both = any(placement.column.id == "user" for placement in placed)
    for place in placed:
        pen.to(place.x)
        room = Pen(place.width)
        if place.column.id == "state":
            _state(room, host, both=both)
        else:
            _CELLS[place.column.id](room, host)
        pen.write(room.spans)
    return pen.to(width).line()


def _name(pen: Pen, host: HostSummary) -> None:
    pen.add(cut_to_width(printable(host.name), pen.limit), "strong" if host.view.answered else "dim")


def _free(pen: Pen, host: HostSummary) -> None:
    if not host.view.answered or not host.gpus:
        _known(pen, None)
        return
    text = f"{host.free}/{len(host.gpus)}"
    pen.to(pen.limit - len(text)).add(str(host.free), "ok" if host.free else "dim").add(f"/{len(host.gpus)}", "dim")


def _gpus(pen: Pen, host: HostSummary) -> None:
    more = len(host.gpus) - pen.limit
    shown = host.gpus if more <= 0 else host.gpus[: pen.limit - len(f"+{more + 3}")]
    for gpu in shown:
        pen.add(*(gpu_sign(gpu) if host.view.answered else ("–", "dim")))
    if more > 0:
        pen.add(f"+{len(host.gpus) - len(shown)}", "dim")


def gpu_sign(gpu: GpuUse) -> Span:
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
    return meter(max(busy / 100, 0.01)), "text"  # green is for what is free


def _known(pen: Pen, text: str | None, ink: str = "text") -> None:
    """At the right of its column; None: unknown."""
    pen.add(align_right(UNKNOWN if text is None else text, pen.limit), "dim" if text is None else ink)


def _memory(host: HostSummary) -> str | None:
    if host.memory_used is None or host.memory_total is None:
        return None
    return f"{host.memory_used / 2**30:.0f}/{host.memory_total / 2**30:.0f}G"


def _temperature(pen: Pen, host: HostSummary) -> None:
    hot = host.hottest is not None and host.hottest >= _HOT_CELSIUS
    text = None if host.hottest is None else f"{host.hottest:.0f}°{'▲' if hot else ' '}"
    _known(pen, text, "high" if hot else "text")


def _state(pen: Pen, host: HostSummary, *, both: bool) -> None:
    """Draws what is wrong, or who uses the GPUs if that has no column of its own."""
    if not host.view.answered:
        pen.add(*(("◌ ", "dim") if host.view.pending else ("✖ ", "error")))
        pen.add(cut_to_width(printable(host.view.reason), pen.left), "dim")
        return
    if host.errors_and_warnings:
        first, count = host.errors_and_warnings[0], len(host.errors_and_warnings)
        bad = first.severity == "error"
        pen.add("✖ " if bad else "▲ ", "error" if bad else "warning")
        more = f" +{count - 1}" if count > 1 else ""
        title = f"{gpu_label(host, first.device_uuid)}{printable(first.title)}"
        pen.add(cut_to_width(title, pen.left - len(more)), "text").add(more, "dim")
    elif not both:
        pen.add(cut_to_width(used_by(host), pen.left), "text")


_CELLS: dict[str, Callable[[Pen, HostSummary], object]] = {
    "host": _name,
    "free": _free,
    "gpus": _gpus,
    "util": lambda pen, host: _known(pen, None if host.utilization is None else f"{host.utilization:.0f}%"),
    "mem": lambda pen, host: _known(pen, _memory(host)),
    "most": lambda pen, host: _known(pen, None if host.memory_free is None else short_gib(host.memory_free)),
    "temp": _temperature,
    "model": lambda pen, host: pen.add(cut_to_width(printable(model_of(host)), pen.limit), "dim"),
    "user": lambda pen, host: pen.add(cut_to_width(used_by(host), pen.limit), "text"),
}

"""A GPU as a card: a frame with its identity, bars, numbers, and graphs if there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.core.formatting import units
from gpuwatch.core.formatting.text import printable
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.cells import cut, width_of
from gpuwatch.ui.drawing.layout import BESIDE_WIDTH, NUMBERS_WIDTH, Plan, field_rows
from gpuwatch.ui.drawing.lines import Span
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.drawing.trend import axis_of, axis_text, braille, recent, span_for
from gpuwatch.ui.drawing.wrapping import shortened
from gpuwatch.ui.panes.gpu_line import sparkline
from gpuwatch.ui.panes.mig_line import part_pens
from gpuwatch.ui.tables.device_facts import (
    clock_note,
    finding_mark,
    fraction,
    holder_note,
    link,
    state_note,
    whole_number,
)
from gpuwatch.ui.tables.gpu_choice import GpuChoice
from gpuwatch.ui.tables.gpu_fields import FIELDS, SORTED, GpuField, in_card
from gpuwatch.ui.tables.gpu_graphs import GRAPHS
from gpuwatch.ui.tables.load_levels import INKS, Load, Thresholds, bar_ink, mark, rank

_GIB = 1024**3
_LABEL = 4
_WHO = 12
"""Cells of a user's name in the list of memory holders."""
_LEAST_SHOWN = 0.05 * _GIB
"""Less than this rounds to 0.0 GiB."""
_LOST_GRAPH = 3
"""Lines needed to draw the history of a lost device: a caption and dots."""
_RULED = 5
"""A graph with at least this many rows has a line in the middle of its axis."""
_RUNS = re.compile(r" +|[^ ]+")
_MEMORY_TEXT = 18
"""`` 131.2 / 139.8 GiB``"""


def card(
    device: Device,
    view: View,
    width: int,
    plan: Plan,
    *,
    finding: Finding | None,
    selected: bool,
    choice: GpuChoice,
) -> list[list[Span]]:
    """The lines of one card, each exactly ``width`` cells.

    The place of a field follows from the size and from ``choice.fields``, which is the same for all GPUs.
    """
    edge = "focus" if selected else "border"
    inner, graph, facts, parts = width - 4, plan.graph, plan.facts, plan.parts
    lines = [_top(device, width, edge, selected=selected)]
    bad, bad_ink = state_note(device)
    rows: list[Pen] = []
    if bad and device.number("memory.used_bytes") is None:
        rows = _lost(device, view, inner, 3 + graph + facts + parts, bad, bad_ink, choice)
    else:
        draw = _beside if graph and inner >= BESIDE_WIDTH else _below
        processes = view.snapshot.processes if view.snapshot is not None and parts else ()
        divided = part_pens(device, processes, parts, inner)
        rows = draw(device, view, inner, graph, plan.bands, choice)
        # Below the numbers of the whole device, but not between graphs beside them.
        place = 3 if draw is _below else len(rows)
        rows[place:place] = [*divided, *(Pen(inner) for _ in range(parts - len(divided)))]
        if facts:
            rows += [ledger(device, view, inner), *_further_fields(device, facts - 1, inner, choice)]
    for pen in rows:
        pen.to(inner)
        lines.append([("│ ", edge), *pen.spans, (" │", edge)])
    lines.append(_bottom(device, view, width, edge, finding))
    return lines


def _below(device: Device, view: View, inner: int, graph: int, bands: int, choice: GpuChoice) -> list[Pen]:
    """Bars and numbers with graphs below."""
    return [*_bars(device, view, inner, graph, choice), *_graphs(device, view, inner, graph, bands, choice.graphs)]


def _bars(device: Device, view: View, inner: int, graph: int, choice: GpuChoice) -> list[Pen]:
    """Utilization, memory, and the first fields."""
    at = choice.thresholds
    return [
        _utilisation(device, view, inner, graph, at, sorted_by=choice.order),
        _memory(device, inner, graph, at, sorted_by=choice.order),
        _numbers(device, inner, choice),
    ]


def _beside(device: Device, view: View, inner: int, graph: int, bands: int, choice: GpuChoice) -> list[Pen]:
    """In a very wide card: numbers at the left, graphs at the right."""
    lines = 3 + graph
    numbers = [
        *_bars(device, view, NUMBERS_WIDTH, graph, choice),
        ledger(device, view, NUMBERS_WIDTH),
        Pen(NUMBERS_WIDTH),
    ]
    numbers += _further_fields(device, lines - 5, NUMBERS_WIDTH, choice)
    graphs = _graphs(device, view, inner - NUMBERS_WIDTH - 3, lines, bands, choice.graphs)
    pens = []
    for row in range(lines):
        pen = Pen(inner)
        for x, part in ((0, numbers[row] if row < len(numbers) else None), (NUMBERS_WIDTH + 3, graphs[row])):
            if part is not None:
                pen.to(x)
                pen.write(part.spans)
        pens.append(pen)
    return pens


def ledger(device: Device, view: View, inner: int) -> Pen:
    """GPU memory by process, unexplained memory, and free memory."""
    processes = view.snapshot.processes if view.snapshot is not None else ()
    held = [(row.number("gpu_memory_bytes"), row) for row in processes if row.device_uuid == device.uuid]
    held.sort(key=lambda one: -1.0 if one[0] is None else one[0], reverse=True)
    parts = [(amount, f"{printable(row.user or row.name or '')[:_WHO]} {row.pid}".strip()) for amount, row in held]
    nobody, free = device.number("memory.unexplained_bytes"), device.number("memory.free_bytes")
    after: list[tuple[float | None, str]] = []
    if nobody is not None and nobody >= _LEAST_SHOWN:
        after.append((nobody, "unexplained"))
    after += [(free, "free")] if free is not None else []
    pen = Pen(inner)
    if not any(row.readings or row.missing for row in processes) and (processes or not _counted(device)):
        return pen.add("HELD ", "dim")  # processes were not read yet
    # An empty list of processes is trusted only if unexplained memory could be computed; unified memory has none.
    listed = nobody is not None or device.unified_memory
    none = "No processes" if listed else f"{UNKNOWN} processes cannot be listed"
    pen.add("HELD " if parts else none, "dim")
    in_gib = False
    for number, (amount, name) in enumerate(parts + after):
        size = units.memory(amount) if number < len(parts) else units.size(amount)
        if in_gib:
            size = size.removesuffix(" GiB")  # the unit is shown once
        left = len(parts) - number
        gap = " · " if pen.x > len("HELD ") else ""
        if pen.left < len(gap + size) + 1 + width_of(name) + (len(f" · {left - 1} more") if left > 1 else 0):
            if left > 0:
                pen.add(f"{gap}{left} {'more' if number else 'processes'}", "dim")
            break
        pen.add(gap, "faint").add(size, "dim" if amount is None else "text").add(f" {name}", "dim")
        in_gib = in_gib or size.endswith(" GiB")
    return pen


def _counted(device: Device) -> bool:
    """Whether its memory was compared with that of its processes, even if that failed."""
    return "memory.unexplained_bytes" in device.readings or "memory.unexplained_bytes" in device.missing


def _further_fields(device: Device, lines: int, inner: int, choice: GpuChoice) -> list[Pen]:
    """Fields that do not fit beside the first ones, in ``lines`` lines."""
    pens = _field_pens(device, inner, choice, 1, 1 + max(lines, 0))
    return [*pens, *(Pen(inner) for _ in range(lines - len(pens)))]


def _top(device: Device, width: int, edge: str, *, selected: bool) -> list[Span]:
    pen = Pen(width)
    pen.add("╭─", edge).add(f" {device.index}", "title").add(" · ", edge)
    bus = device.pci_bus_id
    name = cut(printable(device.name), width - pen.x - width_of(bus) - 8)
    pen.add(name, "strong")
    if device.simulated and "simulated" not in name.lower() and pen.left > width_of(bus) + 20:
        pen.add(" simulated", "dim")
    pen.add(" ", edge)
    if selected:
        pen.add("◂ ", edge)
    if pen.left >= width_of(bus) + 5:
        pen.to(width - width_of(bus) - 4, "─", edge).add(f" {bus} ", "dim")
    return pen.to(width - 1, "─", edge).add("╮", edge).spans


def _bottom(device: Device, view: View, width: int, edge: str, finding: Finding | None) -> list[Span]:
    pen = Pen(width)
    pen.add("╰", edge)
    found = link(device)
    pcie = f"PCIe {found}{' GB/s' if '↓' in found else ''}" if found else ""
    start = width - width_of(pcie) - 4 if pcie else width - 2
    mark, mark_ink = finding_mark(device, finding, view.findings)
    bad, ink = state_note(device)
    clocks = clock_note(device, finding, view.findings)
    reserved = holder_note(device, view)
    notes = [(mark, mark_ink)] if mark else []
    notes += [(bad, ink)] if bad and device.number("memory.used_bytes") is not None else []
    notes += [(reserved, "dim")] if reserved else []
    notes += [(f"clocks: {clocks}", "dim")] if clocks else []
    for number, (text, note_ink) in enumerate(notes):
        # The first note is worth more than the link, but its details are not.
        room = start - pen.x - 3
        short = shortened(text, room)
        if short.endswith("…") and not number:
            short = shortened(text, width - pen.x - 5)
        if not short.endswith("…"):
            pen.add("─", edge).add(f" {short} ", note_ink)
    if pcie and pen.x <= start:
        pen.to(start, "─", edge).add(f" {pcie} ", "dim")
    return pen.to(width - 1, "─", edge).add("╯", edge).spans


def _bar_width(inner: int, graph: int) -> int:
    if graph:
        return max(inner - _LABEL - 2 - _MEMORY_TEXT - 16, 10)
    return min(max(int(inner * 0.36), 10), 44)


def _label(pen: Pen, text: str, load: Load, level: int, sorted_by: str) -> None:
    """A bar's label with the mark of its load, or of the order."""
    sign, ink = mark(load, level), INKS[level]
    if load == sorted_by:
        pen.add(text, "sorted").add(sign.strip() or SORTED, ink if sign.strip() else "sorted")
    else:
        pen.add(text, "dim").add(sign, ink)


def _utilisation(device: Device, view: View, inner: int, graph: int, thresholds: Thresholds, *, sorted_by: str) -> Pen:
    pen = Pen(inner)
    gpu = device.number("utilization.gpu_percent")
    level = rank("utilization", device, thresholds)
    _label(pen, "GPU", "utilization", level, sorted_by)
    pen.bar(fraction(gpu, 100), _bar_width(inner, graph), bar_ink("gpu", level))
    pen.add(whole_number(gpu, 4 if not graph else 6), "dim" if gpu is None else "strong").add(" %", "dim")
    if graph:
        bandwidth = device.number("utilization.memory_percent")
        text = f"memory busy {whole_number(bandwidth, 3)} %"
        if pen.left >= len(text) + 2:
            pen.to(inner - len(text)).add(text, "dim")
        return pen
    span = f"{span_for((pen.left - 7), view.interval)}s"
    room = pen.left - 2 - len(span) - 1
    if room >= 6:
        pen.add("  ").add(sparkline(device, view, room), "graph").add(" " + span, "dim")
    return pen


def _memory(device: Device, inner: int, graph: int, thresholds: Thresholds, *, sorted_by: str) -> Pen:
    pen = Pen(inner)
    used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
    level = rank("memory", device, thresholds)
    _label(pen, "MEM", "memory", level, sorted_by)
    pen.bar(fraction(used, total), _bar_width(inner, graph), bar_ink("memory", level))
    pen.add(f"{units.gib(used):>6}", "dim" if used is None else "strong").add(f" / {units.gib(total)} GiB", "dim")
    reserved = device.number("memory.reserved_bytes")
    if reserved is not None:
        for text in (f"reserved {units.gib(reserved)}G", f"resv {units.gib(reserved)}G"):
            if pen.left >= len(text) + 2:
                pen.to(inner - len(text)).add(text, "dim")
                break
    return pen


def card_fields(chosen: Sequence[str]) -> list[GpuField]:
    """The chosen fields that cards show between their frames."""
    return [FIELDS[one] for one in chosen if FIELDS[one].cells]


def fields_that_fit(inner: int, plan: Plan, chosen: Sequence[str]) -> list[str]:
    """The chosen fields that a card of this size shows, including those in its frame."""
    beside = bool(plan.graph) and inner >= BESIDE_WIDTH
    inner, lines = (NUMBERS_WIDTH, plan.graph - 2) if beside else (inner, plan.facts - 1)
    drawn = card_fields(chosen)
    rows = field_rows(tuple(field.cells for field in drawn), inner)
    fits = sum(map(len, rows[: 1 + max(lines, 0)]))
    hidden = {field.id for field in drawn[fits:]}
    return [one for one in chosen if one not in hidden]


def _numbers(device: Device, inner: int, choice: GpuChoice) -> Pen:
    """The first fields, as many as fit."""
    return _field_pens(device, inner, choice, 0, 1)[0]


def _field_pens(device: Device, inner: int, choice: GpuChoice, first: int, end: int) -> list[Pen]:
    """The fields, line by line, from line ``first`` to the one before ``end``."""
    drawn = card_fields(choice.fields)
    rows = field_rows(tuple(field.cells for field in drawn), inner)
    fields = iter(drawn[sum(map(len, rows[:first])) :])
    pens = []
    for starts in rows[first:end]:
        pens.append(pen := Pen(inner))
        for start, field in zip(starts, fields, strict=False):
            pen.to(start).write(in_card(field, device, choice.thresholds, sorted_by=choice.order))
    return pens


def _graphs(device: Device, view: View, inner: int, lines: int, bands: int, chosen: Sequence[str]) -> list[Pen]:
    """``lines`` lines of graphs in ``bands`` bands of two, each graph captioned with its axis."""
    if not lines or not bands:
        return []
    drawn = [GRAPHS[one] for one in chosen]
    pens: list[Pen] = []
    for band in range(bands):
        here = drawn[2 * band : 2 * band + 2]
        one = (inner - 3) // 2 if len(here) > 1 else inner
        height = (band + 1) * lines // bands - band * lines // bands
        parts = [_graph(device, view, graph.metric, graph.caption, graph.ink, one, height) for graph in here]
        for row in range(height):
            pen = Pen(inner)
            for number, part in enumerate(parts):
                pen.to(number * (one + 3))
                pen.write(part[row])
            pens.append(pen)
    return pens


def _graph(
    device: Device, view: View, metric: str, caption: str, ink: str, width: int, height: int
) -> list[list[Span]]:
    """A caption with the axis, then rows of dots; empty rows if the end of the axis is unknown."""
    spec = BY_ID[metric]
    ends = axis_of(spec, device, view.history)
    pen = Pen(width).add(caption, "dim")
    if ends is None:
        pen.add(" –", "dim")
        return [pen.spans, *([] for _ in range(height - 1))]
    low, high = ends
    pen.add(f" {axis_text(spec, ends)}", "dim")
    span, columns = recent(view, view.history.times, view.history.series(device.uuid, metric), width)
    ends_at = f"{span}s"
    seen = [value for value in columns if value is not None]
    why = device.get(metric)
    if not seen and isinstance(why, Missing):
        reason = f"   {UNKNOWN} {why.reason.replace('_', ' ')}"
        pen.add(reason if len(reason) < pen.left - len(ends_at) else f"   {UNKNOWN}", "faint")
    if seen:
        scale = _GIB if spec.unit is Unit.BYTES else 1
        form = ".1f" if scale > 1 else ".0f"
        summary = f"avg {sum(seen) / len(seen) / scale:{form}}  max {max(seen) / scale:{form}}"
        if pen.left >= len(summary) + len(ends_at) + 5:
            pen.add(f"   {summary}", "faint")
    pen.to(width - len(ends_at)).add(ends_at, "dim")
    rows = braille(columns, low=low, high=high, rows=height - 1)
    half = _half(height - 1)
    return [pen.spans, *([(row, ink)] if n != half[0] else ruled(row, ink, half[1]) for n, row in enumerate(rows))]


def _half(rows: int) -> tuple[int, str]:
    """The row of the axis's middle and the glyph that draws it; row -1 in a small graph."""
    if rows < _RULED:
        return -1, ""
    return (rows // 2, "┄") if rows % 2 else (rows // 2 - 1, "▁")


def ruled(row: str, ink: str, sign: str) -> list[Span]:
    """A row of a graph with a faint line in its blank cells."""
    return [
        (sign * len(run), "border") if blank else (run, ink)
        for blank, run in ((run[0] == " ", run) for run in _RUNS.findall(row))
    ]


def _lost(device: Device, view: View, inner: int, height: int, text: str, ink: str, choice: GpuChoice) -> list[Pen]:
    """Its state, the last processes seen on it, and its history in dim dots if there is room."""
    pens = [Pen(inner).add(cut(printable(text), inner), ink)]
    held = sorted(view.history.holders(device.uuid), key=lambda row: -(row.number("gpu_memory_bytes") or 0.0))
    if held and height > 1:
        names = [
            f"{units.memory(row.number('gpu_memory_bytes'))} {printable(row.user or row.name or '')[:_WHO]} {row.pid}"
            for row in held
        ]
        pens.append(Pen(inner).add("LAST HELD ", "dim").add(cut(" · ".join(names), inner - 10), "dim"))
    room = height - len(pens)
    if room >= _LOST_GRAPH and view.history.known(device.uuid, "utilization.gpu_percent") is not None:
        for pen in _graphs(device, view, inner, room, 1, choice.graphs):
            pens.append(Pen(inner).write((part, "dim") for part, _ in pen.spans))
    return pens + [Pen(inner) for _ in range(height - len(pens))]

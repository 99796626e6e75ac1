"""A GPU as a card: a frame with its identity, bars, numbers, and graphs if there is room."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.formatting import units
from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN
from gpuwatch.model.findings import Finding
from gpuwatch.model.metrics import BY_ID, METRICS, Lane, MetricSpec, Unit
from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.cells import cut, width_of
from gpuwatch.ui.drawing.layout import BESIDE_WIDTH, Plan, facts_across
from gpuwatch.ui.drawing.lines import Span
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.drawing.trend import axis_of, axis_text, braille, recent, span_for
from gpuwatch.ui.panes.gpu_line import sparkline
from gpuwatch.ui.panes.mig_line import part_pens
from gpuwatch.ui.tables.device_facts import (
    clock_note,
    finding_mark,
    fraction,
    link,
    state_note,
    titled,
    whole_number,
)
from gpuwatch.ui.tables.gpu_fields import DEFAULT_FIELDS, FIELDS, in_card

_GIB = 1024**3
_LABEL = 4
_SHOWN = frozenset(
    {
        "utilization.gpu_percent",
        "utilization.memory_percent",
        "memory.total_bytes",
        "memory.used_bytes",
        "memory.free_bytes",
        "memory.reserved_bytes",
        "memory.unexplained_bytes",
        "temperature.gpu_celsius",
        "power.draw_watts",
        "power.limit_watts",
        "clocks.sm_mhz",
        "clocks.event_reasons",
        "performance.state",
        "pcie.generation",
        "pcie.width",
        "pcie.tx_bytes_per_second",
        "pcie.rx_bytes_per_second",
    }
)
"""Metrics that a card shows elsewhere."""
_NUMBERS = 64
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
    fields: Sequence[str] = DEFAULT_FIELDS,
) -> list[list[Span]]:
    """The lines of one card, each exactly ``width`` cells; ``fields`` are shown below its bars."""
    edge = "focus" if selected else "border"
    inner, graph, facts, parts = width - 4, plan.graph, plan.facts, plan.parts
    lines = [_top(device, width, edge, selected=selected)]
    bad, bad_ink = state_note(device)
    rows: list[Pen] = []
    if bad and device.number("memory.used_bytes") is None:
        rows = _lost(device, view, inner, 3 + graph + facts + parts, bad, bad_ink)
    else:
        draw = _beside if graph and inner >= BESIDE_WIDTH else _below
        processes = view.snapshot.processes if view.snapshot is not None and parts else ()
        divided = part_pens(device, processes, parts, inner)
        rows = draw(device, view, inner, graph, plan.bands, fields)
        # Below the numbers of the whole device, but not between graphs beside them.
        place = 3 if draw is _below else len(rows)
        rows[place:place] = [*divided, *(Pen(inner) for _ in range(parts - len(divided)))]
        if facts:
            rows += [ledger(device, view, inner), *_other_readings(device, facts - 1, inner, fields)]
    for pen in rows:
        pen.to(inner)
        lines.append([("│ ", edge), *pen.spans, (" │", edge)])
    lines.append(_bottom(device, width, edge, finding=finding))
    return lines


def _below(device: Device, view: View, inner: int, graph: int, bands: int, fields: Sequence[str]) -> list[Pen]:
    """Bars and numbers with graphs below."""
    numbers = [_utilisation(device, view, inner, graph), _memory(device, inner, graph), _numbers(device, inner, fields)]
    return numbers + _graphs(device, view, inner, graph, bands)


def _beside(device: Device, view: View, inner: int, graph: int, bands: int, fields: Sequence[str]) -> list[Pen]:
    """In a very wide card: numbers at the left, graphs at the right."""
    lines = 3 + graph
    numbers = [_utilisation(device, view, _NUMBERS, graph), _memory(device, _NUMBERS, graph)]
    numbers += [_numbers(device, _NUMBERS, fields), ledger(device, view, _NUMBERS), Pen(_NUMBERS)]
    numbers += _other_readings(device, lines - 5, _NUMBERS, fields)
    graphs = _graphs(device, view, inner - _NUMBERS - 3, lines, bands)
    pens = []
    for row in range(lines):
        pen = Pen(inner)
        for x, part in ((0, numbers[row] if row < len(numbers) else None), (_NUMBERS + 3, graphs[row])):
            if part is not None:
                pen.to(x)
                pen.write(part.spans)
        pens.append(pen)
    return pens


def others(device: Device) -> list[MetricSpec]:
    """Further metrics that were read, in the order of the metrics table, including optional fields."""
    # Constants, ends of axes and ever-growing totals are shown on the GPU tab only.
    return [
        spec
        for spec in METRICS
        if spec.id in device.readings
        and spec.id not in _SHOWN
        and spec.lane is not Lane.ONCE
        and "max" not in spec.id
        and (not spec.counter or spec.id.startswith("ecc"))
    ]


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
    # An empty list of processes is trusted only if unexplained memory could be computed.
    none = "No processes" if nobody is not None else f"{UNKNOWN} processes cannot be listed"
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


def _other_readings(device: Device, lines: int, inner: int, chosen: Sequence[str]) -> list[Pen]:
    """Other readings in ``lines`` lines and as many columns as fit."""
    across = facts_across(inner)
    there = {FIELDS[one].metric for one, _ in _fitting(device, inner, chosen)[1]}
    specs = [spec for spec in others(device) if spec.id not in there][: lines * across]
    rows = -(-len(specs) // across)
    one = (inner + 2) // across
    width = one - 2
    pens = [Pen(inner) for _ in range(lines)]
    for number, spec in enumerate(specs):
        column, row = divmod(number, rows)
        text = units.reading(spec, device.get(spec.id))
        title = titled(spec, width - width_of(text) - 1)
        pens[row].to(column * one).add(title, "dim").to(column * one + width - width_of(text)).add(text)
    return pens


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


def _bottom(device: Device, width: int, edge: str, *, finding: Finding | None) -> list[Span]:
    pen = Pen(width)
    pen.add("╰", edge)
    mark, mark_ink = finding_mark(device, finding)
    if mark:
        pen.add("─", edge).add(f" {cut(mark, width // 2)} ", mark_ink)
    bad, ink = state_note(device)
    if bad and device.number("memory.used_bytes") is not None:
        pen.add("─", edge).add(f" {cut(bad, width // 2)} ", ink)
    clocks = clock_note(device, finding)
    if clocks:
        pen.add("─", edge).add(f" clocks: {clocks} ", "dim")
    found = link(device)
    pcie = f"PCIe {found}{' GB/s' if '↓' in found else ''}"
    if found and pen.left >= width_of(pcie) + 5:
        pen.to(width - width_of(pcie) - 4, "─", edge).add(f" {pcie} ", "dim")
    return pen.to(width - 1, "─", edge).add("╯", edge).spans


def _bar_width(inner: int, graph: int) -> int:
    if graph:
        return max(inner - _LABEL - 2 - _MEMORY_TEXT - 16, 10)
    return min(max(int(inner * 0.36), 10), 44)


def _utilisation(device: Device, view: View, inner: int, graph: int) -> Pen:
    pen = Pen(inner)
    gpu = device.number("utilization.gpu_percent")
    pen.add("GPU ", "dim").bar(fraction(gpu, 100), _bar_width(inner, graph), "gpu")
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


def _memory(device: Device, inner: int, graph: int) -> Pen:
    pen = Pen(inner)
    used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
    pen.add("MEM ", "dim").bar(fraction(used, total), _bar_width(inner, graph), "memory")
    pen.add(f"{units.gib(used):>6}", "dim" if used is None else "strong").add(f" / {units.gib(total)} GiB", "dim")
    reserved = device.number("memory.reserved_bytes")
    if reserved is not None:
        for text in (f"reserved {units.gib(reserved)}G", f"resv {units.gib(reserved)}G"):
            if pen.left >= len(text) + 2:
                pen.to(inner - len(text)).add(text, "dim")
                break
    return pen


CardField = tuple[str, str, str, str]
"""Label, value, unit and mark, see :func:`in_card`."""


def _fitting(device: Device, inner: int, chosen: Sequence[str]) -> tuple[int, list[tuple[str, CardField]]]:
    """The gap between fields, and the fields that fit, with their ids."""
    drawn = [(one, parts) for one in chosen if (parts := in_card(FIELDS[one], device)) is not None]
    need = sum(len(label) + len(value) + len(unit) for _, (label, value, unit, _) in drawn[:4])
    gap = min(max((inner - need) // 4, 1), 3)
    fitting: list[tuple[str, CardField]] = []
    x = 0
    for one, parts in drawn:
        size = sum(map(len, parts[:3])) + (gap if x else 0)
        if x + size > inner:
            break
        x += size
        fitting.append((one, parts))
    return gap, fitting


def fields_that_fit(device: Device, inner: int, graph: int, chosen: Sequence[str]) -> list[str]:
    """The chosen fields that a card of this size shows, including those in its frame."""
    inner = _NUMBERS if graph and inner >= BESIDE_WIDTH else inner
    there = [one for one, _ in _fitting(device, inner, chosen)[1]]
    return [one for one in chosen if one in there or in_card(FIELDS[one], device) is None]


def _numbers(device: Device, inner: int, chosen: Sequence[str]) -> Pen:
    """Power, temperature, clock, state: fixed widths, as many as fit."""
    gap, fitting = _fitting(device, inner, chosen)
    pen = Pen(inner)
    for _, (label, value, unit, mark) in fitting:
        if pen.x:
            pen.add(f"{mark:>{gap}}" if mark else " " * gap, "warning")
        ink = "dim" if value.endswith("–") else "warning" if mark else "text"
        pen.add(label, "dim").add(value, ink).add(unit, "dim")
    return pen


_GRAPHS = (
    (("utilization.gpu_percent", "GPU", "graph"), ("memory.used_bytes", "MEM", "memory")),
    (("power.draw_watts", "PWR", "power"), ("temperature.gpu_celsius", "TEMP", "accent")),
    (("clocks.sm_mhz", "SM", "graph"), ("utilization.memory_percent", "MEM BUSY", "memory")),
)
"""Bands of graphs side by side: metric, caption, ink."""


def _graphs(device: Device, view: View, inner: int, lines: int, bands: int) -> list[Pen]:
    """``lines`` lines of graphs in ``bands`` bands, each graph captioned with its axis."""
    if not lines or not bands:
        return []
    one = (inner - 3) // 2
    pens: list[Pen] = []
    for band in range(bands):
        height = (band + 1) * lines // bands - band * lines // bands
        parts = [_graph(device, view, *graph, one, height) for graph in _GRAPHS[band]]
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
        pen.add(cut(f"   {UNKNOWN} {why.reason.replace('_', ' ')}", pen.left - len(ends_at) - 1), "faint")
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


def _lost(device: Device, view: View, inner: int, height: int, text: str, ink: str) -> list[Pen]:
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
        for pen in _graphs(device, view, inner, room, 1):
            pens.append(Pen(inner).write((part, "dim") for part, _ in pen.spans))
    return pens + [Pen(inner) for _ in range(height - len(pens))]

"""A GPU as a card: a frame with its identity, graphs with their numbers, further numbers, holders of memory."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gpuwatch.core.formatting import units
from gpuwatch.core.formatting.units import UNKNOWN, whole_number
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.braille_graph import axis_ends, axis_text, braille, recent_columns
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.overview_layout import MIN_GRAPH_LINES, OverviewLayout, field_rows
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import cut_to_width, drop_last_clauses, width_of
from gpuwatch.ui.panes.gpu_line import mig_instance_lines
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.tables.device_notes import clock_note, device_finding_mark, holder_note, pcie_link_text, state_note
from gpuwatch.ui.tables.gpu_fields import FIELDS, FIXED_FIELDS, GRAPHS, GpuField, card_spans
from gpuwatch.ui.tables.gpu_loads import bar_style, load_level
from gpuwatch.ui.tables.process_columns import owner_and_pid

_GIB = 1024**3
_MIN_SHOWN_BYTES = 0.05 * _GIB
"""Less than this rounds to 0.0 GiB."""
_MIN_LOST_GRAPH_LINES = 3
"""Lines needed to draw the history of a lost device: a caption and dots."""
_MIN_RULED_ROWS = 5
"""A graph with at least this many rows has a line in the middle of its axis."""
_RUNS_OF_CELLS = re.compile(r" +|[^ ]+")


def gpu_card(
    device: Device,
    view: View,
    width: int,
    layout: OverviewLayout,
    *,
    finding: Finding | None,
    selected: bool,
    preferences: Preferences,
) -> list[list[Span]]:
    """The lines of one card, each exactly ``width`` cells.

    The place of a field follows from the size and from its ``gpu_fields``, which is the same for all GPUs.
    """
    edge = "focus" if selected else "border"
    inner = width - 4
    lines = [_top_border(device, width, edge, selected=selected)]
    bad, bad_style = state_note(device)
    if bad and device.number("memory.used_bytes") is None:
        rows = _lost_device(device, view, inner, layout, bad, bad_style, preferences)
    else:
        processes = view.processes if layout.mig_lines else ()
        mig_lines = mig_instance_lines(device, processes, layout.mig_lines, inner)
        rows = _graphs(device, view, inner, layout, preferences)
        fields = _fields(device, layout, inner, preferences)
        rows += [fields[0], *mig_lines, *(LineBuilder(inner) for _ in range(layout.mig_lines - len(mig_lines)))]
        rows += [memory_holders_line(device, view, inner), *fields[1:]] if layout.further_lines else []
    for builder in rows:
        builder.fill_to(inner)
        lines.append([("│ ", edge), *builder.spans, (" │", edge)])
    lines.append(_bottom_border(device, view, width, edge, finding))
    return lines


def memory_holders_line(device: Device, view: View, inner: int) -> LineBuilder:
    """GPU memory by process, unexplained memory, and free memory."""
    processes = view.processes
    held = [(row.number("gpu_memory_bytes"), row) for row in processes if row.device_uuid == device.uuid]
    held.sort(key=lambda pair: -1.0 if pair[0] is None else pair[0], reverse=True)
    parts = [(amount, owner_and_pid(row)) for amount, row in held]
    nobody, free = device.number("memory.unexplained_bytes"), device.number("memory.free_bytes")
    after: list[tuple[float | None, str]] = []
    if nobody is not None and nobody >= _MIN_SHOWN_BYTES:
        after.append((nobody, "unexplained"))
    after += [(free, "free on the host" if device.unified_memory else "free")] if free is not None else []
    builder = LineBuilder(inner)
    compared = "memory.unexplained_bytes" in (*device.readings, *device.missing)  # with what its processes hold
    if not any(row.readings or row.missing for row in processes) and (processes or not compared):
        return builder.add("HELD ", "dim")  # processes were not read yet
    # An empty list of processes is trusted only if unexplained memory could be computed; unified memory has none.
    listed = nobody is not None or device.unified_memory
    none = "No processes" if listed else f"{UNKNOWN} processes cannot be listed"
    builder.add("HELD " if parts else none, "dim")
    named_unit = False
    for number, (amount, name) in enumerate(parts + after):
        size = units.gib_number(amount) + " GiB" * (amount is not None and not named_unit)  # the unit is shown once
        left = len(parts) - number
        gap = " · " if builder.x > len("HELD ") else ""
        if builder.cells_left < len(gap + size) + 1 + width_of(name) + (len(f" · {left - 1} more") if left > 1 else 0):
            if left > 0:
                builder.add(f"{gap}{left} {'more' if number else 'processes'}", "dim")
            break
        builder.add(gap, "faint").add(size, "dim" if amount is None else "text").add(f" {name}", "dim")
        named_unit = named_unit or amount is not None
    return builder


def _top_border(device: Device, width: int, edge: str, *, selected: bool) -> list[Span]:
    builder = LineBuilder(width)
    builder.add("╭─", edge).add(f" {device.index}", "title").add(" · ", edge)
    bus = device.pci_bus_id
    name = cut_to_width(printable(device.name), width - builder.x - width_of(bus) - 8)
    builder.add(name, "strong")
    if device.simulated and "simulated" not in name.lower() and builder.cells_left > width_of(bus) + 20:
        builder.add(" simulated", "dim")
    builder.add(" ", edge)
    if selected:
        builder.add("◂ ", edge)
    if builder.cells_left >= width_of(bus) + 5:
        builder.fill_to(width - width_of(bus) - 4, "─", edge).add(f" {bus} ", "dim")
    return builder.fill_to(width - 1, "─", edge).add("╮", edge).spans


def _bottom_border(device: Device, view: View, width: int, edge: str, finding: Finding | None) -> list[Span]:
    builder = LineBuilder(width)
    builder.add("╰", edge)
    found = pcie_link_text(device)
    pcie = f"PCIe {found}{' GB/s' if '↓' in found else ''}" if found else ""
    start = width - width_of(pcie) - 4 if pcie else width - 2
    mark, mark_style = device_finding_mark(device, finding, view.findings)
    bad, style = state_note(device)
    clocks = clock_note(device, finding, view.findings)
    reserved = holder_note(device, view)
    bad = bad if device.number("memory.used_bytes") is not None else ""
    notes = [(mark, mark_style), (bad, style), (reserved, "dim"), (f"clocks: {clocks}" if clocks else "", "dim")]
    for number, (text, note_style) in enumerate(note for note in notes if note[0]):
        # The first note is worth more than the link, but its details are not.
        room = start - builder.x - 3
        short = drop_last_clauses(text, room)
        if short.endswith("…") and not number:
            short = drop_last_clauses(text, width - builder.x - 5)
        if not short.endswith("…"):
            builder.add("─", edge).add(f" {short} ", note_style)
    if pcie and builder.x <= start:
        builder.fill_to(start, "─", edge).add(f" {pcie} ", "dim")
    return builder.fill_to(width - 1, "─", edge).add("╯", edge).spans


def card_fields(chosen: Sequence[str], drawn: Collection[str] = ()) -> list[GpuField]:
    """The fields that cards show between their frames, without those of graphs that are ``drawn``."""
    fields = [*FIXED_FIELDS, *(FIELDS[text] for text in chosen if FIELDS[text].card_cells)]
    return [field for field in fields if field.id not in drawn]


def fields_that_fit(inner: int, layout: OverviewLayout, preferences: Preferences) -> list[str]:
    """The chosen fields that a card of this size shows, including those of graphs and in its frame."""
    drawn = card_fields(preferences.gpu_fields, preferences.graphs[: layout.graphs])
    rows = field_rows(tuple(field.card_cells for field in drawn), inner)
    fits = sum(map(len, rows[: max(layout.further_lines, 1)]))
    hidden = {field.id for field in drawn[fits:]}
    return [field for field in preferences.gpu_fields if field not in hidden]


def _fields(device: Device, layout: OverviewLayout, inner: int, preferences: Preferences) -> list[LineBuilder]:
    """The line of the first fields, and the further ones that fit below the holders of memory."""
    drawn = card_fields(preferences.gpu_fields, preferences.graphs[: layout.graphs])
    fields = iter(drawn)
    builders = [LineBuilder(inner) for _ in range(max(layout.further_lines, 1))]
    for builder, starts in zip(builders, field_rows(tuple(field.card_cells for field in drawn), inner), strict=False):
        for start, field in zip(starts, fields, strict=False):
            builder.fill_to(start).add_spans(
                card_spans(field, device, preferences.thresholds, sorted_by=preferences.gpu_order)
            )
    return builders


def _graphs(
    device: Device, view: View, inner: int, layout: OverviewLayout, preferences: Preferences
) -> list[LineBuilder]:
    """The graphs in bands, each with its number in its caption."""
    lines = MIN_GRAPH_LINES + layout.extra_graph_lines
    shown = preferences.graphs[: layout.graphs]
    builders: list[LineBuilder] = []
    for band in range(layout.graph_rows):
        here = shown[layout.graph_columns * band :][: layout.graph_columns]
        graph_width = (inner + 3) // max(len(here), 1) - 3
        height = (band + 1) * lines // layout.graph_rows - band * lines // layout.graph_rows
        parts = [_graph(device, view, GRAPHS[name], graph_width, height, preferences, shown) for name in here]
        for row in range(height):
            builders.append(builder := LineBuilder(inner))
            for number, part in enumerate(parts):
                builder.fill_to(number * (graph_width + 3)).add_spans(part[row])
    return builders


def _graph(
    device: Device, view: View, field: GpuField, width: int, height: int, preferences: Preferences, shown: Sequence[str]
) -> list[list[Span]]:
    """A caption with the number, then rows of dots; empty rows if the end of the axis is unknown."""
    spec, why = BY_ID[field.metric], device.get(field.metric)
    ends = axis_ends(spec, device, view.history)
    builder = LineBuilder(width)
    spans = card_spans(field, device, preferences.thresholds, sorted_by=preferences.gpu_order)
    span, columns = recent_columns(view, view.history.times, view.history.series(device.uuid, field.metric), width)
    end = f"{span}s"
    if isinstance(why, Missing):
        reason = f" {UNKNOWN} {why.reason.replace('_', ' ')}"
        builder.add(field.label, "dim").add(reason if len(reason) < width - len(field.label) - 6 else reason[:2], "dim")
    else:
        builder.add_spans((text, "strong" if style == "text" else style) for text, style in spans)
    if ends is None:
        return [builder.spans, *([] for _ in range(height - 1))]
    if field.card is None:  # whose text names the end of the axis
        end = f"{axis_text(spec, ends)} {end}"
    seen = [value for value in columns if value is not None]
    for note in _caption_notes(device, field, seen, shown):
        if builder.cells_left >= len(note) + len(end) + 4:
            builder.add(f"  {note}", "faint")
    end = end if builder.cells_left > len(end) else f"{span}s"
    if builder.cells_left > len(end):
        builder.fill_to(width - len(end)).add(end, "dim")
    rows = braille(tuple(columns), low=ends[0], high=ends[1], rows=height - 1)
    style = bar_style(field.graph.style, load_level(field.load, device, preferences.thresholds))
    return [builder.spans, *_with_middle_line(rows, style)]


def _caption_notes(device: Device, field: GpuField, seen: Sequence[float], shown: Sequence[str]) -> Iterator[str]:
    """What a caption says beside the number if there is room."""
    reserved = device.number("memory.reserved_bytes")
    if field.id == "utilization" and "bandwidth" not in shown:
        yield f"memory busy {whole_number(device.number('utilization.memory_percent'), 3)} %"
    elif field.id == "memory" and reserved is not None:
        yield f"reserved {units.gib_number(reserved)}"
    if seen:
        scale, form = (_GIB, ".1f") if BY_ID[field.metric].unit is Unit.BYTES else (1, ".0f")
        yield f"avg {sum(seen) / len(seen) / scale:{form}}  max {max(seen) / scale:{form}}"


def _with_middle_line(rows: Sequence[str], style: str) -> list[list[Span]]:
    """The rows of a graph; of a high one, with a faint line in the middle of its axis where nothing is drawn."""
    lines = [[(row, style)] for row in rows]
    if len(rows) >= _MIN_RULED_ROWS:
        middle, sign = (len(rows) // 2, "┄") if len(rows) % 2 else (len(rows) // 2 - 1, "▁")
        runs = _RUNS_OF_CELLS.findall(rows[middle])
        lines[middle] = [(sign * len(run), "border") if run[0] == " " else (run, style) for run in runs]
    return lines


def _lost_device(
    device: Device, view: View, inner: int, layout: OverviewLayout, text: str, style: str, preferences: Preferences
) -> list[LineBuilder]:
    """Its state, the last processes seen on it, and its history in dim dots if there is room."""
    height = layout.card_height - 2
    builders = [LineBuilder(inner).add(cut_to_width(printable(text), inner), style)]
    held = sorted(
        view.history.last_processes.get(device.uuid, ()), key=lambda row: -(row.number("gpu_memory_bytes") or 0.0)
    )
    if held and height > 1:
        names = [f"{units.memory(row.number('gpu_memory_bytes'))} {owner_and_pid(row)}" for row in held]
        held_text = cut_to_width(" · ".join(names), inner - 10)
        builders.append(LineBuilder(inner).add("LAST HELD ", "dim").add(held_text, "dim"))
    room = height - len(builders)
    if room >= _MIN_LOST_GRAPH_LINES and view.history.last_number(device.uuid, "utilization.gpu_percent") is not None:
        for builder in _graphs(
            device, view, inner, replace(layout, extra_graph_lines=room - MIN_GRAPH_LINES, graph_rows=1), preferences
        ):
            builders.append(LineBuilder(inner).add_spans((part, "dim") for part, _ in builder.spans))
    return builders + [LineBuilder(inner) for _ in range(height - len(builders))]

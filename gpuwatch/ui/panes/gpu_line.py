"""A GPU in one line, for small terminals or many GPUs; and a MIG instance of it in one line. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuwatch.core.formatting.sentences import and_more, count_text
from gpuwatch.core.formatting.units import UNKNOWN, gib_number, whole_number
from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import Device, MigInstance, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.process_labels import program_name
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.braille_graph import braille, longest_time_span, recent_columns
from gpuwatch.ui.drawing.line_builder import LineBuilder, bar, vertical_bar
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import align_left, cut_middle, width_of
from gpuwatch.ui.tables.device_notes import (
    attention_mark,
    holder_note,
    reserved_note,
    short_name,
    state_note,
    throttled_text,
)
from gpuwatch.ui.tables.gpu_fields import DEFAULT_FIELDS, FIELDS, SORT_ARROW, GpuField, line_spans
from gpuwatch.ui.tables.gpu_loads import LEVEL_STYLES, Thresholds, bar_style, level_mark, load_level

_MIN_TREND_CELLS = 6
_MIN_BARS_WITH_NAME_CELLS = 14
"""The name is dropped when both bars together would get fewer cells."""
_MIN_BARS_CELLS = 8
"""Below this many cells, both bars become vertical ones of one cell."""
_BARS_AND_TREND_CELLS = 30
"""Cells reserved for bars and trend before extra fields get any."""
_TOTAL_CELLS = 7
_KEPT_FIELDS = ("free", "power", "temperature")
"""Fields dropped last, in this order."""
_POWER_WITHOUT_LIMIT = replace(FIELDS["power"], line_cells=6, text=None)
"""The field of the power, without its limit."""


@dataclass(frozen=True, slots=True)
class LineColumns:
    """Widths of the parts of a line; 0 omits a part. Bars of one cell are vertical, without a frame."""

    index: int
    name: int
    gpu_bar: int
    memory_bar: int
    total: int
    fields: tuple[GpuField, ...]
    """Fields between memory and trend, in order."""
    trend: int


def fit_columns(width: int, devices: tuple[Device, ...], chosen: Sequence[str] = DEFAULT_FIELDS) -> LineColumns:
    """Fits the parts into ``width``. Extra fields are added if there is room; as space shrinks, the trend is
    dropped, then the name, the length of the bars, the power limit, and at last power, temperature and the total.
    """
    index = max((len(str(d.index)) for d in devices), default=1)
    name = 1 + min(max((width_of(short_name(d.name)) for d in devices), default=4), 20 if width >= 110 else 9)
    name = name if "name" in chosen else 0
    fields = [FIELDS[text] for text in chosen if FIELDS[text].line_cells]
    kept_ids = [field.id for field in fields if field.id in _KEPT_FIELDS]
    total = _TOTAL_CELLS
    # Cursor, index, two framed bars, " 97 %", memory used with its unit, attention.
    fixed = 2 + index + 1 + 2 + 6 + 2 + 6 + 2

    def free() -> int:
        return width - fixed - name - total - sum(field.line_cells for field in fields if field.id in kept_ids)

    if free() < _MIN_BARS_WITH_NAME_CELLS:
        name = 0
    if free() < _MIN_BARS_CELLS:
        fixed -= 2  # one cell instead of each frame
        if free() < 0:
            fields = [_POWER_WITHOUT_LIMIT if field.id == "power" else field for field in fields]
        for field_id in _KEPT_FIELDS:
            if field_id in kept_ids and free() < 0:
                kept_ids.remove(field_id)
        if free() < 0:
            total = 0
        shown = tuple(field for field in fields if field.id in kept_ids)
        return LineColumns(index, name, 1, 1, total, shown, 0)
    for field in fields:
        # A field that was explicitly chosen may replace the trend.
        trend_stays = field.shown_by_default and "trend" in chosen
        beside = _MIN_BARS_WITH_NAME_CELLS + _BARS_AND_TREND_CELLS * trend_stays
        if field.id not in _KEPT_FIELDS and free() - field.line_cells >= beside:
            kept_ids.append(field.id)
    bars = max(free(), 2)
    trend = 0
    if "trend" in chosen and bars - _MIN_BARS_WITH_NAME_CELLS > _MIN_TREND_CELLS:
        trend = max(min(int((bars - _MIN_BARS_WITH_NAME_CELLS) * 0.6), 60), _MIN_TREND_CELLS)
        bars -= trend + 1
    shown = tuple(field for field in fields if field.id in kept_ids)
    return LineColumns(index, name, bars - bars // 2, bars // 2, total, shown, trend)


def heading(width: int, columns: LineColumns, view: View, sorted_by: str = "index") -> list[Span]:
    """The column titles; the one that sorts the GPUs with an arrow."""
    builder = LineBuilder(width)
    builder.add("  ", "header").add(
        align_left("GPU" if columns.name or columns.index > 1 else "#", columns.index + 1 + columns.name), "header"
    )
    for load, title, cells in (("utilization", " UTIL", columns.gpu_bar), ("memory", " MEMORY", columns.memory_bar)):
        room = (cells + 2 if cells > 1 else 1) + 6 + columns.total * (title != " UTIL")
        sorts = load == sorted_by
        builder.add(align_left(title + SORT_ARROW * sorts, room), "sorted" if sorts else "header")
    for field in columns.fields:
        sorts = field.load != "" and field.load == sorted_by
        builder.add(f"{SORT_ARROW * sorts + field.title:>{field.line_cells}}", "sorted" if sorts else "header")
    if columns.trend:
        label = f"UTIL {longest_time_span(columns.trend, view.interval)}s"
        builder.add(" " + align_left(label if len(label) <= columns.trend else label[5:], columns.trend), "header")
    return builder.fill_to(width, style="header").spans


def gpu_line(
    width: int,
    device: Device,
    columns: LineColumns,
    view: View,
    thresholds: Thresholds,
    *,
    finding: str,
    selected: bool,
) -> list[Span]:
    """One device; ``finding``: the severity of its worst one, or empty."""
    builder = LineBuilder(width)
    holder = holder_note(device, view)
    throttled, reserved = throttled_text(device, view.findings), reserved_note(device, view.snapshot)
    glyph, style = attention_mark(device, finding=finding, throttled=bool(throttled), reserved=bool(reserved))
    vertical_bars = columns.gpu_bar == 1
    builder.add("▸" if selected else " ", "focus")
    # In a narrow line the mark comes first: at the end it would seem to belong to the next GPU.
    builder.add(glyph if vertical_bars else " ", style)
    builder.add(f"{device.index:>{columns.index}} ", "strong")
    if columns.name:
        builder.add(align_left(cut_middle(printable(short_name(device.name)), columns.name - 1), columns.name), "text")
    note, note_style = state_note(device)
    used = device.number("memory.used_bytes")
    if note and used is None:
        return builder.add(note, note_style).fill_to(width).spans
    gpu = device.number("utilization.gpu_percent")
    level = load_level("utilization", device, thresholds)
    _bar(builder, fraction(gpu, 100), columns.gpu_bar, bar_style("gpu", level))
    builder.add(f"{whole_number(gpu, 3)} %", "dim" if gpu is None else "text")
    builder.add(level_mark("utilization", level), LEVEL_STYLES[level])
    total = device.number("memory.total_bytes")
    level = load_level("memory", device, thresholds)
    _bar(builder, fraction(used, total), columns.memory_bar, bar_style("memory", level))
    builder.add(f"{gib_number(used):>5}", "dim" if used is None else LEVEL_STYLES[level])
    builder.add(f"/{gib_number(total)}G".ljust(columns.total) if columns.total else "G", "dim")
    if columns.total:
        builder.add(level_mark("memory", level), LEVEL_STYLES[level])
    for field in columns.fields:
        builder.add_spans(line_spans(field, device, thresholds))
    if columns.trend:
        builder.add(" ")
        fitting = [text for text in (holder, holder.partition(" (")[0]) if 0 < width_of(text) <= columns.trend]
        programs = any(row.device_uuid == device.uuid and row.type != "G" for row in view.processes)
        if fitting and not programs:  # nothing else shows that it is not free
            builder.add(align_left(fitting[0], columns.trend), "dim")
        else:
            busy = view.history.series(device.uuid, "utilization.gpu_percent")
            _, means = recent_columns(view, view.history.times, busy, columns.trend)
            builder.add(braille(tuple(means), low=0, high=100)[0], "graph")
    return builder.fill_to(width - 2).add(" " + ("" if vertical_bars else glyph), style).fill_to(width).spans


def _bar(builder: LineBuilder, value: float | None, cells: int, style: str) -> None:
    if cells > 1:
        builder.bar(value, cells, style)
    else:
        builder.add(vertical_bar(value), style)


_ROOMY_BAR_CELLS = 10
"""Cells of the bar if there is room for more than the essentials."""


def mig_spans(instance: MigInstance, rows: Sequence[Process], cells: int) -> list[Span]:
    """``MIG 0  7/0  1g.10gb  ▕███   ▏  4.2 / 9.8 GiB  4711 alice train.py``: index as in nvidia-smi, GPU and compute
    instance, profile, memory, processes. ``cells``: width of the bar; 0 omits it.
    """
    used, total = instance.number("memory.used_bytes"), instance.number("memory.total_bytes")
    filled, empty = bar(fraction(used, total), cells)
    line: list[Span] = [("MIG ", "dim"), (f"{instance.index:<3}", "strong")]
    if cells >= _ROOMY_BAR_CELLS:
        line.append((f"{printable(instance.id) if instance.gpu_instance is not None else UNKNOWN:<5}", "dim"))
    profile = (printable(instance.profile), "text") if instance.profile else (UNKNOWN, "dim")
    line.append((f"{profile[0]:<9} ", profile[1]))
    if cells:
        line += [("▕", "track"), (filled, "memory"), (empty, "text"), ("▏", "track")]
    line.append((f"{UNKNOWN if used is None else gib_number(used):>6}", "dim" if used is None else "strong"))
    of_total = f" / {gib_number(total)} GiB" if cells >= _ROOMY_BAR_CELLS else f"/{gib_number(total)}G"
    line += [(of_total, "dim"), ("  ", "text")]
    line.append((processes_text(rows), "text") if rows else ("no processes", "faint"))
    return line


def processes_text(rows: Sequence[Process]) -> str:
    """``4711 alice train.py, 4712 bob a.out and 3 more``: most memory first, unknown memory last."""
    held = {row.key: row.number("gpu_memory_bytes") for row in rows}
    ordered = sorted(rows, key=lambda row: -1.0 if held[row.key] is None else held[row.key] or 0.0, reverse=True)
    names = ((str(row.pid), printable(row.user or ""), program_name(row)) for row in ordered[:3])
    return ", ".join(" ".join(filter(None, parts)) for parts in names) + and_more(len(rows) - 3)


def processes_by_instance(device: Device, processes: Iterable[Process]) -> dict[str | None, list[Process]]:
    """The processes on a device by the id of their MIG instance; None: not reported."""
    on: dict[str | None, list[Process]] = {}
    for row in processes:
        if row.device_uuid == device.uuid:
            on.setdefault(row.mig_instance, []).append(row)
    return on


def mig_instance_lines(device: Device, processes: Iterable[Process], lines: int, width: int) -> list[LineBuilder]:
    """At most ``lines`` lines for the instances of a device; the last one counts those left out."""
    on = processes_by_instance(device, processes)
    parts = device.mig_instances
    shown = parts if len(parts) <= lines else parts[: max(lines - 1, 0)]
    builders: list[LineBuilder] = []
    for number, instance in enumerate(shown):
        last = number == len(shown) - 1 and len(shown) == len(parts)
        builder = LineBuilder(width).add("└─ " if last else "├─ ", "faint")
        builder.add_spans(mig_spans(instance, on.get(instance.id, []), 10 if width >= 70 else 4 if width >= 54 else 0))
        builders.append(builder)
    if len(shown) < len(parts) and lines:
        builders.append(
            LineBuilder(width).add("└─ ", "faint").add(count_text(len(parts) - len(shown), "more instance"), "dim")
        )
    return builders

"""A terminal too small for the dashboard: the GPUs, what is wrong, and the size that shows more. Pure, no Textual."""

from __future__ import annotations

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN, gib_number
from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.glyphs import SEVERITY_MARKS
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.overview_layout import MIN_HEIGHT, MIN_WIDTH
from gpuwatch.ui.drawing.styled_lines import BLANK, Line, Span, SpanLines, wrap_lines
from gpuwatch.ui.drawing.text_width import align_right, cut_to_width, width_of
from gpuwatch.ui.panes.no_gpu_panel import no_gpu_lines
from gpuwatch.ui.panes.overview_summary import main_problem, summary_items
from gpuwatch.ui.panes.verdict import verdict
from gpuwatch.ui.tables.device_notes import state_note

_MIN_BAR_CELLS = 6
"""Minimum cells of the bar; it is dropped first."""
_FINDING_LINES = 2
"""Lines kept for a finding, if there are that many."""


def small_terminal_lines(view: View, width: int, height: int) -> list[Line]:
    """The verdict, a line for each GPU, the first finding, and the required size, as far as there is room."""
    lines = [_top_line(view, width)]
    last = _size_line(width, height)
    room = height - len(lines) - 1
    found = _finding_lines(view, width)
    if not view.devices:
        return _fill_height([*lines, *no_gpu_lines(view, width, max(room, 1))], last, height)
    kept = min(len(found), _FINDING_LINES, max(room - 1, 0))
    count = len(view.devices)
    shown = count if count <= room - kept else max(room - kept - 1, 1)
    cells = max(len(str(device.index)) for device in view.devices)
    lines += [_gpu_line(device, width, cells) for device in view.devices[:shown]]
    if shown < count:
        lines.append(LineBuilder(width).add(f" and {count_text(count - shown, 'more GPU')}", "dim").line())
    return _fill_height([*lines, *found], last, height)


def _fill_height(lines: list[Line], last: Line, height: int) -> list[Line]:
    """As many of the lines as fit above the last one, at the bottom."""
    above = lines[: max(height - 1, 0)]
    return [*above, *[BLANK] * (height - 1 - len(above)), last][:height]


def _top_line(view: View, width: int) -> Line:
    now = f"{clock_text(view.moment)} "
    words, style = verdict(view)
    builder = LineBuilder(width).add(" gpuwatch " if width >= len(now) + width_of(words) + 12 else " ", "title")
    builder.add(cut_to_width(words, max(width - builder.x - len(now) - 1, 0)), style)
    return (builder.fill_to(width - len(now)).add(now, "dim") if builder.cells_left >= len(now) else builder).line()


def _gpu_line(device: Device, width: int, cells: int) -> Line:
    """Utilization, memory, temperature; a bar of the memory where there is room."""
    state, style = state_note(device)
    if state:
        return LineBuilder(width).add(f" {device.index:>{cells}} ", "strong").add(state, style).line()
    load, heat = device.number("utilization.gpu_percent"), device.number("temperature.gpu_celsius")
    used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
    parts: list[Span] = [
        (align_right(UNKNOWN if load is None else f"{load:.0f} %", 6), "text" if load is not None else "dim"),
        (align_right(f"{gib_number(used)}/{gib_number(total)}G", 13), "memory" if used is not None else "dim"),
        (align_right(UNKNOWN if heat is None else f"{heat:.0f}°C", 6), "text" if heat is not None else "dim"),
    ]
    builder = LineBuilder(width).add(f" {device.index:>{cells}} ", "strong")
    bar = width - builder.x - sum(len(text) for text, _ in parts) - 3
    if bar >= _MIN_BAR_CELLS:
        builder.bar(fraction(used, total), bar, "memory")
    return builder.add_spans(parts).line()


def _finding_lines(view: View, width: int) -> list[Line]:
    """The problem and its action, as on the Overview; else who holds memory idle."""
    wrong = main_problem(view)
    if wrong is not None:
        glyph, style = SEVERITY_MARKS[wrong.severity]
        more = f" (1 of {wrong.number})" if wrong.number > 1 else ""
        spans: SpanLines = [[(f" {glyph} ", style), (wrong.lead + wrong.text + more, "text")]]
        spans += [[(" → ", style), (wrong.action, "dim")]] if wrong.action else []
    else:
        spans = [[(f" {part.forms[0]}", part.style)] for part in summary_items(view) if part.id == "idle"]
    return [Line(tuple(line)) for line in wrap_lines(spans, max(width - 1, 8))]


def _size_line(width: int, height: int) -> Line:
    """What this terminal has, and what the dashboard needs."""
    needs = f"needs {MIN_WIDTH}×{MIN_HEIGHT}"
    short = f" {width}×{height}, {needs}  q quit"
    text = next((text for text in (f" Terminal too small:{short}", short) if width_of(text) <= width), needs)
    return LineBuilder(width).add(text, "dim").line()

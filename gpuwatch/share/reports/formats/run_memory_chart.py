"""The memory timeline of a run as inline SVG, with its phases, on a fixed axis from 0 to the device's total."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from markupsafe import Markup

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_memory import MemoryPoint
from gpuwatch.share.reports.formats.svg_parts import (
    RIGHT_EDGE,
    bins,
    bytes_axis,
    figure,
    fraction,
    horizontal_line,
    hover_column,
    text_label,
)
from gpuwatch.share.reports.memory_timeline import memory_changed
from gpuwatch.share.reports.run_memory_tables import only_children_used_gpus

_HEIGHT = 230
_LEFT, _TOP, _BOTTOM = 74, 30, 30
_MAX_POINTS = 600
_COLUMNS = 72
"""Columns of a chart whose values are shown on hover and by the arrow keys."""
_PHASES = (
    ("import", "import"),
    ("device_init", "device initialization"),
    ("first_step", "first step"),
    ("steps", "steps"),
)
_LETTER_WIDTH = 6.0
"""Width of a letter of a phase's name, in units of the drawing."""

_SERIES: tuple[tuple[str, str, Callable[[MemoryPoint], int | None]], ...] = (
    ("device", "Device, all owners (NVML)", lambda point: point.device_used_bytes),
    ("process", "This process (NVML)", lambda point: point.process_bytes),
    ("allocator", "In use (allocator)", lambda point: point.allocator_bytes),
)
_LARGEST_PROCESS_TITLE = "Largest process (NVML)"
"""The memory of several processes is never summed."""


def memory_chart(run: Run) -> Markup | None:
    """The chart; None if the memory did not change. Only numbers go into the SVG."""
    points = run.memory.timeline
    if not memory_changed(run):
        return None
    values = [value for point in points for _, _, value_of in _SERIES if (value := value_of(point)) is not None]
    top = run.memory.device_total_bytes or max(values, default=0)
    if not top:
        return None
    # From the start of the program, even if the first samples came later.
    start, end = min(0.0, points[0].t), points[-1].t
    span = max(end - start, 1e-9)

    def x(seconds: float) -> float:
        return _LEFT + (seconds - start) / span * (RIGHT_EDGE - _LEFT)

    def y(amount: float) -> float:
        return _TOP + (1 - fraction(amount, 0, top)) * (_HEIGHT - _TOP - _BOTTOM)

    phase_shapes, phase_legend = _phases(run, start, end, x)
    parts, legend = [*bytes_axis(_LEFT, top, y), *phase_shapes], []
    for share, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        text = f"{start + share * (end - start):.1f} s"
        parts.append(text_label(_LEFT + share * (RIGHT_EDGE - _LEFT), _HEIGHT - 8, text, anchor))
    limit = run.memory.allocator_limit_bytes
    if limit is not None:
        parts.append(horizontal_line(_LEFT, y(limit), "limit"))
    for name, title, value_of in _SERIES:
        path = _path(points, value_of, x, y)
        if path:
            parts.append(f'<path class="line {name}" d="{path}"/>')
            name_shown = _LARGEST_PROCESS_TITLE if name == "process" and only_children_used_gpus(run) else title
            legend.append(f'<span class="key {name}"><i></i>{name_shown}</span>')
    if not legend:
        return None
    parts += _hover_columns(points, only_children_used_gpus(run), x)
    if limit is not None:
        # In the legend, where no line runs through it.
        legend.append(f'<span class="key limit-key"><i></i>Allocator limit, {size(limit)}</span>')
    axis = "device total" if run.memory.device_total_bytes else "largest value seen (total unknown)"
    description = f"GPU memory over {span:.1f} s; vertical axis from 0 to {size(top)}, the {axis}"
    legend += [f'<span class="axis-note">Axis: 0 to the {axis}, {size(top)}</span>', phase_legend]
    return figure(_HEIGHT, description, parts, "".join(legend))


def _phases(run: Run, start: float, end: float, x: Callable[[float], float]) -> tuple[list[str], str]:
    """A strip of the phases above the chart, and the same in words; nothing for phases whose end was not seen."""
    parts: list[str] = []
    phase_texts: list[str] = []
    previous_end = start
    for number, (name, title) in enumerate(_PHASES):
        phase_end = run.phases.ended_at.get(name)
        if phase_end is None or not start <= phase_end <= end or phase_end < previous_end:
            continue
        duration_seconds = getattr(run.phases, f"{name}_seconds", None)
        if duration_seconds is not None and duration_seconds > phase_end:
            continue  # the template of many runs did it, before this one
        begin = (
            previous_end
            if duration_seconds is None
            else min(max(phase_end - duration_seconds, previous_end), phase_end)
        )
        # The framework's own preparations lie between the phases.
        duration = f", took {measured_seconds(duration_seconds)}" if duration_seconds is not None else ""
        phase_text = f"{title}: {begin:.2f} to {phase_end:.2f} s{duration}"
        left, right, width = x(begin), x(phase_end), x(phase_end) - x(begin)
        parts += [
            f'<line class="phase-end" x1="{right:.1f}" x2="{right:.1f}" y1="6" y2="{_HEIGHT - _BOTTOM}"/>',
            f'<rect class="phase p{number}" x="{left:.1f}" y="6" width="{max(width, 2):.1f}" height="15">'
            f"<title>{phase_text}</title></rect>",
        ]
        if width > len(title) * _LETTER_WIDTH:
            parts.append(text_label(left + width / 2, 17, title, css_class="tick phase-name"))
        phase_texts.append(phase_text)
        previous_end = phase_end
    return parts, f'<span class="phases">Phases: {"; ".join(phase_texts)}</span>' if phase_texts else ""


def _hover_columns(points: tuple[MemoryPoint, ...], largest: bool, x: Callable[[float], float]) -> Iterator[str]:
    """The values of the fullest moment of each column."""
    names = ("device", "largest process" if largest else "process", "in use by the framework")
    for begin, end in bins(len(points), _COLUMNS):
        amounts = [[value_of(point) for _, _, value_of in _SERIES] for point in points[begin:end]]
        fullest = max(
            range(end - begin), key=lambda index: [-1 if amount is None else amount for amount in amounts[index]]
        )
        left, right = x(points[begin].t), x(points[min(end, len(points) - 1)].t)
        value_texts = [
            f"{name} {size(amount)}" for name, amount in zip(names, amounts[fullest], strict=True) if amount is not None
        ]
        title = f"{points[begin + fullest].t:.1f} s: {', '.join(value_texts) or 'not read'}"
        yield hover_column(left, _TOP, max(right - left, 1), _HEIGHT - _TOP - _BOTTOM, title)


def _path(
    points: tuple[MemoryPoint, ...],
    value_of: Callable[[MemoryPoint], int | None],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """A path with gaps where nothing was read. Long series are thinned to the maximum of each bucket."""
    parts: list[str] = []
    pen_down = False
    for begin, end in bins(len(points), _MAX_POINTS):
        bucket = [(point.t, value) for point in points[begin:end] if (value := value_of(point)) is not None]
        if bucket:
            seconds, value = max(bucket, key=lambda item: item[1])
            parts.append(f"{'L' if pen_down else 'M'}{x(seconds):.1f} {y(value):.1f}")
        pen_down = bool(bucket)
    return " ".join(parts) if len(parts) > 1 else ""

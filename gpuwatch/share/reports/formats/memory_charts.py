"""The memory of a run and of a profile over time, as inline SVG.

A run: lines on a fixed axis from 0 to the device's total, with its phases. A profile: areas stacked by group or line,
with gaps where nothing was recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from markupsafe import Markup

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.memory_profile import MemoryMoment
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_memory import MemoryPoint
from gpuwatch.share.reports.formats import svg_parts as svg
from gpuwatch.share.reports.memory_over_time import Layer, layers, memory_changed
from gpuwatch.share.reports.report_elements import MemoryAreas
from gpuwatch.share.reports.run_memory_tables import only_children_used_gpus

_LEFT, _BOTTOM = 74, 30
_RUN_TOP, _RUN_HEIGHT = 30, 230
_PROFILE_TOP, _PROFILE_HEIGHT = 12, 240
_GAP_WIDTH = 10.0
"""Width between two windows of a profile."""
_TICK_WIDTH = 110.0
"""Room for the time at the start of a window."""
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


def run_memory_chart(run: Run) -> Markup | None:
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
        return _LEFT + (seconds - start) / span * (svg.RIGHT_EDGE - _LEFT)

    def y(amount: float) -> float:
        return _RUN_TOP + (1 - svg.fraction(amount, 0, top)) * (_RUN_HEIGHT - _RUN_TOP - _BOTTOM)

    phase_shapes, phase_legend = _phases(run, start, end, x)
    parts, legend = [*svg.bytes_axis(_LEFT, top, y), *phase_shapes], []
    for share, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        text = f"{start + share * (end - start):.1f} s"
        parts.append(svg.text_label(_LEFT + share * (svg.RIGHT_EDGE - _LEFT), _RUN_HEIGHT - 8, text, anchor))
    limit = run.memory.allocator_limit_bytes
    if limit is not None:
        parts.append(svg.horizontal_line(_LEFT, y(limit), "limit"))
    for name, title, value_of in _SERIES:
        path = _path(points, value_of, x, y)
        if path:
            parts.append(f'<path class="line {name}" d="{path}"/>')
            name_shown = _LARGEST_PROCESS_TITLE if name == "process" and only_children_used_gpus(run) else title
            legend.append(f'<span class="key {name}"><i></i>{name_shown}</span>')
    if not legend:
        return None
    parts += _run_columns(points, only_children_used_gpus(run), x)
    if limit is not None:
        # In the legend, where no line runs through it.
        legend.append(f'<span class="key limit-key"><i></i>Allocator limit, {size(limit)}</span>')
    axis = "device total" if run.memory.device_total_bytes else "largest value seen (total unknown)"
    description = f"GPU memory over {span:.1f} s; vertical axis from 0 to {size(top)}, the {axis}"
    legend += [f'<span class="axis-note">Axis: 0 to the {axis}, {size(top)}</span>', phase_legend]
    return svg.figure(_RUN_HEIGHT, description, parts, "".join(legend))


def _phases(run: Run, start: float, end: float, x: Callable[[float], float]) -> tuple[list[str], str]:
    """A strip of the phases above the chart, and the same in words; nothing for phases whose end was not seen."""
    parts: list[str] = []
    phase_texts: list[str] = []
    previous_end = start
    for number, (name, title) in enumerate(_PHASES):
        phase_end = run.phases.ended_at.get(name)
        if phase_end is None or not start <= phase_end <= end or phase_end < previous_end:
            continue
        took = getattr(run.phases, f"{name}_seconds", None)
        if took is not None and took > phase_end:
            continue  # the template of many runs did it, before this one
        begin = previous_end if took is None else min(max(phase_end - took, previous_end), phase_end)
        # The framework's own preparations lie between the phases.
        duration = f", took {measured_seconds(took)}" if took is not None else ""
        phase_text = f"{title}: {begin:.2f} to {phase_end:.2f} s{duration}"
        left, right, width = x(begin), x(phase_end), x(phase_end) - x(begin)
        parts += [
            f'<line class="phase-end" x1="{right:.1f}" x2="{right:.1f}" y1="6" y2="{_RUN_HEIGHT - _BOTTOM}"/>',
            f'<rect class="phase p{number}" x="{left:.1f}" y="6" width="{max(width, 2):.1f}" height="15">'
            f"<title>{phase_text}</title></rect>",
        ]
        if width > len(title) * _LETTER_WIDTH:
            parts.append(svg.text_label(left + width / 2, 17, title, css_class="tick phase-name"))
        phase_texts.append(phase_text)
        previous_end = phase_end
    return parts, f'<span class="phases">Phases: {"; ".join(phase_texts)}</span>' if phase_texts else ""


def _run_columns(points: tuple[MemoryPoint, ...], largest: bool, x: Callable[[float], float]) -> Iterator[str]:
    """The values of the fullest moment of each column."""
    names = ("device", "largest process" if largest else "process", "in use by the framework")
    for begin, end in svg.equal_parts(len(points), _COLUMNS):
        amounts = [[value_of(point) for _, _, value_of in _SERIES] for point in points[begin:end]]
        fullest = max(
            range(end - begin), key=lambda index: [-1 if amount is None else amount for amount in amounts[index]]
        )
        left, right = x(points[begin].t), x(points[min(end, len(points) - 1)].t)
        named = zip(names, amounts[fullest], strict=True)
        texts = [f"{name} {size(amount)}" for name, amount in named if amount is not None]
        title = f"{points[begin + fullest].t:.1f} s: {', '.join(texts) or 'not read'}"
        yield svg.hover_column(left, _RUN_TOP, max(right - left, 1), _RUN_HEIGHT - _RUN_TOP - _BOTTOM, title)


def _path(
    points: tuple[MemoryPoint, ...],
    value_of: Callable[[MemoryPoint], int | None],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """A path with gaps where nothing was read. Long series are thinned to the maximum of each bucket."""
    parts: list[str] = []
    pen_down = False
    for begin, end in svg.equal_parts(len(points), _MAX_POINTS):
        bucket = [(point.t, value) for point in points[begin:end] if (value := value_of(point)) is not None]
        if bucket:
            seconds, value = max(bucket, key=lambda item: item[1])
            parts.append(f"{'L' if pen_down else 'M'}{x(seconds):.1f} {y(value):.1f}")
        pen_down = bool(bucket)
    return " ".join(parts) if len(parts) > 1 else ""


# A profile


def profile_memory_chart(chart: MemoryAreas) -> Markup | None:
    """The chart; None for a profile without moments."""
    moments = chart.profile.moments
    top = max((moment.in_use_bytes for moment in moments), default=0)
    if len(moments) < 2 or not top:
        return None
    windows = [list(group) for _, group in itertools.groupby(moments, key=lambda moment: moment.window)]
    width = (svg.RIGHT_EDGE - _LEFT - _GAP_WIDTH * (len(windows) - 1)) / len(moments)
    visible = layers(chart)
    parts = list(svg.bytes_axis(_LEFT, top, partial(_y, top=top)))
    left, last_tick = float(_LEFT), -_TICK_WIDTH
    for number, window in enumerate(windows):
        positions = [(left + index * width, moment) for index, moment in enumerate(window)]
        # The last moment is as wide as the others.
        right = left + len(window) * width
        parts += _stacked_areas([*positions, (right, window[-1])], visible, top)
        parts += _profile_columns(positions, right, visible)
        if left - last_tick > _TICK_WIDTH and (number == 0 or left < svg.RIGHT_EDGE - 2 * _TICK_WIDTH):
            parts.append(_tick(left, window[0], "start"))
            last_tick = left
        left = right + _GAP_WIDTH
    parts.append(_tick(svg.RIGHT_EDGE, moments[-1], "end"))
    legend = [svg.legend_entry(f'class="area {layer.kind}"{_fill(layer)}', layer.name) for layer in reversed(visible)]
    legend.append('<span class="key in-use"><i></i>in use, by the allocator</span>')
    axis = f"Axis: 0 to the peak, {size(top)}.{' Gaps: not recorded.' if len(windows) > 1 else ''}"
    description = f"Memory in use by {chart.by}, in the order of allocations; vertical axis from 0 to {size(top)}"
    legend.append(f'<span class="axis-note">In the order of allocations, not of time. {axis}</span>')
    return svg.figure(_PROFILE_HEIGHT, description, parts, "".join(legend))


def _stacked_areas(moments: list[tuple[float, MemoryMoment]], visible: list[Layer], top: int) -> Iterator[str]:
    """The areas from the bottom, and the line of what the allocator had in use."""
    lower = [0.0] * len(moments)
    for layer in visible:
        upper = [base + layer.bytes_at(moment) for base, (_, moment) in zip(lower, moments, strict=True)]
        upper_edge, lower_edge = (
            [(x, _y(value, top)) for (x, _), value in zip(moments, amounts, strict=True)] for amounts in (upper, lower)
        )
        outline = f"M{svg.path_points(upper_edge)} {svg.path_points(reversed(lower_edge))}Z"
        yield f'<path class="area {layer.kind}"{_fill(layer)} d="{outline}"/>'
        lower = upper
    in_use = ((x, _y(moment.in_use_bytes, top)) for x, moment in moments)
    yield f'<path class="line in-use" d="M{svg.path_points(in_use)}"/>'


def _profile_columns(places: list[tuple[float, MemoryMoment]], right: float, visible: list[Layer]) -> Iterator[str]:
    """The values of the fullest moment of each column."""
    for begin, end in svg.equal_parts(len(places), _COLUMNS):
        left, until = places[begin][0], places[end][0] if end < len(places) else right
        _, moment = max(places[begin:end], key=lambda pair: pair[1].in_use_bytes)
        amounts_by_layer = sorted(((layer.bytes_at(moment), layer.name) for layer in visible), reverse=True)
        layer_texts = ", ".join(f"{name} {size(amount)}" for amount, name in amounts_by_layer if amount > 0)
        step_shown = f", step {moment.step}" if moment.step is not None else ""
        title = f"{measured_seconds(moment.t)}{step_shown}: {size(moment.in_use_bytes)} in use; {layer_texts}"
        height = _PROFILE_HEIGHT - _PROFILE_TOP - _BOTTOM
        yield svg.hover_column(left, _PROFILE_TOP, max(until - left, 1), height, title)


def _tick(x: float, moment: MemoryMoment, anchor: str) -> str:
    text = measured_seconds(moment.t) + (f", step {moment.step}" if moment.step else "")
    return svg.text_label(x, _PROFILE_HEIGHT - 8, text, anchor)


def _y(amount: float, top: int) -> float:
    return _PROFILE_TOP + (1 - svg.fraction(amount, 0, top)) * (_PROFILE_HEIGHT - _PROFILE_TOP - _BOTTOM)


def _fill(layer: Layer) -> str:
    return ' fill="url(#hatch)"' if layer.kind == "unattributed" else ""

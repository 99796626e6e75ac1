"""The memory of a profile over time as inline SVG, stacked by group or line; gaps where nothing was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from markupsafe import Markup

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.memory_profile import MemoryMoment
from gpuwatch.share.reports.chart_types import MemoryAreas
from gpuwatch.share.reports.formats.svg_parts import (
    RIGHT_EDGE,
    bins,
    bytes_axis,
    figure,
    fraction,
    hover_column,
    legend_entry,
    path_points,
    text_label,
)
from gpuwatch.share.reports.memory_over_time_layers import Layer, layers

_HEIGHT = 240
_LEFT, _TOP, _BOTTOM = 74, 12, 30
_GAP_WIDTH = 10.0
"""Width between two windows."""
_COLUMNS = 72
_TICK_WIDTH = 110.0
"""Room for the time at the start of a window."""


def memory_areas(chart: MemoryAreas) -> Markup | None:
    """The chart; None for a profile without moments."""
    moments = chart.profile.moments
    top = max((moment.in_use_bytes for moment in moments), default=0)
    if len(moments) < 2 or not top:
        return None
    windows = [list(group) for _, group in itertools.groupby(moments, key=lambda moment: moment.window)]
    width = (RIGHT_EDGE - _LEFT - _GAP_WIDTH * (len(windows) - 1)) / len(moments)
    visible = layers(chart)
    parts = list(bytes_axis(_LEFT, top, partial(_y, top=top)))
    left, last_tick = float(_LEFT), -_TICK_WIDTH
    for number, window in enumerate(windows):
        positions = [(left + index * width, moment) for index, moment in enumerate(window)]
        # The last moment is as wide as the others.
        right = left + len(window) * width
        parts += _stacked_areas([*positions, (right, window[-1])], visible, top)
        parts += _hover_columns(positions, right, visible)
        if left - last_tick > _TICK_WIDTH and (number == 0 or left < RIGHT_EDGE - 2 * _TICK_WIDTH):
            parts.append(_tick(left, window[0], "start"))
            last_tick = left
        left = right + _GAP_WIDTH
    parts.append(_tick(RIGHT_EDGE, moments[-1], "end"))
    legend = [legend_entry(f'class="area {layer.kind}"{_fill(layer)}', layer.name) for layer in reversed(visible)]
    legend.append('<span class="key in-use"><i></i>in use, by the allocator</span>')
    axis = f"Axis: 0 to the peak, {size(top)}.{' Gaps: not recorded.' if len(windows) > 1 else ''}"
    description = f"Memory in use by {chart.by}, in the order of allocations; vertical axis from 0 to {size(top)}"
    legend.append(f'<span class="axis-note">In the order of allocations, not of time. {axis}</span>')
    return figure(_HEIGHT, description, parts, "".join(legend))


def _stacked_areas(moments: list[tuple[float, MemoryMoment]], visible: list[Layer], top: int) -> Iterator[str]:
    """The areas from the bottom, and the line of what the allocator had in use."""
    lower = [0.0] * len(moments)
    for layer in visible:
        upper = [base + layer.bytes_at(moment) for base, (_, moment) in zip(lower, moments, strict=True)]
        upper_edge, lower_edge = (
            [(x, _y(value, top)) for (x, _), value in zip(moments, amounts, strict=True)] for amounts in (upper, lower)
        )
        outline = f"M{path_points(upper_edge)} {path_points(reversed(lower_edge))}Z"
        yield f'<path class="area {layer.kind}"{_fill(layer)} d="{outline}"/>'
        lower = upper
    yield f'<path class="line in-use" d="M{path_points((x, _y(moment.in_use_bytes, top)) for x, moment in moments)}"/>'


def _hover_columns(places: list[tuple[float, MemoryMoment]], right: float, visible: list[Layer]) -> Iterator[str]:
    """The values of the fullest moment of each column."""
    for begin, end in bins(len(places), _COLUMNS):
        left, until = places[begin][0], places[end][0] if end < len(places) else right
        _, moment = max(places[begin:end], key=lambda pair: pair[1].in_use_bytes)
        amounts_by_layer = sorted(((layer.bytes_at(moment), layer.name) for layer in visible), reverse=True)
        layer_texts = ", ".join(f"{name} {size(amount)}" for amount, name in amounts_by_layer if amount > 0)
        step_shown = f", step {moment.step}" if moment.step is not None else ""
        title = f"{measured_seconds(moment.t)}{step_shown}: {size(moment.in_use_bytes)} in use; {layer_texts}"
        yield hover_column(left, _TOP, max(until - left, 1), _HEIGHT - _TOP - _BOTTOM, title)


def _tick(x: float, moment: MemoryMoment, anchor: str) -> str:
    return text_label(
        x, _HEIGHT - 8, measured_seconds(moment.t) + (f", step {moment.step}" if moment.step else ""), anchor
    )


def _y(amount: float, top: int) -> float:
    return _TOP + (1 - fraction(amount, 0, top)) * (_HEIGHT - _TOP - _BOTTOM)


def _fill(layer: Layer) -> str:
    return ' fill="url(#hatch)"' if layer.kind == "unattributed" else ""

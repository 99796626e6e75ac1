"""The memory of a profile over time as inline SVG, stacked by group or line; gaps where nothing was recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from markupsafe import Markup, escape

from gpuwatch.core.formatting.durations import measured_seconds
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.memory_profile import MemoryMoment
from gpuwatch.share.reports.chart_data import Areas
from gpuwatch.share.reports.memory_layers import Layer, layers

_WIDTH, _HEIGHT = 860, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 14, 12, 30
_GAP_WIDTH = 10.0
"""Width between two windows."""
_COLUMNS = 72
_TICK_WIDTH = 110.0
"""Room for the time at the start of a window."""


def memory_areas(chart: Areas) -> Markup | None:
    """The chart; None for a profile without moments."""
    moments = chart.profile.moments
    top = max((moment.in_use_bytes for moment in moments), default=0)
    if len(moments) < 2 or not top:
        return None
    windows = [list(group) for _, group in itertools.groupby(moments, key=lambda moment: moment.window)]
    width = (_WIDTH - _LEFT - _RIGHT - _GAP_WIDTH * (len(windows) - 1)) / len(moments)
    visible = layers(chart)
    parts = list(_axis(top))
    left, ticked = float(_LEFT), -_TICK_WIDTH
    for number, window in enumerate(windows):
        points = [(left + place * width, moment) for place, moment in enumerate(window)]
        # The last moment is as wide as the others.
        right = left + len(window) * width
        parts += _stack([*points, (right, window[-1])], visible, top)
        parts += _columns(points, right, visible)
        if left - ticked > _TICK_WIDTH and (number == 0 or left < _WIDTH - _RIGHT - 2 * _TICK_WIDTH):
            parts.append(_tick(left, window[0], "start"))
            ticked = left
        left = right + _GAP_WIDTH
    parts.append(_tick(_WIDTH - _RIGHT, moments[-1], "end"))
    legend = [
        f'<span class="key"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true"><rect class="area {layer.kind}"'
        f'{_fill(layer)} x="1" y="1" width="12" height="12"/></svg>{escape(layer.name)}</span>'
        for layer in reversed(visible)
    ]
    legend.append('<span class="key in-use"><i></i>in use, by the allocator</span>')
    cut = " Gaps: not recorded." if len(windows) > 1 else ""
    label = f"Memory in use by {chart.by}, in the order of allocations; vertical axis from 0 to {size(top)}"
    return Markup(  # noqa: S704  # escaped above
        f'<figure class="chart"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f'{"".join(parts)}</svg><p class="values" hidden></p><figcaption>{"".join(legend)}<span class="axis-note">'
        f"In the order of allocations, not of time. Axis: 0 to the peak, {size(top)}.{cut}</span></figcaption></figure>"
    )


def _stack(points: list[tuple[float, MemoryMoment]], visible: list[Layer], top: int) -> Iterator[str]:
    """The areas from the bottom, and the line of what the allocator had in use."""
    below = [0.0] * len(points)
    for layer in visible:
        above = [base + layer.held(moment) for base, (_, moment) in zip(below, points, strict=True)]
        up = " ".join(f"{x:.1f} {_y(value, top):.1f}" for (x, _), value in zip(points, above, strict=True))
        down = " ".join(
            f"{x:.1f} {_y(value, top):.1f}" for (x, _), value in reversed(list(zip(points, below, strict=True)))
        )
        yield f'<path class="area {layer.kind}"{_fill(layer)} d="M{up} {down}Z"/>'
        below = above
    line = " ".join(f"{x:.1f} {_y(moment.in_use_bytes, top):.1f}" for x, moment in points)
    yield f'<path class="line in-use" d="M{line}"/>'


def _columns(points: list[tuple[float, MemoryMoment]], right: float, visible: list[Layer]) -> Iterator[str]:
    """Invisible columns with the values of their fullest moment, for pointers and the arrow keys."""
    step = max(1, -(-len(points) // _COLUMNS))
    for begin in range(0, len(points), step):
        bucket = points[begin : begin + step]
        _, moment = max(bucket, key=lambda pair: pair[1].in_use_bytes)
        until = points[begin + step][0] if begin + step < len(points) else right
        held = sorted(((layer.held(moment), layer.name) for layer in visible), reverse=True)
        shown = escape(", ".join(f"{name} {size(amount)}" for amount, name in held if amount > 0))
        step_shown = f", step {moment.step}" if moment.step is not None else ""
        yield (
            f'<rect class="at" x="{bucket[0][0]:.1f}" y="{_TOP}" width="{max(until - bucket[0][0], 1):.1f}"'
            f' height="{_HEIGHT - _TOP - _BOTTOM}"><title>{measured_seconds(moment.t)}{step_shown}:'
            f" {size(moment.in_use_bytes)} in use; {shown}</title></rect>"
        )


def _axis(top: int) -> Iterator[str]:
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = _y(top * share, top)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{size(top * share)}</text>'


def _tick(x: float, moment: MemoryMoment, anchor: str) -> str:
    text = measured_seconds(moment.t) + (f", step {moment.step}" if moment.step else "")
    return f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{text}</text>'


def _y(amount: float, top: int) -> float:
    share = min(max(amount / top, 0.0), 1.0)
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _fill(layer: Layer) -> str:
    return ' fill="url(#hatch)"' if layer.kind == "unattributed" else ""

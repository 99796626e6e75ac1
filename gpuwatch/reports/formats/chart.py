"""The memory timeline of a run as inline SVG, on a fixed axis from 0 to the device's total."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from gpuwatch.formatting.units import size
from gpuwatch.model.run import MemoryPoint, Run
from gpuwatch.reports.charts import moved
from gpuwatch.reports.ledger import several

_WIDTH, _HEIGHT = 860, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 14, 14, 30
_MOST_POINTS = 600

_SERIES: tuple[tuple[str, str, Callable[[MemoryPoint], int | None]], ...] = (
    ("device", "Device, all owners (NVML)", lambda point: point.device_used_bytes),
    ("process", "This process (NVML)", lambda point: point.process_bytes),
    ("allocator", "In use (allocator)", lambda point: point.allocator_bytes),
)
_OF_SEVERAL = "Largest process (NVML)"
"""The memory of several processes is never summed."""


def memory_chart(run: Run) -> Markup | None:
    """The chart; None if the memory did not change. Only numbers go into the SVG."""
    points = run.memory.timeline
    if not moved(run):
        return None
    known = [value for point in points for _, _, pick in _SERIES if (value := pick(point)) is not None]
    top = run.memory.device_total_bytes or max(known, default=0)
    if not top:
        return None
    # From the start of the program, even if the first samples came later.
    start, end = min(0.0, points[0].t), points[-1].t
    span = max(end - start, 1e-9)

    def x(t: float) -> float:
        return _LEFT + (t - start) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(amount: float) -> float:
        share = min(max(amount / top, 0.0), 1.0)
        return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)

    parts, legend = _axes(top, start, end, y), []
    limit = run.memory.allocator_limit_bytes
    if limit is not None:
        at = y(limit)
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
    for name, title, pick in _SERIES:
        path = _path(points, pick, x, y)
        if path:
            parts.append(f'<path class="line {name}" d="{path}"/>')
            name_shown = _OF_SEVERAL if name == "process" and several(run) else title
            legend.append(f'<span class="key {name}"><i></i>{name_shown}</span>')
    if not legend:
        return None
    if limit is not None:
        # In the legend, where no line runs through it.
        legend.append(f'<span class="key limit-key"><i></i>Allocator limit, {size(limit)}</span>')
    axis = "device total" if run.memory.device_total_bytes else "largest value seen (total unknown)"
    label = f"GPU memory over {span:.1f} s; vertical axis from 0 to {size(top)}, the {axis}"
    return Markup(
        f'<figure class="chart"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f'{"".join(parts)}</svg><figcaption>{"".join(legend)}<span class="axis-note">Axis: 0 to the {axis}, '
        f"{size(top)}</span></figcaption></figure>"
    )


def _axes(top: float, start: float, end: float, y: Callable[[float], float]) -> list[str]:
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = y(top * share)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{size(top * share)}</text>'
        )
    for share in (0, 0.5, 1):
        at = _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
        anchor = ("start", "middle", "end")[int(share * 2)]
        t = start + share * (end - start)
        parts.append(f'<text class="tick" x="{at:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">{t:.1f} s</text>')
    return parts


def _path(
    points: tuple[MemoryPoint, ...],
    pick: Callable[[MemoryPoint], int | None],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> str:
    """A path with gaps where nothing was read. Long series are thinned to the maximum of each bucket."""
    step = max(1, -(-len(points) // _MOST_POINTS))
    parts: list[str] = []
    pen_down = False
    for begin in range(0, len(points), step):
        bucket = [(point.t, value) for point in points[begin : begin + step] if (value := pick(point)) is not None]
        if not bucket:
            pen_down = False
            continue
        t, value = max(bucket, key=lambda item: item[1])
        parts.append(f"{'L' if pen_down else 'M'}{x(t):.1f} {y(value):.1f}")
        pen_down = True
    return " ".join(parts) if len(parts) > 1 else ""

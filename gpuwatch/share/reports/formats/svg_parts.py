"""Parts that the charts of HTML share, as inline SVG: figure, axis, key, and columns with the values of a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from markupsafe import Markup, escape

from gpuwatch.core.formatting.units import size

WIDTH, RIGHT = 860, 14
"""Width of a chart, and of its margin on the right."""


def figure(height: int, label: str, parts: Iterable[str], caption: str) -> Markup:
    """A chart of ``parts``, in which whatever comes from outside is escaped already, as in ``caption``."""
    return Markup(  # noqa: S704  # escaped before
        f'<figure class="chart"><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f'{"".join(parts)}</svg><p class="values" hidden></p><figcaption>{caption}</figcaption></figure>'
    )


def within(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1."""
    return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def points(places: Iterable[tuple[float, float]]) -> str:
    """Places of a path."""
    return " ".join(f"{x:.1f} {y:.1f}" for x, y in places)


def level(left: int, y: float, look: str = "grid") -> str:
    """A line across the chart."""
    return f'<line class="{look}" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def bytes_axis(left: int, top: float, y: Callable[[float], float]) -> Iterator[str]:
    """Lines from 0 to ``top`` bytes, with their amounts."""
    for amount in (top * share for share in (0, 0.25, 0.5, 0.75, 1)):
        yield level(left, y(amount))
        yield f'<text class="tick" x="{left - 8}" y="{y(amount) + 4:.1f}" text-anchor="end">{size(amount)}</text>'


def column(x: float, y: float, width: float, height: float, title: str) -> str:
    """An invisible column with the values of a moment, for pointers and the arrow keys."""
    return (
        f'<rect class="at" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}">'
        f"<title>{escape(title)}</title></rect>"
    )


def key(rect: str, name: str, look: str = "key") -> str:
    """An entry of the key: a square with the attributes ``rect``, and its meaning."""
    return (
        f'<span class="{look}"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
        f'<rect {rect} x="1" y="1" width="12" height="12"/></svg>{escape(name)}</span>'
    )

"""Parts that the charts of HTML share, as inline SVG: figure, axis, key, and columns with the values of a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from markupsafe import Markup, escape

from gpuwatch.core.formatting.units import size

VIEWBOX_WIDTH, RIGHT_EDGE = 860, 846
"""Width of a chart, and where its drawing ends on the right, in units of its viewBox: `report.css` scales it."""


def figure(height: int, description: str, parts: Iterable[str], caption: str) -> Markup:
    """A chart of ``parts``, in which whatever comes from outside is escaped already, as in ``caption``."""
    return Markup(  # noqa: S704  # escaped before
        f'<figure class="chart"><svg viewBox="0 0 {VIEWBOX_WIDTH} {height}" role="img"'
        f' aria-label="{escape(description)}">{"".join(parts)}</svg><p class="values" hidden></p>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def fraction(value: float, low: float, high: float) -> float:
    """Where a value lies between two others, from 0 to 1."""
    return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def path_points(places: Iterable[tuple[float, float]]) -> str:
    """The places of an SVG path, with one decimal."""
    return " ".join(f"{x:.1f} {y:.1f}" for x, y in places)


def horizontal_line(left: int, y: float, css_class: str = "grid") -> str:
    """A line across the chart."""
    return f'<line class="{css_class}" x1="{left}" x2="{RIGHT_EDGE}" y1="{y:.1f}" y2="{y:.1f}"/>'


def text_label(x: float, y: float, text: str, anchor: str = "middle", css_class: str = "tick") -> str:
    """A text at a place; ``text`` is escaped already."""
    return f'<text class="{css_class}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def equal_parts(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Start and end of at most ``most`` equal parts of ``count`` places."""
    step = max(1, -(-count // most))
    return ((begin, min(begin + step, count)) for begin in range(0, count, step))


def bytes_axis(left: int, top: float, y: Callable[[float], float]) -> Iterator[str]:
    """Lines from 0 to ``top`` bytes, with their amounts."""
    for amount in (top * share for share in (0, 0.25, 0.5, 0.75, 1)):
        yield horizontal_line(left, y(amount))
        yield text_label(left - 8, y(amount) + 4, size(amount), "end")


def hover_column(x: float, y: float, width: float, height: float, title: str) -> str:
    """An invisible column with the values of a moment, for pointers and the arrow keys."""
    return (
        f'<rect class="at" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}">'
        f"<title>{escape(title)}</title></rect>"
    )


def legend_entry(rect_attributes: str, name: str, css_class: str = "key") -> str:
    """An entry of the legend: a square with these attributes, and its meaning."""
    return (
        f'<span class="{css_class}"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
        f'<rect {rect_attributes} x="1" y="1" width="12" height="12"/></svg>{escape(name)}</span>'
    )

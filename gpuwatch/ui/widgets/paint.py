"""The base of every live pane: lines of (text, ink) spans, of which only changed ones are redrawn.

A pane computes its lines as plain tuples and hands them to :meth:`Painted.paint`, which compares
them with those on screen and asks Textual to redraw the cells between the first and the last
difference of a line. Equal lines cost a comparison and nothing else; strips are built when Textual
asks for a line and kept until that line changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpuwatch.ui.cells import width_of

Span = tuple[str, str]
"""Text, and the name of the ink (``ink--…`` component class) that it is drawn with."""

INKS = (
    "text",
    "dim",
    "faint",
    "strong",
    "title",
    "accent",
    "ok",
    "warning",
    "error",
    "gpu",
    "memory",
    "power",
    "graph",
    "track",
    "border",
    "focus",
    "frame",
    "thumb",
    "header",
    "sorted",
    "key",
    "badge",
    "badge-warning",
    "badge-error",
    "cursor",
)


class Line(NamedTuple):
    """One line of a pane; ``wash`` is an ink whose background covers the whole line."""

    spans: tuple[Span, ...]
    wash: str = ""


BLANK = Line(())
_UNWASHED = frozenset({"border", "frame", "thumb"})
"""A frame stands around its lines, and takes no background of theirs."""


def difference(old: Line, new: Line) -> tuple[int, int] | None:
    """First and one-past-last differing cell of two lines, None where only the full width will do."""
    if old.wash != new.wash:
        return None
    start = 0
    head = 0
    for (text, ink), other in zip(old.spans, new.spans, strict=False):
        if (text, ink) != other:
            break
        start += width_of(text)
        head += 1
    ends = [sum(width_of(text) for text, _ in line.spans) for line in (old, new)]
    if ends[0] != ends[1]:
        return (start, max(ends))
    end = ends[0]
    for ours, theirs in zip(reversed(old.spans[head:]), reversed(new.spans[head:]), strict=False):
        if ours != theirs:
            break
        end -= width_of(ours[0])
    return (start, max(end, start + 1))


class Painted(Widget):
    """A pane drawn line by line from spans."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"ink--{ink}" for ink in INKS}

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}
        self._styles_of_inks: dict[str, Style] = {}
        self._stale = False
        self.lines_painted = 0
        """Strips built since the start; what tests and benchmarks count."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """What is on screen."""
        return self._lines

    @property
    def plain(self) -> str:
        """What is on screen, as text."""
        return "\n".join("".join(text for text, _ in line.spans) for line in self._lines)

    def paint(self, lines: Sequence[Line], *, stale: bool = False) -> None:
        """Puts ``lines`` on screen; redraws only the cells that differ."""
        old, new = self._lines, tuple(lines)
        if stale != self._stale:
            self._stale = stale
            self._lines = new
            self.forget_strips()
            self.refresh()
            return
        if old == new:
            return
        self._lines = new
        width = max(self.size.width, 1)
        regions = []
        for y in range(max(len(old), len(new))):
            before = old[y] if y < len(old) else BLANK
            after = new[y] if y < len(new) else BLANK
            if before == after:
                continue
            self._strips.pop(y, None)
            span = difference(before, after)
            start, end = span if span is not None else (0, width)
            regions.append(Region(start, y, max(min(end, width) - start, 1), 1))
        if regions:
            self.refresh(*regions)

    def ink(self, name: str) -> Style:
        """The style of an ink on this pane's background."""
        style = self._styles_of_inks.get(name)
        if style is None:
            used = "faint" if self._stale and name not in ("border", "focus", "frame", "track", "cursor") else name
            style = self.get_visual_style(f"ink--{used}").rich_style
            if self.get_component_styles(f"ink--{used}").text_style.reverse:  # Textual's style leaves it out
                style += Style(reverse=True)
            self._styles_of_inks[name] = style
        return style

    def forget_strips(self) -> None:
        """After a change of theme, size or staleness every strip has to be built again."""
        self._strips.clear()
        self._styles_of_inks.clear()

    def notify_style_update(self) -> None:
        """Textual's word that colours may have changed."""
        super().notify_style_update()
        self.forget_strips()

    def render_line(self, y: int) -> Strip:
        """One line for Textual's compositor."""
        strip = self._strips.get(y)
        width = self.size.width
        if strip is not None and strip.cell_length == width:
            return strip
        self.lines_painted += 1
        line = self._lines[y] if y < len(self._lines) else BLANK
        if line.wash and self.ink(line.wash).reverse:
            base = self.ink(line.wash)
            segments = [Segment(text, self.ink(ink) if ink in _UNWASHED else base) for text, ink in line.spans]
        elif line.wash:
            under = Style(bgcolor=self.ink(line.wash).bgcolor)
            segments = [
                Segment(text, self.ink(ink) if ink in _UNWASHED else self.ink(ink) + under) for text, ink in line.spans
            ]
            base = self.ink("text") + under
        else:
            segments = [Segment(text, self.ink(ink)) for text, ink in line.spans]
            base = self.ink("text")
        strip = Strip(segments).adjust_cell_length(width, base)
        self._strips[y] = strip
        return strip

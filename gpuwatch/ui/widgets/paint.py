"""The base of every live pane: lines of (text, ink) spans, of which only changed ones are redrawn.

A pane computes its lines as plain tuples and hands them to :meth:`Painted.paint`, which compares
them with those on screen and asks Textual to redraw the cells between the first and the last
difference of a line. Equal lines cost a comparison and nothing else; strips are built when Textual
asks for a line and kept until that line changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.css.styles import RenderStyles
from textual.dom import DOMNode
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

from gpuwatch.ui.cells import width_of
from gpuwatch.ui.inks import UNWASHED
from gpuwatch.ui.lines import BLANK, INKS, Line, Span, changed, difference
from gpuwatch.ui.widgets.direct import Direct, sequence_of

__all__ = ["BLANK", "INKS", "Line", "Painted", "Span", "difference"]

READABLE = 3.0
"""Contrast from which on text is read without effort, as the W3C's guidelines have it for large text."""
_inks_of: WeakKeyDictionary[App[object], tuple[object, dict[str, RenderStyles]]] = WeakKeyDictionary()
"""By app: the rules that hold, and what they make of the inks."""
_UNDIMMED = frozenset({"border", "focus", "frame", "track", "cursor"})


def contrast(one: Color, other: Color) -> float:
    """Ratio of the relative luminances of two colors, 1 to 21 (WCAG 2)."""

    def light(color: Color) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


class Painted(Widget):
    """A pane drawn line by line from spans.

    Inks look as component classes do to a style sheet, and are none: Textual would work out the rules of each
    of them for every pane, several times while a screen is made. Here it is done once for all panes, and only
    for the inks that are used.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}
        self._styles_of_inks: dict[str, Style] = {}
        self._sequences: dict[tuple[str, str], str | None] = {}
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
        changes = []
        for y in range(max(len(old), len(new))):
            before = old[y] if y < len(old) else BLANK
            after = new[y] if y < len(new) else BLANK
            if before != after:
                self._strips.pop(y, None)
                changes.append((y, before, after))
        direct: Direct | None = getattr(self.app, "direct", None)
        if direct is not None and direct.write(self, changes):
            return
        width = max(self.size.width, 1)
        regions = []
        for y, before, after in changes:
            span = difference(before, after)
            start, end = span if span is not None else (0, width)
            regions.append(Region(start, y, max(min(end, width) - start, 1), 1))
        self.refresh(*regions)

    def amend(self, texts: Sequence[tuple[int, int, int, str]]) -> None:
        """Puts other texts, as wide as those before, into spans: line, number of the span, its cell, the text."""
        if not texts:
            return
        lines = list(self._lines)
        cells = []
        for y, number, x, text in texts:
            spans, wash = lines[y]
            before, ink = spans[number]
            lines[y] = Line((*spans[:number], (text, ink), *spans[number + 1 :]), wash)
            self._strips.pop(y, None)
            start, end = changed(before, text) if len(before) == len(text) and text.isascii() else (0, len(text))
            cells.append((y, wash, ((x + start, text[start:end], ink),)))
        self._lines = tuple(lines)
        direct: Direct | None = getattr(self.app, "direct", None)
        if direct is None or not direct.write_cells(self, cells):
            self.refresh(*[Region(x, y, max(width_of(text), 1), 1) for y, _, ((x, text, _),) in cells])

    def on_mount(self) -> None:
        """Another theme has other inks."""
        self.app.theme_changed_signal.subscribe(self, self._theme_changed)

    def _theme_changed(self, theme: Theme) -> None:
        self.notify_style_update()
        self.refresh()

    def get_component_styles(self, *names: str) -> RenderStyles:
        """What the style sheet says of one ink."""
        (name,) = names
        if name.removeprefix("ink--") not in INKS:
            raise KeyError(f"{name!r} is no ink")
        sheet = self.app.stylesheet
        rules, known = _inks_of.get(self.app, (None, {}))
        if rules is not sheet.rules:
            known = {}
            _inks_of[self.app] = (sheet.rules, known)
        if name not in known:
            node = DOMNode(classes=name)
            node._attach(self)
            sheet.apply(node, animate=False)
            known[name] = node.styles
        return known[name]

    def ink(self, name: str) -> Style:
        """The style of an ink on this pane's background."""
        style = self._styles_of_inks.get(name)
        if style is None:
            if self._stale and name not in _UNDIMMED:
                return self._styles_of_inks.setdefault(name, self._faded())
            used = name
            style = self.get_visual_style(f"ink--{used}").rich_style
            if self.get_component_styles(f"ink--{used}").text_style.reverse:  # Textual's style leaves it out
                style += Style(reverse=True)
            self._styles_of_inks[name] = style
        return style

    def _faded(self) -> Style:
        """The ink of what is old: as faint as can still be read in this theme."""
        visual = self.get_visual_style("ink--text")
        over, under = visual.foreground, visual.background
        if over is None or under is None or over.ansi is not None or under.ansi is not None:
            return self.get_visual_style("ink--faint").rich_style
        for strength in range(50, 100, 5):
            faint = under.blend(over, strength / 100)
            if contrast(faint, under) >= READABLE:
                return Style(color=faint.rich_color, bgcolor=under.rich_color)
        return Style(color=over.rich_color, bgcolor=under.rich_color)

    def _washed(self, name: str, wash: str) -> Style:
        """The style of an ink on a line with this wash."""
        style = self.ink(name)
        if not wash or name in UNWASHED:
            return style
        under = self.ink(wash)
        return under if under.reverse else style + Style(bgcolor=under.bgcolor)

    def sequence(self, name: str, wash: str, filters: Sequence[LineFilter]) -> str | None:
        """What sets an ink on the terminal; None where Textual has to do it."""
        try:
            return self._sequences[name, wash]
        except KeyError:
            found = self._sequences[name, wash] = sequence_of(self, self._washed(name, wash), filters)
            return found

    def forget_strips(self) -> None:
        """After a change of theme, size or staleness every strip has to be built again."""
        self._strips.clear()
        self._styles_of_inks.clear()
        self._sequences.clear()

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
        segments = [Segment(text, self._washed(ink, line.wash)) for text, ink in line.spans]
        base = self._washed("text", line.wash)
        strip = Strip(segments).adjust_cell_length(width, base)
        self._strips[y] = strip
        return strip

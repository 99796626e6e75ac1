"""The base of every pane: lines of (text, style) spans, of which only the changed ones are redrawn.

A pane passes its lines as plain tuples to :meth:`PaintedPane.paint`, which compares them with those on screen and
redraws those that differ. Equal lines cost only a comparison; strips are built when Textual requests a line and cached
until it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

from gpuwatch.core.safe_text import is_printable, printable
from gpuwatch.ui.drawing.styled_lines import BLANK, Line
from gpuwatch.ui.drawing.text_styles import HIGHLIGHT_COLOR, HIGHLIGHT_SHARE, NOT_HIGHLIGHTED, STYLES, style_and_url
from gpuwatch.ui.widgets.terminal_writes import TerminalWrites, escape_sequence

MIN_READABLE_CONTRAST = 3.0
"""Minimum contrast of readable text: that of WCAG 2 for large text."""
_UNDIMMED = frozenset({"border", "focus", "focused-border", "track", "cursor"})


def contrast(item: Color, other: Color) -> float:
    """Ratio of the relative luminances of two colors, 1 to 21 (WCAG 2)."""

    def luminance(color: Color) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(item), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _printable_line(line: Line) -> Line:
    """The line without control characters: the last check for text that skipped :func:`printable`."""
    if is_printable("".join(text for text, _ in line.spans)):
        return line
    return Line(tuple((printable(text), style) for text, style in line.spans), line.highlighted)


JumpTarget = tuple[int, int, Callable[[bool], object]]
"""Cell and line of something in a pane, and what selects it, or opens it too (True)."""


class PaintedPane(Widget):
    """A pane drawn line by line from spans."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._strips: dict[int, Strip] = {}
        self._rich_styles: dict[str, Style] = {}
        self._sequences: dict[tuple[str, bool], str | None] = {}
        self._stale = False
        self.lines_painted = 0
        """Number of strips built, for tests and benchmarks."""

    @property
    def lines(self) -> tuple[Line, ...]:
        return self._lines

    @property
    def plain(self) -> str:
        return "\n".join("".join(text for text, _ in line.spans) for line in self._lines)

    def paint(self, lines: Sequence[Line], *, stale: bool = False) -> None:
        """Shows ``lines``; redraws only the cells that differ."""
        old = self._lines
        new = tuple(line if line in old[y : y + 1] else _printable_line(line) for y, line in enumerate(lines))
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
        writes: TerminalWrites | None = getattr(self.app, "terminal_writes", None)
        if writes is not None and writes.write(self, changes):
            return
        self.refresh(*(Region(0, y, max(self.size.width, 1), 1) for y, _, _ in changes))

    def jump_targets(self) -> list[JumpTarget]:
        """What jump mode can go to inside this pane, where it is drawn now."""
        return []

    def choose(self) -> None:
        """Does what Enter does here, after a double click or a jump."""
        for binding in self.BINDINGS:
            if isinstance(binding, Binding) and "enter" in binding.key.split(","):
                self.screen.call_next(self.screen.run_action, binding.action.removeprefix("screen."))

    def redraw(self) -> None:
        """Draws the pane from its data, if it has room."""
        width, height = self.size
        if width and height:
            self._draw(width, height)

    def _draw(self, width: int, height: int) -> None:
        """Paints the lines; for subclasses that redraw after a change of size or focus."""

    def resized(self) -> None:
        self.redraw()

    def turn_wheel(self, rows: int) -> bool:
        """Scrolls down, or up if negative; False if the pane does not scroll."""
        return False

    def on_resize(self, event: events.Resize) -> None:
        self.resized()

    def watch_has_focus(self, focused: bool) -> None:
        """Redraws: cursor and frame are highlighted only while focused."""
        super().watch_has_focus(focused)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        if self.turn_wheel(3):
            event.stop()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if self.turn_wheel(-3):
            event.stop()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, self._theme_changed)

    def _theme_changed(self, theme: Theme) -> None:
        self.notify_style_update()
        self.refresh()

    def rich_style_of(self, name: str) -> Style:
        """The style of this name, as Rich draws it on this pane's background."""
        if name not in self._rich_styles:
            base, url = style_and_url(name)
            if url:
                return self._rich_styles.setdefault(name, self.rich_style_of(base) + Style(link=url))
            faded = self._stale and name not in _UNDIMMED
            self._rich_styles[name] = self._stale_style() if faded else self._make_rich_style(name)
        return self._rich_styles[name]

    def _theme_color(self, name: str) -> Color:
        return Color.parse(self.app.theme_variables[name])

    def _make_rich_style(self, name: str) -> Style:
        background, has_16_colors = self.background_colors[1], self.app.native_ansi_color
        if name == "cursor":
            foreground = self._theme_color("foreground")
            if not has_16_colors:
                background = background.blend(self._theme_color(HIGHLIGHT_COLOR), HIGHLIGHT_SHARE)
            return Style(color=foreground.rich_color, bgcolor=background.rich_color, reverse=has_16_colors or None)
        style_rule = STYLES[name]
        foreground = self._theme_color(style_rule.foreground)
        if not has_16_colors:
            background = self._theme_color(style_rule.background) if style_rule.background else background
            foreground = background.blend(foreground, style_rule.strength)
        elif style_rule.on_16_colors == "reverse":
            foreground = self._theme_color(style_rule.background)
        style = Style(color=foreground.rich_color, bgcolor=background.rich_color, bold=style_rule.bold or None)
        return style + Style.parse(style_rule.on_16_colors) if has_16_colors else style

    def _stale_style(self) -> Style:
        """The style of stale data: as faint as this theme allows while readable."""
        if self.app.native_ansi_color:
            return self._make_rich_style("faint")
        foreground, background = self._theme_color("foreground"), self.background_colors[1]
        shades = (background.blend(foreground, strength / 100) for strength in range(50, 100, 5))
        readable = next((shade for shade in shades if contrast(shade, background) >= MIN_READABLE_CONTRAST), foreground)
        return Style(color=readable.rich_color, bgcolor=background.rich_color)

    def _rich_style_in_line(self, name: str, highlighted: bool) -> Style:
        style = self.rich_style_of(name)
        if not highlighted or name in NOT_HIGHLIGHTED:
            return style
        background = self.rich_style_of("cursor")
        return background if background.reverse else style + Style(bgcolor=background.bgcolor)

    def escape_sequence(self, name: str, highlighted: bool, filters: Sequence[LineFilter]) -> str | None:
        """The escape sequence of a style; None if Textual has to draw it."""
        if style_and_url(name)[1]:
            return None
        key = name, highlighted
        if key not in self._sequences:
            self._sequences[key] = escape_sequence(self, self._rich_style_in_line(name, highlighted), filters)
        return self._sequences[key]

    def forget_strips(self) -> None:
        """Drops all cached strips and styles, after a change of theme, size or staleness."""
        self._strips.clear()
        self._rich_styles.clear()
        self._sequences.clear()

    def notify_style_update(self) -> None:
        """Called by Textual when colors may have changed."""
        super().notify_style_update()
        self.forget_strips()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Some lines for Textual's compositor; of a pane without a border from its own strips, not Textual's cache,
        which does not know what :class:`TerminalWrites` wrote.
        """
        if self.size != self.outer_size:
            return super().render_lines(crop)
        strips = [self.render_line(y) for y in crop.line_range]
        for filter_ in self.get_line_filters():
            strips = [strip.apply_filter(filter_, self.background_colors[1]) for strip in strips]
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        width = self.size.width
        if strip is not None and strip.cell_length == width:
            return strip
        self.lines_painted += 1
        line = self._lines[y] if y < len(self._lines) else BLANK
        segments = [Segment(text, self._rich_style_in_line(style, line.highlighted)) for text, style in line.spans]
        base = self._rich_style_in_line("text", line.highlighted)
        strip = Strip(segments).adjust_cell_length(width, base)
        self._strips[y] = strip
        return strip

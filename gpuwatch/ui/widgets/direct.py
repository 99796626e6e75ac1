"""Writes changed cells directly to the terminal: clock, run times, numbers.

To draw a change, Textual composes all widgets of the affected screen lines again, which is most of a
dashboard's CPU time when only a few digits change in an uncovered pane. This module writes only those
digits, with styles from Textual's own pipeline, and invalidates Textual's line caches, so that later
drawing gives the same result. If anything may cover the pane, or Textual has a layout pending, nothing
is written here and Textual draws the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip

from gpuwatch.ui.drawing.glyphs import to_ascii
from gpuwatch.ui.drawing.lines import Line, patches
from gpuwatch.ui.widgets.ascii_filter import AsciiFilter

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from gpuwatch.ui.widgets.paint import Painted

_PROBE = "x"


class Direct:
    """Collects the changes of all panes in one frame and writes them at once. Use as a context manager."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self._open = False
        self._usable = False
        self._screen: Screen[object] | None = None
        self._out: list[str] = []
        self._ink = ""
        self.frames = 0
        """Number of writes, for tests and benchmarks."""

    def __enter__(self) -> Direct:
        self._open = True
        self._usable = self._can_write()
        self._ink = ""
        return self

    def __exit__(self, *_: object) -> None:
        self._open = False
        if not self._out:
            return
        app, out = self._app, self._out
        self._out = []
        x, y = app.cursor_position
        out.append(f"\x1b[0m\x1b[{y + 1};{x + 1}H")
        text = "".join(out)
        if app._sync_available:
            text = SYNC_START + text + SYNC_END
        assert app._driver is not None
        app._driver.write(text)
        self.frames += 1

    def _can_write(self) -> bool:
        app = self._app
        if not isinstance(app._driver, LinuxDriver) or app._batch_count or app._closing or app._notifications:
            return False
        self._screen = screen = app.screen
        return not (screen._layout_required or screen._repaint_required or screen._scroll_required)

    def write(self, pane: Painted, changes: Iterable[tuple[int, Line, Line]]) -> bool:
        """Writes changed lines (row, before, now) of a pane; False if Textual has to draw them."""
        region = self._place(pane)
        if region is None:
            return False
        return self._written(pane, region, changes)

    def _place(self, pane: Painted) -> Region | None:
        """The region of a pane; None if a redraw is pending there, or something may cover it."""
        if not self._open or not self._usable or pane.screen is not self._screen or pane._layout_required:
            return None
        assert self._screen is not None
        placed = self._screen._compositor.visible_widgets.get(pane)
        if placed is None or not placed[1].contains_region(placed[0]) or pane._repaint_required:
            return None
        return placed[0]

    def _written(self, pane: Painted, region: Region, changes: Iterable[tuple[int, Line, Line]]) -> bool:
        filters = pane.get_line_filters()
        out: list[str] = []
        ink = self._ink
        ascii_only = any(isinstance(one, AsciiFilter) for one in filters)
        dirty = pane._styles_cache._dirty_lines
        rows = []
        for y, before, now in changes:
            rows.append(y)
            if y >= region.height:
                continue
            for x, text, name in patches(before, now, region.width):
                if not text:
                    return False
                style = pane.sequence(name or "text", now.wash, filters)
                if style is None:
                    return False
                out.append(f"\x1b[{region.y + y + 1};{region.x + x + 1}H")
                if style != ink:
                    out.append(style)
                    ink = style
                out.append(to_ascii(text) if ascii_only else text)
        dirty.update(rows)
        self._out += out
        self._ink = ink
        return True


def sequence_of(pane: Painted, style: Style, filters: Sequence[LineFilter]) -> str | None:
    """The escape sequence that sets a style, after Textual's filters; None if it cannot be isolated."""
    strip = Strip([Segment(_PROBE, style)])
    background = pane.background_colors[1]
    for one in filters:
        strip = strip.apply_filter(one, background)
    head, found, _ = strip.render(pane.app.console).partition(_PROBE)
    if not found:
        return None
    if not head:
        return "\x1b[0m"
    return head.replace("\x1b[", "\x1b[0;", 1) if head.startswith("\x1b[") and head.endswith("m") else None

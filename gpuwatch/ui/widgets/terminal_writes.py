"""Writes changed cells directly to the terminal: clock, run times, numbers.

To draw a change, Textual composes all widgets of the affected screen lines again, which is most of a
dashboard's CPU time when only a few digits change in an uncovered pane. This module writes only those
digits, with styles from Textual's own pipeline, and invalidates Textual's line caches, so that later
drawing gives the same result. If anything may cover the pane, if Textual has a layout pending, or if this
version of Textual does not show either, nothing is written here and Textual draws the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.errors import NoWidget
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip

from gpuwatch.core.formatting.terminal import SYNC_END, SYNC_START
from gpuwatch.ui.drawing.cells import width_of
from gpuwatch.ui.drawing.glyphs import to_ascii
from gpuwatch.ui.drawing.lines import Line, patches
from gpuwatch.ui.widgets.preferences_app import AsciiFilter
from gpuwatch.ui.widgets.textual_internals import internal

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from gpuwatch.ui.widgets.paint import Painted

_PROBE = "x"


class TerminalWrites:
    """Collects the changes of all panes in one frame and writes them at once. Use as a context manager."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self.output: Callable[[str], None] | None = None
        """Writes to the terminal; None while Textual does not own one."""
        self._screen: Screen[object] | None = None
        """The screen to write on; None if Textual has to draw."""
        self._out: list[str] = []
        self._ink = ""
        self.frames = 0
        """Number of writes, for tests and benchmarks."""

    def __enter__(self) -> TerminalWrites:
        self._screen = self._app.screen if self._can_write() else None
        self._ink = ""
        return self

    def __exit__(self, *_: object) -> None:
        self._screen = None
        out, self._out = self._out, []
        if not out or self.output is None:
            return
        x, y = self._app.cursor_position
        out.append(f"\x1b[0m\x1b[{y + 1};{x + 1}H")
        text = "".join(out)
        if internal(self._app, "_sync_available", bool):
            text = SYNC_START + text + SYNC_END
        self.output(text)
        self.frames += 1

    def _can_write(self) -> bool:
        """Whether Textual has nothing to draw itself and shows no toast."""
        app, screen = self._app, self._app.screen
        toasts = internal(app, "_notifications", object)
        return (
            self.output is not None
            and toasts is not None
            and not toasts
            and internal(app, "_batch_count", int) == 0
            and internal(screen, "_layout_required", bool) is False
            and internal(screen, "_repaint_required", bool) is False
            and internal(screen, "_scroll_required", bool) is False
        )

    def write(self, pane: Painted, changes: Sequence[tuple[int, Line, Line]]) -> bool:
        """Writes changed lines (row, before, now) of a pane; False if Textual has to draw them."""
        region = self._uncovered_region(pane)
        set_dirty = getattr(internal(pane, "_styles_cache", object), "set_dirty", None)
        if region is None or set_dirty is None:
            return False
        out = self._escaped(pane, region, changes)
        if out is None:
            return False
        set_dirty(*(Region(0, y, region.width, 1) for y, _, _ in changes))
        self._out += out
        return True

    def _uncovered_region(self, pane: Painted) -> Region | None:
        """The region of a pane; None if a redraw is pending there, or something may cover it."""
        if (
            self._screen is None
            or pane.screen is not self._screen
            or internal(pane, "_layout_required", bool) is not False
            or internal(pane, "_repaint_required", bool) is not False
        ):
            return None
        try:
            placed = self._screen.find_widget(pane)
        except NoWidget:
            return None
        return placed.region if placed.clip.contains_region(placed.region) else None

    def _escaped(self, pane: Painted, region: Region, changes: Iterable[tuple[int, Line, Line]]) -> list[str] | None:
        """The changes as escape sequences; None if one cannot be written alone."""
        filters = pane.get_line_filters()
        ascii_only = any(isinstance(one, AsciiFilter) for one in filters)
        pieces: list[tuple[str, int, int, str]] = []
        for y, before, now in changes:
            if y >= region.height:
                continue
            for x, text, name in patches(before, now, region.width):
                style = pane.sequence(name or "text", now.wash, filters) if text else None
                if style is None:
                    return None
                pieces.append((style, region.y + y + 1, region.x + x + 1, text))
        out: list[str] = []
        ink, beyond = self._ink, (0, 0)
        # What has one style together, the present one first: a style is longer than most changes.
        pieces.sort(key=lambda piece: (piece[0] != ink, piece[0]))
        for style, y, x, text in pieces:
            if (y, x) != beyond:
                out.append(f"\x1b[{y};{x}H")
            beyond = (y, x + width_of(text))
            if style != ink:
                out.append(style)
                ink = style
            out.append(to_ascii(text) if ascii_only else text)
        self._ink = ink
        return out


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

"""Writes changed cells directly to the terminal: clock, run times, numbers.

To draw a change, Textual composes all widgets of the affected screen lines again, which is most of a
dashboard's CPU time when only a few digits change. This module writes only those digits, with styles from
Textual's own pipeline. Panes keep their strips themselves, see :meth:`PaintedPane.render_lines`, so later drawing
gives the same result. Where another widget covers the cells, Textual draws the change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style
from textual.dom import NoScreen
from textual.errors import NoWidget
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip

from gpuwatch.ui.drawing.glyphs import to_ascii
from gpuwatch.ui.drawing.styled_lines import Line, patches
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.widgets.preferences_app import AsciiFilter

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from gpuwatch.ui.widgets.painted_pane import PaintedPane

_PROBE = "x"
_COLORED = re.compile(r"\x1b\[0;(38;[\d;]*?);(48;[\d;]*)m")
"""A sequence that sets two colors without bold and the like."""


class TerminalWrites:
    """Collects the changes of all panes in one frame and writes them at once. Use as a context manager."""

    def __init__(self, app: App[None]) -> None:
        self._app = app
        self.output: Callable[[str], None] | None = None
        """Writes to the terminal; None while Textual does not own one."""
        self._screen: Screen[object] | None = None
        """The screen to write on, within a frame."""
        self._out: list[str] = []
        self._current = ""
        self.frames = 0
        """Number of writes, for tests and benchmarks."""

    def __enter__(self) -> TerminalWrites:
        self._screen = self._app.screen if self.output is not None else None
        self._current = ""
        return self

    def __exit__(self, *_: object) -> None:
        self._screen = None
        out, self._out = self._out, []
        if not out or self.output is None:
            return
        out.append("\x1b[m")
        x, y = self._app.cursor_position
        if x or y:  # an input method opens its window there
            out.append(f"\x1b[{y + 1};{x + 1}H")
        self.output("".join(out))
        self.frames += 1

    def write(self, pane: PaintedPane, changes: Sequence[tuple[int, Line, Line]]) -> bool:
        """Writes changed lines (row, before, now) of a pane; False if Textual has to draw them."""
        screen = self._screen
        if screen is None:
            return False
        try:
            if pane.screen is not screen:
                return False
            placed = screen.find_widget(pane)
            region = placed.region
            if region.size != pane.size or not placed.clip.contains_region(region):
                return False
            out = self._escaped(pane, screen, region, changes)
        except (NoWidget, NoScreen):  # of a tab that has just been opened, the panes are not there yet
            return False
        if out is None:
            return False
        self._out += out
        return True

    def _escaped(
        self, pane: PaintedPane, screen: Screen[object], region: Region, changes: Sequence[tuple[int, Line, Line]]
    ) -> list[str] | None:
        """The changes as escape sequences; None if one is covered or cannot be written alone."""
        filters = pane.get_line_filters()
        ascii_only = any(isinstance(filter_, AsciiFilter) for filter_ in filters)
        pieces: list[tuple[str, int, int, str]] = []
        for row, before, now in changes:
            if row >= region.height:
                continue
            y = region.y + row
            for at, text, name in patches(before, now, region.width):
                sequence = pane.escape_sequence(name or "text", now.highlighted, filters) if text else None
                start, end = region.x + at, region.x + at + width_of(text) - 1
                if sequence is None or screen.get_widget_at(start, y)[0] is not pane:
                    return None
                if end != start and screen.get_widget_at(end, y)[0] is not pane:
                    return None
                pieces.append((sequence, y + 1, start + 1, text))
        out: list[str] = []
        current, beyond, below = self._current, (0, 0), (0, 0)
        # Changes of the same style together, the current style first: a sequence is longer than most changes.
        pieces.sort(key=lambda piece: (piece[0] != current, piece[0].partition(";48;")[2], piece[0]))
        for sequence, y, x, text in pieces:
            if (y, x) != beyond:
                out.append("\x1b[B\b" if (y, x) == below else f"\x1b[{y};{x}H")
            beyond = (y, x + width_of(text))
            # Down a column of times; from the last cell, and after what a terminal may draw wider, it is not sure.
            below = (y + 1, x) if len(text) == 1 and text.isascii() and beyond[1] <= screen.size.width else (0, 0)
            if sequence != current:
                out.append(_sequence_change(current, sequence))
                current = sequence
            out.append(to_ascii(text) if ascii_only else text)
        self._current = current
        return out


def _sequence_change(before: str, sequence: str) -> str:
    """What changes the style that ``before`` sets into that of ``sequence``; empty: the terminal's own style."""
    was, now = _COLORED.fullmatch(before or "\x1b[0;38;;48;m"), _COLORED.fullmatch(sequence)
    if was is None or now is None:
        return sequence
    return f"\x1b[{';'.join(group for group in now.groups() if group not in was.groups())}m"


def escape_sequence(pane: PaintedPane, style: Style, filters: Sequence[LineFilter]) -> str | None:
    """The escape sequence that sets a style, after Textual's filters; None if it cannot be isolated."""
    strip = Strip([Segment(_PROBE, style)])
    background = pane.background_colors[1]
    for filter_ in filters:
        strip = strip.apply_filter(filter_, background)
    head, found, _ = strip.render(pane.app.console).partition(_PROBE)
    if not found:
        return None
    if not head:
        return "\x1b[0m"
    return head.replace("\x1b[", "\x1b[0;", 1) if head.startswith("\x1b[") and head.endswith("m") else None

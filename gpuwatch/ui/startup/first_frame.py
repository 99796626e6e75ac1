"""The first frame of the overview, written as plain escape sequences while Textual is imported.

It consists of the same lines, places and colors as the panes, so nothing moves when Textual takes over.
Processes take longer to read and are added when they are known. This module imports no part of Textual.
"""

from __future__ import annotations

import os
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuwatch.core.formatting.palettes import palette_of
from gpuwatch.core.formatting.terminal_support import SYNC_END, SYNC_START, color_depth, why_only_ascii
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.parsing import parse_integer
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.glyphs import ascii_key_name, to_ascii
from gpuwatch.ui.drawing.line_builder import LineBuilder, visible_rows, with_border
from gpuwatch.ui.drawing.styled_lines import BLANK, Line
from gpuwatch.ui.drawing.text_styles import escape_sequences
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.panes.gpu_grid import gpu_lines, plan_overview
from gpuwatch.ui.panes.key_line import NO_PROCESS_TITLES, gpu_number_title, key_line
from gpuwatch.ui.panes.machine_lines import host_line, top_line
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.tables.gpu_fields import available_fields
from gpuwatch.ui.tables.gpu_loads import sorted_devices, with_devices

_ENTER_ALTERNATE_SCREEN, _LEAVE_ALTERNATE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?1049l\x1b[?25h"
_SURFACE, _BACKGROUND = "surface", "background"
"""Background of the lines: the first and last line have their own."""


def first_frame_lines(
    view: View, preferences: Preferences, width: int, height: int, *, ascii_only: bool, with_processes: bool = False
) -> list[tuple[Line, str]]:
    """Every line of the screen with its background; empty if the terminal is too small.

    ``with_processes``: whether processes have been read.
    """
    if preferences.gpu_order != "index":
        view = with_devices(view, sorted_devices(view.devices, preferences.gpu_order))
    rows = len(view.snapshot.processes) if view.snapshot is not None else 0
    fields = available_fields(preferences.gpu_fields, view.devices)
    layout = plan_overview(view, preferences, width, height, fields, processes=rows)
    if layout.gpus_as == "none" or view.has_problem:
        return []
    top, host = LineBuilder(width), LineBuilder(width)
    top_line(top, view, preferences.tab)
    summary = _summary_line(view, width) if with_processes else BLANK
    lines = [(top.fill_to(width).line(), _SURFACE), (summary, _BACKGROUND)]
    if layout.host:
        host_line(host, view)
        lines.append((host.fill_to(width).line(), _BACKGROUND))
    shown = replace(preferences, gpu_fields=tuple(fields))
    lines += [(line, _BACKGROUND) for line in gpu_lines(view, layout, width, shown)]
    room = height - len(lines) - 1
    titles: Mapping[str, str] = gpu_number_title(view)
    if with_processes and view.snapshot is not None:
        from gpuwatch.ui.panes.process_table_lines import initial_table
        from gpuwatch.ui.tables.process_table_rows import table_rows

        titles = gpu_number_title(view) | ({} if table_rows(view.snapshot) else NO_PROCESS_TITLES)
        table, note = initial_table(view, preferences, width, room, framed=layout.framed)
    else:
        inner = width - 2 * layout.framed
        table = [LineBuilder(inner).fill_to(inner, style="header").line()]
        table.append(Line((("  waiting for the first sample", "dim"),)))
        note = visible_rows(0, max(room - 1, 1), rows) if not layout.framed else ""
        if layout.framed:
            table = with_border(table, width, room, title=[("Processes", "title")], focused=True)
    lines += [(line, _BACKGROUND) for line in table[:room]]
    lines += [(BLANK, _BACKGROUND)] * (height - 1 - len(lines))
    name = ascii_key_name if ascii_only else str
    keys, _ = key_line(width, "processes", preferences.tab, titles=titles, note=(note, False), name=name)
    return [*lines, (keys, _SURFACE)]


def _summary_line(view: View, width: int) -> Line:
    from gpuwatch.ui.panes.overview_summary import draw_summary  # slow to import

    builder = LineBuilder(width)
    draw_summary(builder, view)
    return builder.fill_to(width).line()


def escape_text(
    lines: Sequence[tuple[Line, str]], width: int, styles: Mapping[tuple[str, bool], Mapping[str, str]]
) -> str:
    """The lines as terminal output; ``styles`` by a line's background and whether it is highlighted."""
    out = []
    for y, (line, background) in enumerate(lines, 1):
        out.append(f"\x1b[{y};1H")
        x, last, sets = 0, "", styles[background, line.highlighted]
        for text, style in line.spans:
            if style != last:
                out.append(sets[style])
                last = style
            out.append(text)
            x += width_of(text)
        if x < width:
            out += [sets["text"], " " * (width - x)]
    return "".join(out) + "\x1b[0m\x1b[1;1H"


def screen_size(environment: Mapping[str, str]) -> tuple[int, int]:
    """Columns and rows, determined as Textual does."""
    given = [environment.get(name, "") for name in ("COLUMNS", "LINES")]
    sizes = [parse_integer(text) or 0 for text in given]
    if not all(sizes):
        size = os.get_terminal_size(sys.stdout.fileno())
        sizes = [own or found for own, found in zip(sizes, size, strict=True)]
    return sizes[0], sizes[1]


class FirstFrame:
    """The frame on the terminal before Textual starts; :meth:`hand_over` keeps it."""

    def __init__(self, preferences: Preferences) -> None:
        self._preferences = preferences
        self._before: list[int | list[bytes | int]] | None = None
        self.painted = False

    @property
    def possible(self) -> bool:
        """Whether this terminal, theme and tab can be painted without Textual."""
        own = palette_of(self._preferences.theme) is not None and self._preferences.tab == "overview"
        return own and bool(color_depth(os.environ)) and os.isatty(2)

    @property
    def can_paint_processes(self) -> bool:
        """Whether processes are painted too: a filter or a tree is left to the table widget."""
        return not self._preferences.filter and not self._preferences.tree

    def paint(self, snapshot: Snapshot, *, with_processes: bool = False) -> bool:
        """Paints the devices of a snapshot; False if there is nothing to paint.

        ``with_processes``: whether its processes have been read; then they are painted too.
        """
        palette = palette_of(self._preferences.theme)
        assert palette is not None
        ascii_only = self._preferences.ascii
        if ascii_only is None:
            ascii_only = bool(why_only_ascii(os.environ, sys.stdout.encoding))
        width, height = screen_size(os.environ)
        history = History()
        history.add(snapshot)
        view = View(
            snapshot=snapshot,
            history=history,
            status=FeedStatus("ok", 0.0),
            now=time.time(),
            interval=self._preferences.interval,
            read_only=self._preferences.read_only,
        )
        own = self._preferences
        lines = first_frame_lines(view, own, width, height, ascii_only=ascii_only, with_processes=with_processes)
        if not lines:
            return False
        depth = color_depth(os.environ)
        backgrounds = {(_SURFACE, False), *((background, line.highlighted) for line, background in lines)}
        styles = {key: escape_sequences(palette, key[0], depth, highlighted=key[1]) for key in backgrounds}
        text = escape_text(lines, width, styles)
        if ascii_only:
            text = to_ascii(text)
        if self.painted:
            _write(SYNC_START + text + SYNC_END)
            return True
        self.painted = True  # set first, so that an interruption is undone
        self._disable_echo()
        _write(_ENTER_ALTERNATE_SCREEN + text)
        return True

    def hand_over(self) -> None:
        """Leaves the screen to Textual, which restores the terminal at its end."""
        if self.painted:
            from gpuwatch.ui.startup.terminal_driver import TerminalDriver

            TerminalDriver.has_alternate_screen = True

    def restore_terminal(self) -> None:
        """Restores the terminal, whoever used it last. Safe to call twice."""
        if not self.painted:
            return
        self.painted = False
        terminal = sys.modules.get("gpuwatch.ui.startup.terminal_driver")
        if terminal is None or terminal.TerminalDriver.has_alternate_screen or not terminal.TerminalDriver.started:
            _write(_LEAVE_ALTERNATE_SCREEN)
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSANOW, self._before)

    def _disable_echo(self) -> None:
        """Turns echo off and keeps typed keys for Textual."""
        self._before = termios.tcgetattr(0)
        quiet = termios.tcgetattr(0)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        quiet[6][termios.VMIN] = 1
        quiet[6][termios.VTIME] = 0
        quiet[6][termios.VSUSP] = b"\0"  # Ctrl+Z is disabled until Textual can handle it
        termios.tcsetattr(0, termios.TCSANOW, quiet)


def _write(text: str) -> None:
    data = memoryview(text.encode())
    while data:
        data = data[os.write(2, data) :]  # where Textual writes

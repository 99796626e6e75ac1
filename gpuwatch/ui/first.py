"""The first picture of the overview, painted with plain escape sequences while Textual is imported.

It is made of the very lines that the panes show afterwards, in the same places and colours, so that
Textual takes over without anything moving. The processes take longer to be looked at: they are put into
it when they are known. No part of Textual is imported here.
"""

from __future__ import annotations

import os
import sys
import termios
import time
from collections.abc import Mapping, Sequence

from gpuwatch.formatting.terminal import needs_ascii
from gpuwatch.history.ring import History
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.feed import FeedStatus
from gpuwatch.ui.cells import width_of
from gpuwatch.ui.glyphs import spelled, to_ascii
from gpuwatch.ui.gpu_fields import FIELDS, unavailable
from gpuwatch.ui.inks import depth_of, palette_of, sequences
from gpuwatch.ui.layout import plan, rounded
from gpuwatch.ui.lines import BLANK, Line
from gpuwatch.ui.preferences import Preferences
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.frame import frame, part
from gpuwatch.ui.widgets.gpu_card import others
from gpuwatch.ui.widgets.gpu_grid import gpu_lines
from gpuwatch.ui.widgets.headline import host_line, top_line
from gpuwatch.ui.widgets.keys import key_line
from gpuwatch.ui.widgets.pen import Pen

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?1049l\x1b[?25h"
_SYNC_START, _SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""A terminal that can shows what is between them as one; all others leave them out."""
_STRIP, _PANE = "surface", "background"
"""What lines stand on: the first and the last on a ground of their own."""


def picture(
    view: View, chosen: Preferences, width: int, height: int, *, ascii_only: bool, whole: bool = False
) -> list[tuple[Line, str]]:
    """Every line of the screen with the ground that it stands on; none where there is no room for a picture.

    ``whole``: the processes have been looked at.
    """
    rows = len(view.snapshot.processes) if view.snapshot is not None else 0
    readings = len(others(view.devices[0])) if view.devices else 0
    gpus = len(view.devices)
    instances = [len(device.mig_instances) for device in view.devices]
    wanted = plan(
        width, height, gpus, findings=view.told, processes=rounded(rows), readings=readings, instances=instances
    )
    if wanted.too_small or not view.devices or view.told:
        return []
    top, host = Pen(width), Pen(width)
    top_line(top, view, chosen.tab)
    lines = [(top.to(width).line(), _STRIP)]
    if wanted.host:
        host_line(host, view)
        lines.append((host.to(width).line(), _PANE))
    fields = [name for name in chosen.gpu_fields if name in FIELDS and not unavailable(FIELDS[name], view.devices)]
    lines += [(line, _PANE) for line in gpu_lines(view, wanted, width, fields)]
    room = height - len(lines) - 1
    if whole:
        from gpuwatch.ui.widgets.process_lines import first_table

        table, note = first_table(view, chosen, width, room, framed=wanted.framed)
    else:
        waiting = [Pen(width - 2 * wanted.framed).to(width - 2 * wanted.framed, ink="header").line()]
        waiting.append(Line((("  waiting for the first sample", "dim"),)))
        note = part(0, room - 1, rows) if not wanted.framed else ""  # where it will stand
        table = frame(waiting, width, room, title=[("Processes", "title")], focused=True) if wanted.framed else waiting
    lines += [(line, _PANE) for line in table[:room]]
    lines += [(BLANK, _PANE)] * (height - 1 - len(lines))
    keys, _ = key_line(
        width, "processes", chosen.tab, titles={}, note=(note, False), name=spelled if ascii_only else str
    )
    return [*lines, (keys, _STRIP)]


def escape(lines: Sequence[tuple[Line, str]], width: int, inks: Mapping[tuple[str, bool], Mapping[str, str]]) -> str:
    """The lines as they are written to a terminal; ``inks`` by the ground of a line, and whether it is washed."""
    out = []
    for y, (line, ground) in enumerate(lines, 1):
        out.append(f"\x1b[{y};1H")
        x, last, sets = 0, "", inks[ground, bool(line.wash)]
        for text, ink in line.spans:
            if ink != last:
                out.append(sets[ink])
                last = ink
            out.append(text)
            x += width_of(text)
        if x < width:
            out += [sets["text"], " " * (width - x)]
    return "".join(out) + "\x1b[0m\x1b[1;1H"


def screen_size(environment: Mapping[str, str]) -> tuple[int, int]:
    """Columns and rows, as Textual finds them."""
    given = [environment.get(name, "") for name in ("COLUMNS", "LINES")]
    sizes = [int(text) if text.isdecimal() else 0 for text in given]
    if not all(sizes):
        size = os.get_terminal_size(sys.stdout.fileno())
        sizes = [own or found for own, found in zip(sizes, size, strict=True)]
    return sizes[0], sizes[1]


class Picture:
    """What is on the terminal before Textual is; :meth:`leave` takes it away, :meth:`hand_over` leaves it there."""

    def __init__(self, chosen: Preferences) -> None:
        self._chosen = chosen
        self._before: list[int | list[bytes | int]] | None = None
        self.painted = False

    @property
    def possible(self) -> bool:
        """Whether this terminal, this theme and this tab are among those that can be painted here."""
        own = palette_of(self._chosen.theme) is not None and self._chosen.tab == "overview"
        return own and bool(depth_of(os.environ)) and os.isatty(2)

    @property
    def lists(self) -> bool:
        """Whether processes are shown as they come: a filter or a tree is left to the table itself."""
        return not self._chosen.filter and not self._chosen.tree

    def paint(self, snapshot: Snapshot, *, whole: bool = False) -> bool:
        """Shows the devices of a snapshot; False where there is nothing that can be shown of them.

        ``whole``: its processes have been looked at, and are shown too.
        """
        palette = palette_of(self._chosen.theme)
        assert palette is not None
        ascii_only = self._chosen.ascii
        if ascii_only is None:
            ascii_only = bool(needs_ascii(os.environ, sys.stdout.encoding))
        width, height = screen_size(os.environ)
        at = snapshot.taken_at.timestamp()
        history = History()
        history.add(snapshot)
        view = View(
            snapshot=snapshot,
            history=history,
            status=FeedStatus("ok", 0.0),
            now=time.time(),
            interval=self._chosen.interval,
            read_only=self._chosen.read_only,
            until=at,
        )
        lines = picture(view, self._chosen, width, height, ascii_only=ascii_only, whole=whole)
        if not lines:
            return False
        depth = depth_of(os.environ)
        grounds = {(_STRIP, False), *((ground, bool(line.wash)) for line, ground in lines)}
        inks = {(ground, wash): sequences(palette, ground, depth, wash=wash) for ground, wash in grounds}
        text = escape(lines, width, inks)
        if ascii_only:
            text = to_ascii(text)
        if self.painted:
            _write(_SYNC_START + text + _SYNC_END)
            return True
        self.painted = True  # before it is: whatever ends this in the middle must be undone
        self._quieten()
        _write(_ENTER + text)
        return True

    def hand_over(self) -> None:
        """From now on the terminal is Textual's: it finds the screen as it is, and restores what it found."""
        if self.painted:
            from gpuwatch.ui.terminal import TerminalDriver

            TerminalDriver.has_screen = True

    def leave(self) -> None:
        """Gives the terminal back as it was, whoever had it last. Safe to call twice."""
        if not self.painted:
            return
        self.painted = False
        terminal = sys.modules.get("gpuwatch.ui.terminal")
        if terminal is None or terminal.TerminalDriver.has_screen or not terminal.TerminalDriver.took_screen:
            _write(_LEAVE)
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSANOW, self._before)

    def _quieten(self) -> None:
        """What is typed now is not shown, and is there for Textual to read."""
        self._before = termios.tcgetattr(0)
        quiet = termios.tcgetattr(0)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        quiet[6][termios.VMIN] = 1
        quiet[6][termios.VTIME] = 0
        quiet[6][termios.VSUSP] = b"\0"  # Ctrl+Z waits until somebody can leave the screen for it
        termios.tcsetattr(0, termios.TCSANOW, quiet)


def _write(text: str) -> None:
    data = memoryview(text.encode())
    while data:
        data = data[os.write(2, data) :]  # where Textual writes

"""Asks for a time to go to, in a recording or in the last hour."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from gpuwatch.core.errors import UsageError
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.recording.time_expressions import parse_moment, time_text
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.screens.sheet_bases import SheetScreen, sheet_bindings
from gpuwatch.ui.widgets.painted_pane import PaintedPane


class TimePrompt(SheetScreen[float]):
    """Enter goes there, Esc does not; seconds since the epoch."""

    BINDINGS = sheet_bindings({"escape": "close"})

    def __init__(self, begin: float, end: float) -> None:
        """``begin`` and ``end`` of the recording, in seconds since the epoch."""
        super().__init__()
        self._begin, self._end = begin, end
        self._span = f"{time_text(begin)} to {time_text(end)}"
        self._input = Input(placeholder="14:05  '20 min ago'  -2h  yesterday 14:05  2026-05-11T14:05", compact=True)
        self._note = PaintedPane()
        self._entered = False

    def compose(self) -> ComposeResult:
        with Vertical(id="time-prompt") as box:
            box.border_title = "Go to a time"
            box.border_subtitle = "Enter Go  Esc Cancel"
            yield self._input
            yield self._note

    def on_mount(self) -> None:
        self._say(f"samples: {self._span}", "dim")
        self._input.focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """From now on the input receives keys itself."""
        self._entered = True

    def on_key(self, event: events.Key) -> None:
        """Keys that were typed before the input had the focus."""
        if not self._entered and event.is_printable and event.character:
            event.stop()
            self._input.insert_text_at_cursor(event.character)

    def _say(self, text: str, style: str) -> None:
        self._note.paint((Line(((text, style),)),))

    @on(Input.Submitted)
    def _typed(self) -> None:
        text = self._input.value.strip().strip("'\"")
        if not text:
            self.dismiss(None)
            return
        try:
            wanted = parse_moment(text, self._end)
        except UsageError as error:
            self._say(f"✖ {printable(error.message)}", "error")
            return
        if not self._begin - 1 <= wanted <= self._end + 1:
            self._say(f"✖ {time_text(wanted)} is not in it: {self._span}", "error")
            return
        self.dismiss(wanted)

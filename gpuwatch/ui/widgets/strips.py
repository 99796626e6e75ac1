"""One-line panes: the top line, the answer line, the host line, a terminal that is too small."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from gpuwatch.session.view import View
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.panes.answer_line import Part, Place, answer_line
from gpuwatch.ui.panes.headline import host_line, top_line
from gpuwatch.ui.panes.tiny import tiny_lines
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.paint import JumpRow, Painted


class Strip(Painted):
    """A one-line pane drawn from the view."""

    DEFAULT_CLASSES = "strip"
    WASHED = True
    """Whether the line is highlighted while focused."""
    _view: View | None = None

    def show(self, view: View) -> None:
        self._view = view
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        if self._view is not None:
            pen = Pen(width)
            stale = self.draw(pen, self._view)
            washed = self.has_focus and self.WASHED
            self.paint((pen.to(pen.limit).line("cursor" if washed else ""),), stale=stale)

    def draw(self, pen: Pen, view: View) -> bool:
        """Draws the line; returns whether its data are stale."""
        raise NotImplementedError


class TopLine(Strip):
    """Tabs, host, driver, verdict and clock."""

    class TabChosen(Message):
        """A click on the name of a tab."""

        def __init__(self, tab_id: str) -> None:
            super().__init__()
            self.tab_id = tab_id

    def __init__(self, tab: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tab = tab
        self._places: list[tuple[int, int, str]] = []

    @property
    def tab_places(self) -> list[tuple[int, str, str]]:
        """For each tab on screen: where its number is or its name begins, its number key and its id."""
        numbers = {tab.id: str(number) for number, tab in enumerate(TABS, 1)}
        first = {tab_id: start for start, _, tab_id in reversed(self._places)}
        line = self.plain
        return [
            (start + (line[start + 1 : start + 2] == number), number, tab_id)
            for tab_id, number in numbers.items()
            if (start := first.get(tab_id)) is not None
        ]

    def on_click(self, event: events.Click) -> None:
        """A click on a tab name opens the tab, one on the verdict opens Findings."""
        for start, end, tab_id in self._places:
            if start <= event.x < end:
                self.post_message(self.TabChosen(tab_id))

    def draw(self, pen: Pen, view: View) -> bool:
        self._places = top_line(pen, view, self._tab)
        return False


class HostStrip(Strip):
    """CPU, memory and load of the host."""

    def draw(self, pen: Pen, view: View) -> bool:
        return host_line(pen, view)


class AnswerStrip(Strip, can_focus=True):
    """Which GPUs are free, who holds memory idle, what is wrong: each is a place to go to."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("answer")

    class Opened(Message):
        """Enter on a part, or a click."""

        def __init__(self, part: Part) -> None:
            super().__init__()
            self.part = part

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._places: list[Place] = []
        self._chosen = ""

    def draw(self, pen: Pen, view: View) -> bool:
        self._places = answer_line(pen, view, self.chosen if self.has_focus else "")
        return view.stale

    @property
    def chosen(self) -> str:
        """The part under the cursor; at first the last one, which is what is wrong if anything is."""
        ids = [part.id for *_, part in self._places]
        return self._chosen if self._chosen in ids else ids[-1] if ids else ""

    def move(self, step: int) -> None:
        ids = [part.id for *_, part in self._places]
        if ids:
            self._chosen = ids[min(max(ids.index(self.chosen) + step, 0), len(ids) - 1)]
            self.redraw()

    def open(self) -> None:
        for *_, part in self._places:
            if part.id == self.chosen:
                self.post_message(self.Opened(part))

    def on_click(self, event: events.Click) -> None:
        for start, end, part in self._places:
            if start <= event.x < end:
                self._chosen = part.id
                self.post_message(self.Opened(part))

    def jump_rows(self) -> list[JumpRow]:
        return [(start, 0, partial(self._jump, part)) for start, _, part in self._places]

    def _jump(self, part: Part, opens: bool) -> None:
        self._chosen = part.id
        self.redraw()
        if opens:
            self.post_message(self.Opened(part))


class TooSmall(Painted):
    """On a terminal that is too small for the dashboard: GPUs, what is wrong, and the required size."""

    _view: View | None = None

    def show(self, view: View) -> None:
        """Draws ``view``, while it is on the screen."""
        self._view = view
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        if self._view is not None:
            self.paint(tiny_lines(self._view, width, height), stale=self._view.stale)

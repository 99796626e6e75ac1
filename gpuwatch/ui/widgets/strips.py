"""One-line panes: the top line, the host line, the most important finding, a terminal that is too small."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from gpuwatch.core.formatting.text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.cells import width_of
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.drawing.wrapping import shortened
from gpuwatch.ui.panes.headline import host_line, top_line
from gpuwatch.ui.panes.tiny import tiny_lines
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.paint import Painted


class Strip(Painted):
    """A one-line pane drawn from the view."""

    DEFAULT_CLASSES = "strip"
    WASHED = True
    """Whether the line is highlighted while focused."""
    _view: View | None = None

    def show(self, view: View) -> None:
        """Draws ``view``."""
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
        """See :func:`top_line`."""
        self._places = top_line(pen, view, self._tab)
        return False


class HostStrip(Strip):
    """CPU, memory and load of the host."""

    def draw(self, pen: Pen, view: View) -> bool:
        """See :func:`host_line`."""
        return host_line(pen, view)


class FindingStrip(Strip, can_focus=True):
    """The most important finding; hidden if there is none."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("finding")

    class Opened(Message):
        """Enter or a click: show the evidence."""

    def draw(self, pen: Pen, view: View) -> bool:
        """The finding's title, then its action; the count at the right."""
        snapshot = view.snapshot
        if snapshot is None or not view.has_problem:
            return False
        if view.wrong:
            finding, count = view.wrong[0], len(view.wrong)
            bad, title, action = finding.severity == "error", finding.title, finding.action
            title += " (likely)" if finding.certainty == "likely" else ""
            device = snapshot.device(finding.device_uuid)
        else:
            problem, count = snapshot.problems[0], len(snapshot.problems)
            bad, title, action, device = False, problem.detail, problem.hint, None
        ink = "error" if bad else "warning"
        more = f" 1 of {count}  " if count > 1 else " "
        label = f"GPU {device.index}  " if device is not None and f"GPU {device.index}" not in title else ""
        need = len(" ▲ ") + len(label) + width_of(printable(title))
        why = " why " if need + len(more) + len("[f] why ") <= pen.limit else " "
        room = pen.limit - len(more) - len("[f]") - len(why)
        pen.add(" ✖ " if bad else " ▲ ", ink)
        pen.add(label, "strong")
        text = Pen(room - pen.x)
        whole = printable(title)
        shown = shortened(whole, text.left)
        text.add(shown, "text")
        if action and shown == whole and text.left > 12:
            text.add("  → ", ink).add(printable(action), "dim")
        pen.write(text.spans)
        pen.to(room).add(more, "dim").add("[f]", "key").add(why, "dim")
        return False

    def on_click(self, event: events.Click) -> None:
        """A click anywhere on the line opens the evidence."""
        self.post_message(self.Opened())


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

"""The one-line panes: the top line, the host, the finding that matters most."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from gpuwatch.formatting.text import printable
from gpuwatch.ui.actions import bindings
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.headline import host_line, top_line
from gpuwatch.ui.widgets.paint import Painted
from gpuwatch.ui.widgets.pen import Pen


class Strip(Painted):
    """One line that follows the view and its own width."""

    DEFAULT_CLASSES = "strip"
    WASHED = True
    """Whether the line looks like a chosen row while it has the focus."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view: View | None = None

    def show(self, view: View) -> None:
        """Draws what ``view`` says."""
        self._view = view
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Folds with the width."""
        self._redraw()

    def _redraw(self) -> None:
        if self._view is not None and self.size.width:
            pen = Pen(self.size.width)
            stale = self.draw(pen, self._view)
            washed = self.has_focus and self.WASHED
            self.paint((pen.to(pen.limit).line("cursor" if washed else ""),), stale=stale)

    def watch_has_focus(self, focused: bool) -> None:
        """A line that has the focus looks like a chosen row."""
        super().watch_has_focus(focused)
        self._redraw()

    def draw(self, pen: Pen, view: View) -> bool:
        """Writes the line; True when its data are stale."""
        raise NotImplementedError


class TopLine(Strip):
    """The tabs, who, what, whether anything is wrong, and when."""

    class TabChosen(Message):
        """A click on the name of a tab."""

        def __init__(self, tab_id: str) -> None:
            super().__init__()
            self.tab_id = tab_id

    def __init__(self, tab: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tab = tab
        self._places: list[tuple[int, int, str]] = []

    def on_click(self, event: events.Click) -> None:
        """The names of the tabs can be clicked, and so can what is said of how things are: that is in Findings."""
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
    """The finding that matters most; gone when there is none."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("finding")

    class Opened(Message):
        """Enter or a click: the evidence is wanted."""

    def draw(self, pen: Pen, view: View) -> bool:
        """Cause first, then what to do; the count at the right."""
        snapshot = view.snapshot
        if snapshot is None or not view.told:
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
        room = pen.limit - len(more) - len("[f] why ")
        pen.add(" ✖ " if bad else " ▲ ", ink)
        if device is not None and f"GPU {device.index}" not in title:
            pen.add(f"GPU {device.index}  ", "strong")
        said = Pen(room - pen.x)
        said.add(printable(title), "text")
        if action and said.left > 12:
            said.add("  → ", ink).add(printable(action), "dim")
        pen.spans += said.spans
        pen.x += said.x
        pen.to(room).add(more, "dim").add("[f]", "key").add(" why ", "dim")
        return False

    def on_click(self, event: events.Click) -> None:
        """A click anywhere on the line opens it."""
        self.post_message(self.Opened())

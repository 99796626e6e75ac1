"""The Events tab: what happened, also while nobody looked; the newest first."""

from __future__ import annotations

import datetime
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult

from gpuwatch.history.events import CAPACITY, Happened, ago
from gpuwatch.ui.actions import bindings
from gpuwatch.ui.cells import cut
from gpuwatch.ui.gpu_facts import MARKS
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.listed import Listed
from gpuwatch.ui.widgets.paint import Line
from gpuwatch.ui.widgets.pen import Pen
from gpuwatch.ui.widgets.too_small import TooSmall


class EventList(Listed):
    """One line each; the cursor stays with its event while new ones come above it."""

    BINDINGS = bindings("happened")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Events", cursor=True, id=id)
        self._events: list[Happened] = []
        self._view: View | None = None
        self._new = 0
        self._drawn: dict[tuple[Happened, bool], Line] = {}
        """Lines by event; an event never changes."""
        self._drawn_for: tuple[int, datetime.date] | None = None

    @property
    def chosen(self) -> Happened | None:
        """The event under the cursor."""
        return self._events[self.cursor or 0] if self._events else None

    def show(self, view: View, new: int) -> None:
        """``new`` of them were not seen before this tab was looked at."""
        before = self.chosen if self.cursor else None
        self._view, self._new = view, new
        self._events = list(reversed(view.events))
        if before is not None:
            self.cursor = next((n for n, one in enumerate(self._events) if one is before), 0)
        self.refill()

    def refill(self) -> None:
        """Texts are cut to the width."""
        view = self._view
        if view is None:
            return
        self.note = f" {len(self._events)} " if self._events else ""
        if len(self._events) >= CAPACITY:
            self.note = f" the last {len(self._events)} "
        form = (self.inner, datetime.datetime.fromtimestamp(view.now).date())
        if form != self._drawn_for or len(self._drawn) > 4 * CAPACITY:
            self._drawn_for, self._drawn = form, {}
        lines = []
        for number, one in enumerate(self._events):
            key = (one, number < self._new)
            if key not in self._drawn:
                self._drawn[key] = self._line(one, view, fresh=key[1])
            lines.append(self._drawn[key])
        self.set_lines(lines or _nothing(view, self.inner), stale=view.stale)

    def marked(self, line: Line) -> Line:
        """No cursor on the line that says that there is nothing."""
        return super().marked(line) if self._events else line

    def _line(self, one: Happened, view: View, *, fresh: bool) -> Line:
        pen = Pen(self.inner)
        moment = datetime.datetime.fromtimestamp(one.at)
        today = moment.date() == datetime.datetime.fromtimestamp(view.now).date()
        pen.add("  ").add(moment.strftime("%H:%M:%S" if today else "%m-%d %H:%M:%S"), "strong" if fresh else "dim")
        glyph, ink = MARKS[one.severity]
        pen.add(f"  {glyph} ", ink)
        end = f"  {one.kind} · {one.certainty} "
        wide = self.inner >= 100
        pen.add(cut(one.text, pen.left - len(end) if wide else pen.left), "strong" if fresh else "text")
        if wide:
            pen.to(pen.limit - len(end)).add(end, "dim")
        return pen.line()


_TOLD = (
    "What is told here, also of the time in which nobody looked: processes that come and go, memory that fills "
    "or is given back, clocks that are held down, GPUs that are lost and come back, errors that a GPU counts, "
    "a driver or a collector that does not answer."
)


def _nothing(view: View, width: int) -> list[Line]:
    if view.waiting:
        return [Line((("  ◌ ", "dim"), ("waiting for the driver's first answer", "dim")))]
    lines = [Line((("  ● ", "ok"), ("Nothing has happened since gpuwatch began to watch.", "text"))), Line(())]
    return lines + [Line((("    ", "text"), (part, "dim"))) for part in wrap(_TOLD, max(min(width - 6, 90), 20))]


class EventsScreen(TabScreen):
    """One list."""

    AUTO_FOCUS = "#happened"
    TAB = "events"
    PANES: ClassVar[dict[str, str]] = {"happened": "happened"}

    def __init__(self) -> None:
        super().__init__()
        self.happened = EventList(id="happened")
        self._new = 0
        self._count = 0

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.top_line
        yield self.happened
        yield self.keys
        yield TooSmall(id="too-small")

    def on_screen_resume(self) -> None:
        """What came since the last look stands out during this one."""
        self._new = min(self.gpuwatch.unseen, CAPACITY)
        self._count = self.gpuwatch.watcher.count
        self.gpuwatch.see_events()
        super().on_screen_resume()

    def draw(self, view: View) -> None:
        """While it is looked at, everything is seen."""
        width, height = self.app.size
        self.happened.framed = width >= 100 and height >= 30
        count = self.gpuwatch.watcher.count if view.paused_since is None else self._count
        self.gpuwatch.see_events()
        self.happened.show(view, self._new + count - self._count)

    def action_move(self, where: str) -> None:
        """The cursor."""
        self.happened.move(where)

    async def action_look_then(self) -> None:
        """The overview, as the machine was then."""
        one = self.happened.chosen
        if one is not None:
            self.gpuwatch.look_at(lambda past: past.go(one.at))
            await self.go("overview")

    def action_open_event(self) -> None:
        """The whole event, where the line is cut."""
        one = self.happened.chosen
        if one is None:
            return
        glyph, ink = MARKS[one.severity]
        moment = datetime.datetime.fromtimestamp(one.at).strftime("%Y-%m-%d %H:%M:%S")
        since = ago(self.gpuwatch.clock() - one.at)
        lines = [[(f"{glyph} ", ink), (one.text, "strong")], [(f"  {moment}, {since}", "text")]]
        lines.append([(f"  {one.kind} · {one.certainty}", "dim")])
        if one.device_uuid is not None:
            lines.append([(f"  {one.device_uuid}", "dim")])
        self.open_sheet("Event", lines)

"""Panes of one line: their base, the top line, the summary, the keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from textual import events

from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.panes.machine_lines import top_line
from gpuwatch.ui.panes.overview_summary import PlacedItem, SummaryItem, draw_summary
from gpuwatch.ui.settings.actions import Action, bindings
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.widgets.painted_pane import JumpTarget, PaintedPane


class OneLinePane(PaintedPane):
    """A one-line pane drawn from the view."""

    _view: View | None = None

    def __init__(
        self, fill: Callable[[LineBuilder, View], bool | None] | None = None, *, id: str | None = None
    ) -> None:
        """``fill``: draws the line, and returns whether its data are stale; None if a subclass draws by itself."""
        super().__init__(id=id)
        self._fill = fill

    def show(self, view: View) -> None:
        self._view = view
        self.redraw()

    def _draw(self, width: int, height: int) -> None:
        if self._view is not None and self._fill is not None:
            builder = LineBuilder(width)
            stale = bool(self._fill(builder, self._view))
            self.paint((builder.fill_to(builder.width).line(self.has_focus),), stale=stale)


class TopLine(OneLinePane):
    """Tabs, host, driver, verdict and clock."""

    def __init__(self, tab: str, *, id: str | None = None) -> None:
        super().__init__(self._fill_line, id=id)
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
                self.screen.call_next(self.screen.run_action, f"show_tab('{tab_id}')")

    def _fill_line(self, builder: LineBuilder, view: View) -> None:
        self._places = top_line(builder, view, self._tab)


class SummaryLine(OneLinePane, can_focus=True):
    """Which GPUs are free, who holds memory idle, what is wrong: each is a place to go to."""

    BINDINGS = bindings("summary")

    _places: Sequence[PlacedItem] = ()
    _chosen = ""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(self._fill_line, id=id)

    def _fill_line(self, builder: LineBuilder, view: View) -> bool:
        chosen = self.item_under_cursor if self.has_focus else None
        self._places = draw_summary(builder, view, chosen.id if chosen is not None else "")
        return view.stale

    @property
    def item_under_cursor(self) -> SummaryItem | None:
        """The item under the cursor; at first the last one, which is what is wrong if anything is."""
        items = [item for *_, item in self._places]
        return next((item for item in items if item.id == self._chosen), items[-1] if items else None)

    def move(self, step: int) -> None:
        items = [item for *_, item in self._places]
        if self.item_under_cursor is not None:
            self._jump(items[min(max(items.index(self.item_under_cursor) + step, 0), len(items) - 1)], False)

    def on_click(self, event: events.Click) -> None:
        for start, end, item in self._places:
            if start <= event.x < end:
                self._jump(item, True)

    def jump_targets(self) -> list[JumpTarget]:
        return [(start, 0, partial(self._jump, item)) for start, _, item in self._places]

    def _jump(self, item: SummaryItem, opens: bool) -> None:
        self._chosen = item.id
        self.redraw()
        if opens:
            self.choose()


class KeyLine(PaintedPane):
    """Keys with their titles; each can be clicked."""

    _line: Callable[[int], tuple[Line, list[tuple[int, int, Action]]]] | None = None
    _places: Sequence[tuple[int, int, Action]] = ()

    def show(self, line: Callable[[int], tuple[Line, list[tuple[int, int, Action]]]]) -> None:
        """``line``: :func:`key_line` of a width."""
        self._line = line
        self.redraw()

    async def on_click(self, event: events.Click) -> None:
        for start, end, action in self._places:
            if start <= event.x < end:
                await self.app.run_action(action.run or f"screen.{action.id}")

    def _draw(self, width: int, height: int) -> None:
        if self._line is not None:
            line, self._places = self._line(width)
            self.paint((line,))

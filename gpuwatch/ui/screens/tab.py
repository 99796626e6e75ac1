"""The base of the tabs' screens: top line, footer, and the actions that work on each of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.screen import Screen

from gpuwatch.ui.actions import bindings
from gpuwatch.ui.layout import MIN_HEIGHT, MIN_WIDTH
from gpuwatch.ui.messages import LabChanged
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.footer import KeyLine
from gpuwatch.ui.widgets.strips import TopLine

if TYPE_CHECKING:
    from gpuwatch.ui.app import GpuwatchApp

_SAID_SECONDS = 8.0


class TabScreen(Screen[None]):
    """One tab. Only the visible one is given views; a tab that returns gets the newest at once."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("everywhere")
    TAB: ClassVar[str] = ""
    PANES: ClassVar[dict[str, str]] = {}
    """Widget id to the name that the table of actions has for the pane."""

    def __init__(self) -> None:
        super().__init__(id=self.TAB)
        self._view: View | None = None
        self._said = ("", "text", 0.0)
        self.top_line = TopLine(self.TAB, id="top")
        self.keys = KeyLine(self.TAB, id="keys")

    @property
    def gpuwatch(self) -> GpuwatchApp:
        """The app, with its type."""
        from gpuwatch.ui.app import GpuwatchApp

        assert isinstance(self.app, GpuwatchApp)
        return self.app

    # Showing

    def show(self, view: View) -> None:
        """Draws all panes from ``view``."""
        self._view = view
        size = self.app.size
        self.set_class(size.width < MIN_WIDTH or size.height < MIN_HEIGHT, "-too-small")
        self.top_line.show(view)
        self.draw(view)
        self.show_keys()

    def show_status(self, view: View) -> None:
        """Draws only what follows the clock."""
        self._view = view
        self.top_line.show(view)

    def draw(self, view: View) -> None:
        """The tab's own panes."""
        raise NotImplementedError

    def on_screen_resume(self) -> None:
        """What happened while another tab was looked at is shown now."""
        self.show(self.gpuwatch.current())

    def on_resize(self, event: events.Resize) -> None:
        """Another size, another plan."""
        if self._view is not None:
            self.show(self._view)

    async def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The footer shows the keys of the focused pane."""
        self.show_keys()

    def show_keys(self, note: tuple[str, bool] = ("", False)) -> None:
        """The footer, for the focused pane."""
        self.keys.show(self.focused_pane, titles=self.titles(), note=note, said=self.said)

    @property
    def said(self) -> tuple[str, str]:
        """What was done, and its ink, for some seconds."""
        text, ink, since = self._said
        return (text, ink) if text and time.monotonic() - since < _SAID_SECONDS else ("", "text")

    def say(self, text: str, ink: str) -> None:
        """Says in the last line what became of an action."""
        self._said = (text, ink, time.monotonic())
        self.show_keys()
        self.set_timer(_SAID_SECONDS + 0.1, self.show_keys)

    def titles(self) -> dict[str, str]:
        """What actions are called now, where that is not what the table says."""
        paused = self._view is not None and self._view.paused_since is not None
        return {"pause": "resume"} if paused else {}

    @property
    def focused_pane(self) -> str:
        """Which pane has the focus, as the table of actions names it."""
        focused = self.focused
        return self.PANES.get(focused.id or "", "") if focused is not None else ""

    def lab_changed(self, message: LabChanged) -> None:
        """Something happened to the probes or their runs."""

    # Actions of every tab

    async def action_show_tab(self, tab_id: str) -> None:
        """To another tab."""
        await self.go(tab_id)

    async def go(self, tab_id: str) -> None:
        """Leaves for another tab."""
        await self.gpuwatch.show_tab(tab_id)

    @on(TopLine.TabChosen)
    async def _tab_clicked(self, event: TopLine.TabChosen) -> None:
        await self.go(event.tab_id)

    def action_move(self, where: str) -> None:
        """Arrows, pages, ends: in the focused pane."""

    def action_help(self) -> None:
        """All keys, by pane."""
        from gpuwatch.ui.screens.help import help_lines

        self.open_sheet("Keys", help_lines(self.TAB))

    def open_sheet(self, title: str, lines: list[list[tuple[str, str]]]) -> None:
        """Lines over the screen."""
        from gpuwatch.ui.screens.lines_modal import LinesModal

        self.app.push_screen(LinesModal(title, lines))

    def action_pause(self) -> None:
        """Freezes and thaws the display."""
        self.gpuwatch.toggle_pause()

    def action_faster(self) -> None:
        """A shorter interval."""
        self.gpuwatch.change_interval(-1)

    def action_slower(self) -> None:
        """A longer interval."""
        self.gpuwatch.change_interval(1)

    def action_quit(self) -> None:
        """Leaves."""
        self.app.exit()

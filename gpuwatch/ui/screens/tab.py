"""The base of the tabs' screens: top line, footer, and the actions that work on each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.binding import BindingType
from textual.screen import Screen
from textual.widget import Widget

from gpuwatch.ui.actions import bindings
from gpuwatch.ui.layout import MIN_HEIGHT, MIN_WIDTH
from gpuwatch.ui.messages import LabChanged
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.footer import KeyLine
from gpuwatch.ui.widgets.strips import TopLine

if TYPE_CHECKING:
    from gpuwatch.ui.app import GpuwatchApp
    from gpuwatch.ui.past import Past
    from gpuwatch.ui.widgets.timeline import TimelineStrip

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
        self.timeline: TimelineStrip | None = None
        """The line of a pause; made when there is the first one."""
        self._before_pause: Widget | None = None

    @property
    def gpuwatch(self) -> GpuwatchApp:
        """The app, with its type."""
        from gpuwatch.ui.app import GpuwatchApp

        assert isinstance(self.app, GpuwatchApp)
        return self.app

    # Showing

    def show(self, view: View) -> None:
        """Draws all panes from ``view``."""
        self._view = view = view.whole()
        size = self.app.size
        self.set_class(size.width < MIN_WIDTH or size.height < MIN_HEIGHT, "-too-small")
        self.top_line.show(view)
        self._show_timeline(view)
        self.draw(view)
        self.show_keys()

    def age(self, view: View) -> None:
        """Draws a sample in which processes differ from the one before in their run times alone; it may be ageless."""
        self.show(view.whole())

    def show_status(self, view: View) -> None:
        """Draws only what follows the clock."""
        self._view = view
        self.top_line.show(view)
        self._show_timeline(view)

    def _show_timeline(self, view: View) -> None:
        paused = view.paused_since is not None
        if paused and self.timeline is None:
            from gpuwatch.ui.widgets.timeline import TimelineStrip

            self.timeline = TimelineStrip(id="timeline")
            self.mount(self.timeline, after=self.top_line)
        if self.timeline is not None:
            if not paused:  # perhaps ended on another tab
                self._leave_timeline()
            self.timeline.display = paused and not self.has_class("-too-small")
            if paused:
                self.timeline.show(view)

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
        text, ink, until = self._said
        return (text, ink) if text and time.monotonic() < until else ("", "text")

    def say(self, text: str, ink: str) -> None:
        """Says in the last line what became of an action."""
        self.tell(text, ink, _SAID_SECONDS)

    def tell(self, text: str, ink: str, seconds: float) -> None:
        """Says something in the last line for so long."""
        self._said = (text, ink, time.monotonic() + seconds)
        self.show_keys()
        self.set_timer(seconds + 0.1, self.show_keys)

    def titles(self) -> dict[str, str]:
        """What actions are called now, where that is not what the table says."""
        paused = self._view is not None and self._view.paused_since is not None
        return {"pause": "resume"} if paused else {}

    @property
    def focused_pane(self) -> str:
        """Which pane has the focus, as the table of actions names it."""
        focused = self.focused
        if focused is not None and focused is self.timeline:
            return "timeline"
        return self.PANES.get(focused.id or "", "") if focused is not None else ""

    def lab_changed(self, message: LabChanged) -> None:
        """Something happened to the probes or their runs."""

    # Actions of every tab

    async def action_show_tab(self, tab_id: str) -> None:
        """To another tab."""
        await self.go(tab_id)

    async def action_back(self) -> None:
        """To the tab from which this one was opened."""
        await self.gpuwatch.go_back()

    async def go(self, tab_id: str) -> None:
        """Leaves for another tab."""
        await self.gpuwatch.show_tab(tab_id)

    @on(TopLine.TabChosen)
    async def _tab_clicked(self, event: TopLine.TabChosen) -> None:
        await self.go(event.tab_id)

    def action_move(self, where: str) -> None:
        """Arrows, pages, ends: in the focused pane."""

    def action_no_signal(self) -> None:
        """A tab without processes: ``k`` is the row above."""
        self.action_move("up")

    def action_help(self) -> None:
        """All keys, by pane."""
        from gpuwatch.ui.screens.help import help_lines

        self.open_sheet("Keys", help_lines(self.TAB, self.gpuwatch.key_name))

    def action_save_settings(self) -> None:
        """Into the settings file, or a sheet that says why not."""
        from gpuwatch.ui.screens.settings_sheet import save_settings

        save_settings(self)

    def open_sheet(self, title: str, lines: list[list[tuple[str, str]]]) -> None:
        """Lines over the screen."""
        from gpuwatch.ui.screens.lines_modal import LinesModal

        self.app.push_screen(LinesModal(title, lines))

    def action_pause(self) -> None:
        """Freezes the display, so that the past can be looked at; thaws it."""
        self.gpuwatch.toggle_pause()
        self._focus_timeline()

    def action_past(self, samples: int) -> None:
        """So many samples on, or back."""
        self._look(lambda past: past.step(samples))

    def action_past_seconds(self, seconds: int) -> None:
        """So many seconds on, or back."""
        self._look(lambda past: past.jump(seconds))

    def action_past_end(self, newest: bool) -> None:
        """To the newest sample that is kept, or to the oldest."""
        self._look(lambda past: past.last() if newest else past.first())

    def on_timeline_strip_wanted(self, event: TimelineStrip.Wanted) -> None:
        """A click on the track goes to that moment."""
        self._look(lambda past: past.go(event.moment))

    def _look(self, move: Callable[[Past], None]) -> None:
        began = not self.gpuwatch.paused
        self.gpuwatch.look_at(move)
        if began and self.gpuwatch.paused:
            self._focus_timeline()

    def _focus_timeline(self) -> None:
        """Arrows move in time while paused."""
        strip = self.timeline
        if strip is not None and self.gpuwatch.paused:
            self._before_pause = self.focused if self.focused is not strip else self._before_pause
            strip.focus()

    def _leave_timeline(self) -> None:
        """The pane that had the focus has it again, before Textual gives it to whichever is next."""
        before, self._before_pause = self._before_pause, None
        if before is not None and (self.focused is self.timeline or self.focused is None):
            before.focus()

    def action_faster(self) -> None:
        """A shorter interval."""
        self.gpuwatch.change_interval(-1)

    def action_slower(self) -> None:
        """A longer interval."""
        self.gpuwatch.change_interval(1)

    def action_quit(self) -> None:
        """Leaves."""
        self.app.exit()

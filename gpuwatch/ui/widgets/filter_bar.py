"""The line that a filter is typed into; made when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events, on
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Input

from gpuwatch.ui.cells import right, width_of
from gpuwatch.ui.choices import ChoosingApp
from gpuwatch.ui.widgets.paint import Line, Painted

if TYPE_CHECKING:
    from gpuwatch.ui.screens.overview import OverviewScreen


_NOTE = 44


class FilterBar(Widget):
    """``/ text            3 of 5``."""

    def __init__(self, text: str) -> None:
        super().__init__(id="filter-bar")
        self._input = Input(text, placeholder="words  user:alice  gpu:1  mem>2GiB  -xorg", compact=True, id="filter")
        self._note = Painted(id="filter-note")
        self._mark = Painted(id="filter-mark")
        self._wrong = False
        self.was_entered = False
        """Whether the focus has reached the input."""

    def compose(self) -> ComposeResult:
        """Mark, text, how many match."""
        yield self._mark
        yield self._input
        yield self._note

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """From now on keys come by themselves."""
        self.was_entered = True

    async def take(self, event: events.Key) -> bool:
        """A key that was meant for the input and reached the screen; False when it is none of its keys."""
        if event.key == "escape":
            await self._overview.filter_done(keep=False)
        elif event.key == "enter":
            await self._kept()
        elif event.key == "backspace":
            self._input.action_delete_left()
        elif event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)
        else:
            return False
        return True

    def on_mount(self) -> None:
        """Typing starts at once."""
        self._mark.paint((Line(((" / ", "key"),)),))
        self._input.focus()

    def focus_input(self) -> None:
        """Typing goes on."""
        self._input.focus()

    def say(self, counts: tuple[int, int], wrong: str = "") -> None:
        """How many rows match, or why what was typed means nothing."""
        self._wrong = bool(wrong)
        if wrong:
            room = min(max(width_of(wrong) + 4, _NOTE), max(self.app.size.width - 24, _NOTE))
            self._note.styles.width = room
            self._note.paint((Line(((right(f"✖ {wrong} ", room), "error"),)),))
            return
        text = f"{counts[0]} of {counts[1]}"
        app = self.app
        keys = f"  {app.key_name('↵') if isinstance(app, ChoosingApp) else '↵'} keep  Esc clear "
        self._note.styles.width = _NOTE
        self._note.paint((Line(((text.rjust(_NOTE - len(keys)), "text"), (keys, "dim"))),))

    def recount(self, counts: tuple[int, int]) -> None:
        """A sample came: an error stays until the text is changed."""
        if not self._wrong:
            self.say(counts)

    @property
    def _overview(self) -> OverviewScreen:
        return cast("OverviewScreen", self.screen)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._overview.filter_typed(event.value)

    @on(Input.Submitted)
    async def _kept(self) -> None:
        if not self._wrong:
            await self._overview.filter_done(keep=True)

    async def on_key(self, event: events.Key) -> None:
        """Esc clears; the arrows go back to the table and keep the filter, as Enter does."""
        if event.key == "escape":
            event.stop()
            await self._overview.filter_done(keep=False)
        elif event.key in ("down", "up"):
            event.stop()
            await self._kept()

"""The input lines for a filter and for the name of a probe; created on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from textual import events, on
from textual.app import ComposeResult
from textual.widget import Widget
from textual.widgets import Input

from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import align_right, cut_to_width, width_of
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from gpuwatch.ui.widgets.preferences_app import key_name

if TYPE_CHECKING:
    from gpuwatch.ui.screens.filterable_tab import FilterBarScreen
    from gpuwatch.ui.screens.probes import ProbesScreen

NOTE_CELLS = 44


class FilterBar(Widget):
    """``/ text            3 of 5``."""

    def __init__(self, text: str, examples: str) -> None:
        super().__init__()  # without an id: the one before may still be on its way out
        self._input = Input(text, placeholder=examples, compact=True, id="filter")
        self._note = PaintedPane(id="filter-note")
        self._mark = PaintedPane(id="filter-mark")
        self._wrong = False
        self.had_focus = False
        """Whether the input has had the focus."""

    def compose(self) -> ComposeResult:
        yield self._mark
        yield self._input
        yield self._note

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.had_focus = True

    async def take_key(self, event: events.Key) -> bool:
        """Handles a key meant for the input that reached the screen; False if it is not one of its keys."""
        if event.key == "escape":
            await self._tab.filter_done(keep=False)
        elif event.key == "enter":
            await self.enter_pressed()
        elif event.key == "backspace":
            self._input.action_delete_left()
        elif event.is_printable and event.character:
            self._input.insert_text_at_cursor(event.character)
        else:
            return False
        return True

    def on_mount(self) -> None:
        self._mark.paint((Line(((" / ", "key"),)),))
        self._input.focus()

    def focus_input(self) -> None:
        self._input.focus()

    def say(self, counts: tuple[int, int], wrong: str = "") -> None:
        """Shows how many rows match, or why the text is invalid."""
        self._wrong = bool(wrong)
        if wrong:
            room = min(max(width_of(wrong) + 4, NOTE_CELLS), max(self.app.size.width - 24, NOTE_CELLS))
            self._note.styles.width = room
            self._note.paint((Line(((align_right(f"✖ {wrong} ", room), "error"),)),))
            return
        signals = "  F9 signal" if self._can_signal else ""
        self.note(f"{counts[0]} of {counts[1]}", f"  {key_name(self, '↵')} keep{signals}  Esc clear ")

    def note(self, text: str, keys: str, room: int = NOTE_CELLS) -> None:
        """Shows a text and what keys do, at the right end of ``room`` cells."""
        self._note.styles.width = room
        self._note.paint((Line(((text.rjust(room - len(keys)), "text"), (keys, "dim"))),))

    def recount(self, counts: tuple[int, int]) -> None:
        """Updates the counts after a sample; an error stays until the text changes."""
        if not self._wrong:
            self.say(counts)

    @property
    def _can_signal(self) -> bool:
        return hasattr(self._tab, "action_signal") and "signal" not in self._tab.gpuwatch.unavailable_actions

    @property
    def _tab(self) -> FilterBarScreen[Any]:
        return cast("FilterBarScreen[Any]", self.screen)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        if self._tab.filter_bar is self:  # else it was closed by a key behind this one
            self._tab.filter_typed(event.value)

    @on(Input.Submitted)
    async def _submitted(self) -> None:
        await self.enter_pressed()

    async def enter_pressed(self) -> None:
        """Enter: keeps the filter, unless a word of it is invalid."""
        self._tab.filter_typed(self._input.value)
        if not self._wrong:
            await self._tab.filter_done(keep=True)

    async def arrow(self, key: str) -> None:
        """Up and down keep the filter and return to the table, as Enter does."""
        await self.enter_pressed()

    async def on_key(self, event: events.Key) -> None:
        """Esc clears the filter; F9 keeps it and signals the process that was found, since ``K`` is text here."""
        if event.key == "escape":
            event.stop()
            await self._tab.filter_done(keep=False)
        elif event.key == "f9" and self._can_signal:
            event.stop()
            await self.enter_pressed()
            if not self._wrong:
                await self._tab.run_action("signal")
        elif event.key in ("down", "up"):
            event.stop()
            await self.arrow(event.key)


class ProbeFinder(FilterBar):
    """Where the name of a probe is typed: Enter runs the one under the cursor, arrows move it."""

    def say(self, counts: tuple[int, int], wrong: str = "") -> None:
        """Also names what Enter would run; nothing before somebody has typed or moved the cursor."""
        name = self.probe
        if wrong or not (name or self._input.value):
            super().say(counts, wrong) if wrong else self.note("", "", 0)
            return
        does = f"{key_name(self, '↵')} {cut_to_width(f'runs {name}', NOTE_CELLS - 24)}" if name else ""
        self.note(f"{counts[0]} of {counts[1]}", f"  {does}  Esc list ")

    @property
    def probe(self) -> str:
        """The name of the probe that Enter runs; empty for none."""
        return self._probes.found_name if self._input.value or self._moved else ""

    _moved = False

    @property
    def _probes(self) -> ProbesScreen:
        return cast("ProbesScreen", self.screen)

    async def enter_pressed(self) -> None:
        """Runs the probe under the cursor; without one, the field stays."""
        self._probes.filter_typed(self._input.value)
        if self.probe:
            await self._probes.run_found(self.probe)

    async def arrow(self, key: str) -> None:
        """Moves the cursor to the next probe."""
        self._moved = True
        self._probes.next_found_probe(key)
        self.say(self._probes.matches)

"""The bases of the tabs: on each of them ``/`` filters its list."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from textual import events

from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import filtered_title
from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.screens.base_tab import TabScreen
from gpuwatch.ui.settings.actions import ACTIONS, bindings
from gpuwatch.ui.tables.filter_language import Filter, FilterError, WordFilter, parse_words
from gpuwatch.ui.widgets.scroll_list import ScrollList

if TYPE_CHECKING:
    from gpuwatch.ui.widgets.filter_bar import FilterBar

AnyFilter = TypeVar("AnyFilter", bound="Filter[...]")
_FILTER_KEYS = frozenset(next(action.keys for action in ACTIONS["filterable"] if action.id == "filter").split(","))


class FilterBarScreen(TabScreen, Generic[AnyFilter]):
    """A tab with a bar to type a filter into; subclasses say what it filters, and how."""

    EXAMPLES: ClassVar[str] = 'words  -not  "two words"'

    def __init__(self) -> None:
        super().__init__()
        self.filter_bar: FilterBar | None = None
        self._filter: AnyFilter | None = None
        self._opening = asyncio.Lock()

    @property
    @abstractmethod
    def filtered(self) -> ScrollList:
        """The list that is filtered."""

    @property
    def filter(self) -> AnyFilter | None:
        return self._filter

    @property
    def filter_text(self) -> str:
        return self.filter.text if self.filter is not None else ""

    @property
    def matches(self) -> tuple[int, int]:
        """Lines that match, and all lines."""
        return self.filtered.counts

    @abstractmethod
    def parse_filter(self, text: str) -> AnyFilter | None:
        """The filter that a text means; :class:`FilterError` if a word is invalid."""

    def set_filter(self, wanted: AnyFilter | None) -> None:
        """Applies a filter; None: shows the whole list again."""
        self._filter = wanted
        self.show_again()

    def filter_typed(self, text: str) -> None:
        """Applies the filter with every key; an invalid word is reported, the others are used."""
        wrong = ""
        try:
            self.set_filter(self.parse_filter(text))
        except FilterError as error:
            wrong = str(error)
            self.set_filter(cast("AnyFilter | None", error.rest))
        if self.filter_bar is not None:
            self.filter_bar.say(self.matches, wrong)

    def show(self, view: View) -> None:
        """Also updates the number of matches beside what is typed."""
        super().show(view)
        if self.filter_bar is not None:
            self.filter_bar.recount(self.matches)

    async def on_key(self, event: events.Key) -> None:
        """Passes keys to the filter in the order they were typed.

        Textual sends a key to the widget focused on its arrival, so the first letters of a quickly typed filter still
        reach the list, or that of the tab before. They are handled here, after the key that opened the filter.
        """
        here = self.gpuwatch.tab
        if isinstance(here, FilterBarScreen):
            await here.typed(event)

    async def typed(self, event: events.Key) -> None:
        """Handles a key that opens the filter bar, or is meant for it."""
        async with self._opening:
            bar = self.filter_bar
        if bar is None:
            opens = self.openers.get(event.key)
            if opens is not None:
                event.stop()
                await opens()
            else:
                self.unknown_key(event)
        elif await bar.take_key(event):
            event.stop()

    @property
    def openers(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Actions of the keys that open a filter bar."""
        return dict.fromkeys(_FILTER_KEYS, self.action_filter)

    async def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Shows the keys of the focused pane; leaving the filter bar closes it."""
        bar = self.filter_bar
        here = event.widget is self.focused  # else it had the focus before the bar was opened
        if bar is not None and bar.had_focus and here and event.widget.id in self.PANES:
            await self.filter_done(keep=True, focus=False)
        self.show_keys()

    async def action_filter(self) -> None:
        from gpuwatch.ui.widgets.filter_bar import FilterBar

        await self.open_bar(FilterBar(self.filter_text, self.EXAMPLES))

    async def open_bar(self, bar: FilterBar) -> None:
        """Shows a filter bar, unless one is open already."""
        async with self._opening:
            if self.filter_bar is not None:
                self.filter_bar.focus_input()
                return
            self.filter_bar = bar
            self.keys.display = False
            await self.mount(bar, after=self.keys)
            bar.say(self.matches)

    async def filter_done(self, *, keep: bool, focus: bool = True) -> None:
        """Closes the filter bar: Enter keeps the filter, Esc clears it."""
        bar, self.filter_bar = self.filter_bar, None
        if not keep:
            self.set_filter(None)
        if bar is not None:
            await bar.remove()
        self.keys.display = True
        if focus:
            self.filtered.focus()


class FilterableScreen(FilterBarScreen[WordFilter]):
    """A tab with one list to filter by words."""

    BINDINGS = bindings("filterable")

    def filter_title(self, title: str) -> list[tuple[str, str]]:
        return filtered_title(title, self.filter.text[:40] if self.filter is not None else None)

    def show_keys(self, note: tuple[str, bool] = ("", False)) -> None:
        """A list without a frame has no title: the footer says what it is filtered by."""
        if self.filter is not None and not self.framed:
            shown, total = self.matches
            note = f"/{cut_to_width(self.filter.text, 16)} {shown} of {total} (Esc)", True
        super().show_keys(note)

    def parse_filter(self, text: str) -> WordFilter | None:
        return parse_words(text)

    async def action_back(self) -> None:
        """Clears the filter, else opens the previous tab."""
        if self.filter is not None:
            self.set_filter(None)
        else:
            await super().action_back()

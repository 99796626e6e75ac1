"""The bases of tabs with a list that ``/`` filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.settings.actions import ACTIONS, bindings
from gpuwatch.ui.tables.word_filter import WordFilter, parse

if TYPE_CHECKING:
    from gpuwatch.ui.widgets.filter_bar import FilterBar

_KEYS = frozenset(next(action.keys for action in ACTIONS["filterable"] if action.id == "filter").split(","))


class FilterBarScreen(TabScreen):
    """A tab with a bar to type a filter into; subclasses say what it filters, and how."""

    EXAMPLES: ClassVar[str] = 'words  -not  "two words"'

    def __init__(self) -> None:
        super().__init__()
        self.filter_bar: FilterBar | None = None

    @property
    def filtered(self) -> Widget:
        """The list that the filter is for."""
        raise NotImplementedError

    @property
    def filter_text(self) -> str:
        """The current filter, as typed."""
        raise NotImplementedError

    @property
    def matches(self) -> tuple[int, int]:
        """Lines that match, and all lines."""
        raise NotImplementedError

    def filter_typed(self, text: str) -> None:
        """Applies the filter with every key."""
        raise NotImplementedError

    def drop_filter(self) -> None:
        raise NotImplementedError

    async def on_key(self, event: events.Key) -> None:
        """Passes keys to the filter in the order they were typed.

        Textual sends a key to the widget focused on its arrival, so the first letters of a quickly typed filter still
        reach the list. They are handled here, after the key that opened the filter.
        """
        bar = self.filter_bar
        if bar is None:
            if event.key in _KEYS:
                event.stop()
                await self.action_filter()
        elif await bar.take(event):
            event.stop()

    async def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Shows the keys of the focused pane; leaving the filter bar closes it."""
        bar = self.filter_bar
        if bar is not None and bar.was_entered and event.widget.id in self.PANES:
            await self.filter_done(keep=True, focus=False)
        self.show_keys()

    async def action_filter(self) -> None:
        from gpuwatch.ui.widgets.filter_bar import FilterBar

        if self.filter_bar is not None:
            self.filter_bar.focus_input()
            return
        self.filter_bar = FilterBar(self.filter_text, self.EXAMPLES)
        self.keys.display = False
        await self.mount(self.filter_bar, after=self.keys)
        self.filter_bar.say(self.matches)

    async def filter_done(self, *, keep: bool, focus: bool = True) -> None:
        """Closes the filter bar: Enter keeps the filter, Esc clears it."""
        bar, self.filter_bar = self.filter_bar, None
        if not keep:
            self.drop_filter()
        if bar is not None:
            await bar.remove()
        self.keys.display = True
        if focus:
            self.filtered.focus()


class FilterableScreen(FilterBarScreen):
    """A tab with one list to filter by words. Subclasses apply :attr:`filter` and set :attr:`counts` when they draw."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("filterable")

    def __init__(self) -> None:
        super().__init__()
        self.filter: WordFilter | None = None
        self.counts = (0, 0)
        """Lines that match, and all lines."""

    @property
    def filter_text(self) -> str:
        return self.filter.text if self.filter is not None else ""

    @property
    def matches(self) -> tuple[int, int]:
        return self.counts

    def filter_title(self, title: str) -> list[tuple[str, str]]:
        """The title of the list, with the filter."""
        spans = [(title, "title")]
        if self.filter is not None:
            spans += [(" ─ ", "border"), ("/ ", "key"), (self.filter.text[:40], "strong")]
        return spans

    def filter_typed(self, text: str) -> None:
        """Applies the words with every key."""
        self._use(parse(text))

    def drop_filter(self) -> None:
        """Shows the whole list again."""
        self._use(None)

    def _use(self, wanted: WordFilter | None) -> None:
        self.filter = wanted
        self.show_again()
        if self.filter_bar is not None:
            self.filter_bar.say(self.counts)

    async def action_back(self) -> None:
        """Clears the filter, else opens the previous tab."""
        if self.filter is not None:
            self._use(None)
            self.show_keys()
        else:
            await super().action_back()

"""The sort menu."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.lines_modal import LinesModal
from gpuwatch.ui.tables import fleet_columns
from gpuwatch.ui.tables.columns import Column


class SortMenu(LinesModal[None]):
    """Enter or a click selects a column, a letter goes to one; the current column reverses the order."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose", show=False),
        Binding("s,f6", "close", "close", show=False),
    ]

    def __init__(
        self, current: str, columns: Sequence[Column | fleet_columns.Column], sort: Callable[[str], object]
    ) -> None:
        """``sort``: sorts by a column, named by its id."""
        self._sort = sort
        self._ids = [column.id for column in columns]
        self._titles = [column.title.lower() for column in columns]
        lines: Lines = [
            [
                (" ● " if column.id == current else "   ", "accent"),
                (column.title.ljust(11), "strong" if column.id == current else "text"),
                (column.help, "dim"),
            ]
            for column in columns
        ]
        cursor = self._ids.index(current) if current in self._ids else 0
        super().__init__("Sort by", lines, cursor=cursor)
        self.sheet.styles.width = 72
        self.sheet.styles.max_width = "90%"

    def action_choose(self) -> None:
        self._take(self.sheet.cursor or 0)

    def _take(self, number: int) -> None:
        self.dismiss(None)
        self._sort(self._ids[number])

    async def on_key(self, event: events.Key) -> None:
        """A letter goes to the next column that begins with it."""
        here = (self.sheet.cursor or 0) + 1
        behind = [*range(here, len(self._titles)), *range(here)]
        found = next((n for n in behind if self._titles[n].startswith(event.character or "?")), None)
        if found is not None:
            self.sheet.move(found + 1 - here)

    def clicked(self, row: int, event: events.Click) -> None:
        self._take(row)

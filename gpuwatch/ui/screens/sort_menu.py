"""The menu that chooses the column to sort by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.drawing.wrapping import SpanLines
from gpuwatch.ui.screens.sheet import LinesModal
from gpuwatch.ui.tables import host_columns
from gpuwatch.ui.tables.process_columns import Column
from gpuwatch.ui.widgets.preferences_app import key_name

_OTHER_CELLS = 3 + 11 + 4
"""Cells of mark, title, frame and padding."""


class SortMenu(LinesModal[None]):
    """Enter or a click selects a column; its typed name goes to it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "choose", show=False),
        Binding("f6", "close", "close", show=False),
    ]

    def __init__(
        self, current: str, columns: Sequence[Column | host_columns.Column], sort: Callable[[str], object]
    ) -> None:
        """``sort``: sorts by a column, named by its id."""
        self._sort = sort
        self._columns = columns
        lines: SpanLines = [
            [
                (" ● " if column.id == current else "   ", "accent"),
                (column.title.ljust(11), "strong" if column.id == current else "text"),
                (column.help, "dim"),
            ]
            for column in columns
        ]
        cursor = next((number for number, column in enumerate(columns) if column.id == current), 0)
        super().__init__("Sort by", lines, cursor=cursor)
        self.sheet.styles.width = max(width_of(column.help) for column in columns) + _OTHER_CELLS
        self.sheet.styles.max_width = "100%"

    def on_mount(self) -> None:
        self.sheet.ending, self.sheet.always_shows_ending = (
            f"{key_name(self, '↵')} sorts  type a name  Esc closes",
            True,
        )

    @property
    def names(self) -> list[str]:
        return [column.title for column in self._columns]

    def action_choose(self) -> None:
        self._choose_column(self.sheet.cursor or 0)

    def _choose_column(self, number: int) -> None:
        self.dismiss(None)
        self._sort(self._columns[number].id)

    def clicked(self, row: int, event: events.Click) -> None:
        self._choose_column(row)

"""Sheets of choices: which columns, fields or graphs are shown and in which order, and the column to sort by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import events

from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, Span, SpanLines
from gpuwatch.ui.drawing.text_width import align_left, cut_to_width, width_of
from gpuwatch.ui.screens.sheet_bases import LinesSheet, SheetPane, sheet_bindings
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.tables import gpu_fields, host_columns, process_columns
from gpuwatch.ui.tables.process_columns import Column
from gpuwatch.ui.widgets.preferences_app import PreferencesApp, key_name


@dataclass(frozen=True, slots=True)
class Choice:
    """A column, field or graph that can be shown or hidden."""

    id: str
    title: str
    help: str
    unit: str = ""
    why_hidden: str = ""
    """Why it is not visible although it is on."""


def columns_of(snapshot: Snapshot | None, shown: Sequence[str], chosen: Sequence[str]) -> list[Choice]:
    """Every process column; ``shown``: those visible at this width."""

    def why_hidden(column: process_columns.Column) -> str:
        absent = process_columns.why_unavailable(column, snapshot) if snapshot is not None else ""
        return absent or _no_room(column.id, shown, chosen)

    columns = process_columns.COLUMNS
    return [Choice(column.id, column.title, column.help, column.unit, why_hidden(column)) for column in columns]


def fields_of(devices: Sequence[Device], shown: Sequence[str], chosen: Sequence[str]) -> list[Choice]:
    """Every GPU field; ``shown``: those visible at this size."""

    def why_hidden(field: gpu_fields.GpuField) -> str:
        return gpu_fields.why_unavailable(field, devices) or _no_room(field.id, shown, chosen)

    fields = gpu_fields.OPTIONAL_FIELDS
    return [Choice(field.id, field.id, field.help, field.unit, why_hidden(field)) for field in fields]


def graphs_of(count: int, chosen: Sequence[str]) -> list[Choice]:
    """Every graph; ``count``: how many are visible at this size."""
    shown = chosen[:count]
    fields = gpu_fields.GRAPHS.values()
    return [Choice(f.id, f.id, f.graph.help, why_hidden=_no_room(f.id, shown, chosen)) for f in fields]


def _no_room(name: str, shown: Sequence[str], chosen: Sequence[str]) -> str:
    return "no room at this size" if name in chosen and name not in shown else ""


class ChoiceSheet(LinesSheet[None]):
    """A line for each choice: first those that were on when it was opened, in order. Every change applies at once."""

    BINDINGS = sheet_bindings(
        {
            "f2": "close",
            "space,enter": "switch",
            "shift+up,left_square_bracket": "shift(-1)",
            "shift+down,right_square_bracket": "shift(1)",
            "delete": "default",
        }
    )

    def __init__(
        self,
        title: str,
        chosen: Sequence[str],
        default: Sequence[str],
        choices: Callable[[Sequence[str]], list[Choice]],
        changed: Callable[[tuple[str, ...]], object],
    ) -> None:
        self._chosen = list(chosen)
        self._default = tuple(default)
        self._choices = choices
        self._changed = changed
        self._ids = [choice.id for choice in choices(self._chosen)]
        self._order = self._ordered_ids(self._chosen)
        """Order of the lines: what is switched off keeps its place until the sheet closes."""
        pane = SheetPane([], cursor=0, wrap=self._lines, notes=self._help)
        pane.ending = "space on/off  Shift+↑↓ move  Del default  type a name  Esc done"
        pane.always_shows_ending = True
        super().__init__(title, [], pane=pane)

    def _ordered_ids(self, chosen: Sequence[str]) -> list[str]:
        """The choices that are on, in order, then the rest in the order of the table."""
        return [*chosen, *(name for name in self._ids if name not in chosen)]

    @property
    def choices(self) -> list[Choice]:
        place = {name: number for number, name in enumerate(self._order)}
        return sorted(self._choices(self._chosen), key=lambda choice: place[choice.id])

    @property
    def names(self) -> list[str]:
        return [choice.title for choice in self.choices]

    # Actions

    @property
    def _under_cursor(self) -> Choice:
        return self.choices[self.pane.cursor or 0]

    def action_switch(self) -> None:
        """Shows or hides the choice under the cursor; the last one stays on."""
        name = self._under_cursor.id
        on = set(self._chosen) ^ {name}
        if not on:
            self.app.bell()
            return
        self._chosen = [other for other in self._order if other in on]
        self._apply(name)

    def action_shift(self, by: int) -> None:
        """Moves the choice under the cursor among those that are on."""
        name = self._under_cursor.id
        if name not in self._chosen:
            return
        here = self._chosen.index(name)
        there = min(max(here + by, 0), len(self._chosen) - 1)
        place = self._order.index(self._chosen[there])
        self._chosen.insert(there, self._chosen.pop(here))
        self._order.remove(name)
        self._order.insert(place, name)
        self._apply(name)

    def action_default(self) -> None:
        self._chosen = list(self._default)
        self._order = self._ordered_ids(self._chosen)
        self._apply(self.choices[0].id)

    def _apply(self, name: str) -> None:
        self._changed(tuple(self._chosen))
        self.pane.cursor = next(number for number, choice in enumerate(self.choices) if choice.id == name)
        self.pane.resized()

    def clicked(self, row: int, event: events.Click) -> None:
        self.pane.cursor = row
        self.action_switch()

    # The sheet

    def _lines(self, width: int) -> SpanLines:
        choices = self.choices
        title = max(width_of(choice.title) for choice in choices) + 2
        return [self._line(choice, title, width) for choice in choices]

    def _help(self, width: int) -> list[Line]:
        """The full help of the choice under the cursor."""
        choice = self._under_cursor
        text = f" {choice.title}: {choice.why_hidden or choice.help}"
        style = "warning" if choice.why_hidden else "dim"
        return [Line(()), LineBuilder(width).add(cut_to_width(text, width - 1), style).line()]

    def _line(self, choice: Choice, title: int, width: int) -> list[Span]:
        builder = LineBuilder(width)
        on = choice.id in self._chosen
        builder.add("  ").add("[", "dim").add("x" if on else " ", "accent").add("] ", "dim")
        builder.add(align_left(choice.title, title), "strong" if on and not choice.why_hidden else "dim")
        end = width - 1
        builder.add(align_left(choice.help, max(end - builder.x - 9, 0)), "text" if on else "dim").add(" ")
        word = ("hidden" if on else "none") if choice.why_hidden else choice.unit
        builder.add(align_left(word, max(end - builder.x, 0)), "warning" if on and choice.why_hidden else "dim")
        return builder.fill_to(width).spans


_OTHER_CELLS = 3 + 11 + 4
"""Cells of mark, title, frame and padding."""


def open_choice_sheet(
    app: PreferencesApp, title: str, setting: str, choices: Callable[[Sequence[str]], list[Choice]]
) -> None:
    """Opens the sheet of a setting; ``choices``: all there are, and which are hidden of those that are chosen."""
    chosen, default = (getattr(preferences, setting) for preferences in (app.preferences, Preferences()))
    app.push_screen(
        ChoiceSheet(title, chosen, default, choices, lambda chosen: app.set_preferences(**{setting: chosen}))
    )


class SortMenu(LinesSheet[None]):
    """Enter or a click sorts by a column; typing its name moves the cursor to it."""

    BINDINGS = sheet_bindings({"enter": "choose", "f6": "close"})

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
        self.pane.styles.width = max(width_of(column.help) for column in columns) + _OTHER_CELLS
        self.pane.styles.max_width = "100%"

    def on_mount(self) -> None:
        self.pane.ending = f"{key_name(self, '↵')} sorts  type a name  Esc closes"
        self.pane.always_shows_ending = True

    @property
    def names(self) -> list[str]:
        return [column.title for column in self._columns]

    def action_choose(self) -> None:
        self._choose_column(self.pane.cursor or 0)

    def _choose_column(self, number: int) -> None:
        self.dismiss(None)
        self._sort(self._columns[number].id)

    def clicked(self, row: int, event: events.Click) -> None:
        self._choose_column(row)

"""Tables for a terminal: columns if they fit, else fewer, else a few lines for each row.

First ids and command lines are shortened, then a column of sentences goes under its rows, then optional columns
are left out (and named under the table); at last there are no columns. No form divides a word.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from rich.cells import cell_len, set_cell_size

from gpuwatch.share.reports.formats.fold_text import fold, min_text_width, paragraph, words
from gpuwatch.share.reports.report_elements import Table

_GAP = "  "
_INDENT = "  "
_MIN_SENTENCE_CELLS = 24
"""Cells below which a sentence goes under its row."""
_MIN_CUT_CELLS = 24
"""Least cells of the last column of a long list, the only one that is cut."""
_MAX_SENTENCE_CELLS = 60
"""Cells of a column in a file, beyond which its text is folded."""
_MAX_PATH_CELLS = 100
"""The same for paths and other text without spaces, and for a whole line."""
_BETWEEN = "   "
"""Separator of the values of a row without columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """A way to show a table: its columns, what goes under each row, the headings left out."""

    table: Table
    sentences_below: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    cards: bool = False


def table_lines(table: Table, width: int, shorten: Callable[[str], str], *, elastic: bool = False) -> Iterator[str]:
    """The heading, rows and note of a table with rows, without its title.

    ``elastic`` is for files: nothing is shortened or left out, so a line may be longer than ``width``.
    """
    if elastic:
        table = dataclasses.replace(table, optional=(), shorter={}, lines=0, one_line=False)
    layout = _best_layout(table, width - len(_INDENT), None if elastic else shorten)
    shown_table = layout.table
    if layout.cards:
        for row in shown_table.rows:
            yield from _card(shown_table, row, width)
    else:
        widths = _widths(shown_table, width - len(_INDENT))
        yield from _row(shown_table, shown_table.heads, widths, head=True)
        if any(layout.sentences_below):
            yield from paragraph(table.below or "", width, "    ", "    ")
        for number, row in enumerate(shown_table.rows):
            yield from _row(shown_table, row, widths)
            if layout.sentences_below and layout.sentences_below[number]:
                yield from paragraph(layout.sentences_below[number], width, "    ", "    ")
    note = table.note
    if layout.left_out:
        note += f" Hidden for lack of width: {', '.join(layout.left_out)}; use a wider terminal or -o FILE."
    if note:
        yield from paragraph(note.strip(), width, _INDENT, _INDENT)


def natural_width(table: Table) -> int:
    """Columns at which nothing but long sentences is folded: what a file gives to a table."""
    widths, whole = [], []
    for column, head in enumerate(table.heads):
        cells = [row[column] for row in table.rows]
        whole.append(max(map(cell_len, (head, *cells))))
        never_folded = head in table.right or head in table.keep
        unbroken = max((cell_len(word) for cell in cells for word in cell.split()), default=0)
        folded = max(_MAX_SENTENCE_CELLS, _min_column_width(table, column), min(unbroken, _MAX_PATH_CELLS))
        widths.append(whole[-1] if never_folded else min(whole[-1], folded))
    margins = len(_INDENT) + len(_GAP) * (len(widths) - 1)
    return margins + max(sum(widths), min(sum(whole), _MAX_PATH_CELLS - margins))


def _best_layout(table: Table, room: int, shorten: Callable[[str], str] | None) -> _Layout:
    """The form with the most columns that fits the width."""
    if _min_table_width(table) <= room and _sentence_fits(table, room):
        return _Layout(table)
    if shorten is not None:
        shorteners = [table.shorter.get(head, str) for head in table.heads]
        rows = (tuple(shorten(short(cell)) for short, cell in zip(shorteners, row, strict=True)) for row in table.rows)
        table = dataclasses.replace(table, rows=tuple(rows))
    for narrowed in (table, dataclasses.replace(table, keep=frozenset())):
        layout = _layout_with_fewer_columns(narrowed, room)
        if layout is not None:
            return layout
    return _Layout(table, cards=True)


def _layout_with_fewer_columns(table: Table, room: int) -> _Layout | None:
    """With the sentences under their rows, or without optional columns; None if that is still too wide."""
    optional = [head for head in table.optional if head in table.heads]
    for count in range(len(optional) + 1):
        removed = optional[:count]
        left_out = tuple(head for head in table.heads if head in removed)
        narrowed = table.without(*removed)
        if _min_table_width(narrowed) <= room and _sentence_fits(narrowed, room):
            return _Layout(narrowed, (), left_out)
        if narrowed.below in narrowed.heads:
            without_sentences, index = narrowed.without(narrowed.below), narrowed.heads.index(narrowed.below)
            if _min_table_width(without_sentences) <= room:
                return _Layout(without_sentences, tuple(row[index] for row in narrowed.rows), left_out)
    return None


def _sentence_fits(table: Table, room: int) -> bool:
    """Whether the column of sentences, if there is one, is wide enough to stay a column."""
    if table.below not in table.heads:
        return True
    index = table.heads.index(table.below)
    cells = [row[index] for row in (table.heads, *table.rows)]
    # Paths are divided at slashes; other words stay whole.
    never_folded = max((cell_len(word) for cell in cells for word in words(cell) if "/" not in word), default=0)
    wanted = max(min(max(map(cell_len, cells)), _MIN_SENTENCE_CELLS), min(never_folded, room))
    return _widths(table, room)[index] >= wanted


def _min_table_width(table: Table) -> int:
    """Least width in which no word is divided."""
    columns = range(len(table.heads))
    return sum(_min_column_width(table, column) for column in columns) + len(_GAP) * (len(columns) - 1)


def _min_column_width(table: Table, column: int) -> int:
    """Least width of a column: numbers whole, text and headings down to their words."""
    name = table.heads[column]
    head = min_text_width(name)
    cells = [row[column] for row in table.rows]
    whole = max(map(cell_len, cells), default=0)
    if table.one_line and column == len(table.heads) - 1:
        return max(head, min(whole, _MIN_CUT_CELLS))
    if table.one_line or name in table.right or name in table.keep:
        return max(head, whole)
    # One more cell for an ellipsis.
    return max(head, *(min_text_width(cell) + bool(table.lines and cell) for cell in cells))


def _widths(table: Table, room: int) -> list[int]:
    """Column widths: the widest gives way first, none below its least width."""
    columns = range(len(table.heads))
    widths = [max(cell_len(row[column]) for row in (table.heads, *table.rows)) for column in columns]
    floors = [_min_column_width(table, column) for column in columns]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > room:
        shrinkable = [column for column in columns if widths[column] > floors[column]]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda column: widths[column])] -= 1
    # A folded heading narrows its column.
    for column in (column for column in columns if table.heads[column] in table.right):
        lines = (*fold(table.heads[column], widths[column]), *(row[column] for row in table.rows))
        widths[column] = max(map(cell_len, lines))
    return widths


def _row(table: Table, row: tuple[str, ...], widths: list[int], *, head: bool = False) -> Iterator[str]:
    cells = [
        [text] if table.one_line and not head else _folded_cell(text, size, 0 if head else table.lines)
        for text, size in zip(row, widths, strict=True)
    ]
    for line in range(max(len(cell) for cell in cells)):
        parts = [
            _cell(cell[line] if line < len(cell) else "", size, right=heading in table.right)
            for heading, size, cell in zip(table.heads, widths, cells, strict=True)
        ]
        yield _INDENT + _GAP.join(parts)


def _folded_cell(text: str, width: int, most: int) -> list[str]:
    if cell_len(text) <= width:
        return [text]
    lines = fold(text, width)
    if most and len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][: max(width - 1, 0)] + "…"]
    return lines


def _cell(text: str, width: int, *, right: bool) -> str:
    if cell_len(text) > width:
        return set_cell_size(text, max(width - 1, 0)) + "…"
    padding = " " * (width - cell_len(text))
    return padding + text if right else text + padding


def _card(table: Table, row: tuple[str, ...], width: int) -> Iterator[str]:
    """A row without columns: its first value, then the others after their headings."""
    first = f"{table.heads[0]} {row[0]}" if table.heads[0] in table.right else row[0]
    yield from paragraph(first, width, _INDENT, "    ")
    lines: list[str] = []
    for head, value in list(zip(table.heads, row, strict=True))[1:]:
        part = f"{head}: {value}" if head else value
        if value and lines and cell_len(lines[-1]) + len(_BETWEEN) + cell_len(part) <= width - 4:
            lines[-1] += _BETWEEN + part
        elif value:
            lines.append(part)
    for line in lines:
        yield from paragraph(line, width, "    ", "      ") if cell_len(line) > width - 4 else [f"    {line}"]

"""Tables for a terminal: columns where they fit, else less of them, else each row as a few lines of its own.

In this order something gives way: ids and command lines are shortened, a column of sentences goes under its
rows, optional columns are left out (and named under the table), and at last there are no columns any more.
No word is divided in any of these forms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from rich.cells import cell_len, set_cell_size

from gpuwatch.reports.content import Table
from gpuwatch.reports.formats.folding import fold, least, paragraph

_GAP = "  "
_INDENT = "  "
_LEAST_SENTENCE = 24
"""Cells below which a sentence is better read under its row."""
_LEAST_CUT = 24
"""Cells of the last column of a long list, which alone is cut there."""
_CARD_GAP = "   "


def table_lines(table: Table, width: int, shorten: Callable[[str], str], *, elastic: bool = False) -> Iterator[str]:
    """The rows and what stands under them, without the title. ``elastic``: a file, which may be a little wider."""
    room = width - len(_INDENT)
    table, under, left_out = _chosen(table, room, shorten, elastic=elastic)
    if table is None:
        yield from _cards(under, width)
        note = under.note
    else:
        sentences = [row[table.below] for row in table.rows] if under is not table and table.below is not None else []
        shown = under
        room = max(room, _total(shown)) if elastic else room
        widths = _widths(shown, room)
        for number, row in enumerate((shown.heads, *shown.rows)):
            yield from _row(shown, row, widths, head=not number)
            if sentences and number and sentences[number - 1]:
                yield from paragraph(sentences[number - 1], max(width, 40), "    ", "    ")
        note = table.note
    if left_out:
        note += f" Not shown for want of width: {', '.join(left_out)}; a wider terminal and -o FILE have them."
    if note:
        yield from paragraph(note.strip(), max(width, 40), _INDENT, _INDENT)

"""How many lines each part of the overview gets at a terminal size. Pure arithmetic, so it can be tested.

As space shrinks, these are given up in order: further bands of graphs, the height of the first band, further
fields, cards (each becomes one line), the host strip, the heading of the lines. Then lines stand side by side (at a
reduced width only if all of them become visible), and at last they scroll, with a count of the hidden ones. The
finding always stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Literal

MIN_WIDTH = 60
MIN_HEIGHT = 12

MIN_CARD_WIDTH = 48
CARD_HEIGHT = 5
"""Lines of the lowest card: its frame, a caption and a row of dots of its graphs, a line of fields."""
MIN_GRAPH_LINES = 2
"""Lines of the lowest graph."""
_LINE_WIDTH = 39
"""Cells that fit utilization, used and total memory, power and temperature of a GPU."""
_MIN_LINE_WIDTH = 28
"""Cells that fit utilization and memory."""
_TALL_LINES = 30
"""A terminal with at least this many lines is large."""
_TABLE_ROWS = 6
"""Header and five processes: the table keeps them as long as GPUs can fold."""
_FRAMED_TABLE_LINES = 15
"""Lines of a framed table, for twelve processes, before a graph becomes higher."""
_MIN_TABLE_LINES = 3
"""Lines the table keeps before GPUs scroll; below ``_SMALL_LINES`` lines only its header."""
_SMALL_LINES = 16
_GRAPH_WIDTH = 60
"""Cells of a graph for which a third one stands beside the others."""
_TAB_STOPS_CELLS = 29
"""Cells of two tab stops in the further lines of a card: the widest field, and the gap to the next."""
MANY_GPUS = 16
"""From this number of GPUs on, each is a line, unless another layout was chosen."""
_MAX_GRAPH_ROWS = 3
LayoutChoice = Literal["automatic", "lines", "cards", "graphs"]
LAYOUT_CHOICES: tuple[LayoutChoice, ...] = ("automatic", "lines", "cards", "graphs")
"""The layouts to choose from: lines leave most rows to processes, graphs the fewest."""
_GRAPH_ROW_LINES = 5
"""Lines of each band of graphs before another one is added."""


@dataclass(frozen=True, slots=True)
class OverviewLayout:
    """Lines of each part of the overview; the process table gets the rest."""

    host: bool = True
    gpus_as: Literal["none", "line", "card"] = "none"
    columns: int = 1
    heading: bool = False
    """With lines: whether a line names the columns."""
    extra_graph_lines: int = 0
    """With cards: lines of graphs in each card beyond the lowest."""
    graph_rows: int = 1
    """With cards: how many rows of graphs are stacked in those lines."""
    graph_columns: int = 2
    """With cards: how many graphs stand side by side."""
    gpu_height: int = 0
    framed: bool = False
    """Whether the table has a border."""

    further_lines: int = 0
    """With cards: lines below the first line of fields: holders of memory, further fields."""
    mig_lines: int = 0
    """Maximum lines for the MIG instances of each GPU."""
    scrolls: bool = False
    """With lines: not all GPUs fit, and the last line counts the hidden ones."""

    @property
    def card_height(self) -> int:
        """Lines of one card with its border."""
        return CARD_HEIGHT + self.extra_graph_lines + self.further_lines + self.mig_lines

    @property
    def graphs(self) -> int:
        return self.graph_rows * self.graph_columns


def plan_layout(
    width: int,
    height: int,
    gpus: int,
    *,
    findings: bool = False,
    notice: int = 0,
    processes: int = 0,
    fields: Sequence[tuple[str, int]] = (),
    instances: Sequence[int] = (),
    choice: LayoutChoice = "automatic",
    graphs: Sequence[str] = ("",) * 2 * _MAX_GRAPH_ROWS,
) -> OverviewLayout:
    """The layout of the overview.

    ``notice``: lines that explain why there is no GPU. ``processes``: rows the table should have room for; the
    fewer, the more graphs. ``fields``: id and cells of each field of a card; those with a graph of the same id are
    not repeated below it. ``instances``: MIG instances of each GPU.
    ``choice``: what the user chose; one for which there is no room falls back to the next smaller one.
    ``graphs``: ids of the graphs that a card may have, in order.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return OverviewLayout()
    framed = width >= 100 and height >= 30
    room = height - 2 - int(findings)
    if not gpus:
        panel = min(max(notice + 2, 5), max(room // 2, room - _TABLE_ROWS, 5))
        return OverviewLayout(gpus_as="none", framed=framed, gpu_height=panel)
    as_cards = None
    if choice != "lines" and (gpus < MANY_GPUS or choice != "automatic"):
        max_mig_lines = max(instances, default=0)
        as_cards = _cards_layout(width, height, gpus, processes, fields, max_mig_lines, choice, graphs, framed=framed)
    if as_cards is not None:
        if choice != "automatic":
            return as_cards
        fits = processes + 2 <= height - 4 - as_cards.gpu_height and as_cards.mig_lines == max(instances, default=0)
        if framed or (height >= _TALL_LINES and gpus <= 2) or fits:
            return as_cards
    # The finding's line is always reserved, so that a new finding does not change the layout.
    most_rows = height - 3 - _TABLE_ROWS
    # The table shrinks before a GPU is hidden, but keeps a minimum on all but tiny terminals.
    most_rows_with_small_table = height - 3 - (_MIN_TABLE_LINES if height >= _SMALL_LINES else 1)
    columns = _side_by_side(width, gpus, most_rows, _LINE_WIDTH)
    if math.ceil(gpus / columns) > most_rows_with_small_table:
        narrow = _side_by_side(width, gpus, most_rows, _MIN_LINE_WIDTH)
        columns = narrow if math.ceil(gpus / narrow) <= most_rows_with_small_table else columns
    rows = math.ceil(gpus / columns)
    as_lines = OverviewLayout(gpus_as="line", columns=columns, host=False, framed=framed)
    if rows > most_rows:
        if rows <= most_rows_with_small_table:
            heading = rows < height - 3 - _MIN_TABLE_LINES
            return replace(as_lines, heading=heading, gpu_height=rows + int(heading))
        return replace(as_lines, gpu_height=max(most_rows, (height - 3) // 2), scrolls=True)
    mig_lines = max(instances, default=0) if columns == 1 else 0
    while mig_lines and rows + sum(min(count, mig_lines) for count in instances) > most_rows:
        mig_lines -= 1
    rows += sum(min(count, mig_lines) for count in instances)
    return replace(as_lines, heading=True, host=rows + 2 <= most_rows, mig_lines=mig_lines, gpu_height=rows + 1)


def _side_by_side(width: int, gpus: int, most_rows: int, cells: int) -> int:
    """How many lines of at least ``cells`` cells to put side by side, to get at most ``most_rows`` rows."""
    columns = 1
    while math.ceil(gpus / columns) > most_rows and width // (columns + 1) >= cells:
        columns += 1
    return columns


def _cards_layout(
    width: int,
    height: int,
    gpus: int,
    processes: int,
    fields: Sequence[tuple[str, int]],
    max_mig_lines: int,
    choice: LayoutChoice,
    graphs: Sequence[str],
    *,
    framed: bool,
) -> OverviewLayout | None:
    """Cards with as many graphs and fields as the processes leave room for; None if cards do not fit."""
    min_table_lines = max(_TABLE_ROWS + 1, int(height * 0.2))
    max_columns = max(width // MIN_CARD_WIDTH, 1)
    rows = math.ceil(gpus / max_columns)
    columns = math.ceil(gpus / rows)
    spare = height - 4 - rows * CARD_HEIGHT
    wanted_table_lines = processes + 2 + 2 * int(framed)
    is_chosen = choice != "automatic"
    needed = max(min_table_lines, min(wanted_table_lines, max(9, int(height * 0.3))))
    if spare < (_MIN_TABLE_LINES + 2 * int(framed) if is_chosen else needed):
        return None
    table_lines = max(min_table_lines, min(max(wanted_table_lines, _FRAMED_TABLE_LINES * framed), int(height * 0.45)))
    if choice == "graphs":
        table_lines = min(min_table_lines, max(spare - rows * MIN_GRAPH_LINES, _MIN_TABLE_LINES + 2 * int(framed)))
    budget = max((spare - table_lines) // rows, 0)
    mig_lines = min(max_mig_lines, budget)
    budget -= mig_lines
    inner = width // columns - 4
    graph_columns = max(min(max(inner // _GRAPH_WIDTH, 2), len(graphs)), 1)
    max_graph_lines = MIN_GRAPH_LINES if choice == "cards" else max(9, height // 5)  # a taller graph shows no more
    most_lines = MIN_GRAPH_LINES + budget
    while graph_columns > 2 and max_graph_lines * math.ceil(len(graphs) / (graph_columns - 1)) <= most_lines:
        graph_columns -= 1  # a wider one shows a longer time
    for graph_rows in range(1 if choice == "cards" else max(math.ceil(len(graphs) / graph_columns), 1), 0, -1):
        shown = graphs[: graph_rows * graph_columns]
        # The first line of fields is part of every card; that of the holders of memory takes its place here.
        further = len(field_rows(tuple(cells for name, cells in fields if name not in shown), inner))
        room = most_lines - min(further, max(budget // 2, 1))
        if room >= graph_rows * _GRAPH_ROW_LINES:
            break
    graph_lines = min(room // graph_rows, max_graph_lines)  # all of one height
    extra_graph_lines = max(graph_lines * graph_rows - MIN_GRAPH_LINES, 0)
    further_lines = min(further, budget - extra_graph_lines)
    return OverviewLayout(
        gpus_as="card",
        columns=columns,
        extra_graph_lines=extra_graph_lines,
        graph_rows=graph_rows,
        graph_columns=graph_columns,
        further_lines=further_lines,
        mig_lines=mig_lines,
        gpu_height=rows * (CARD_HEIGHT + extra_graph_lines + further_lines + mig_lines),
        framed=framed,
    )


@lru_cache(maxsize=64)
def field_rows(cells: tuple[int, ...], width: int) -> tuple[tuple[int, ...], ...]:
    """Where each field of a card begins, in order, line by line; the further lines have common tab stops.

    A last field that would stand alone in a third or later line is left out: it would cost the graphs a line.
    """
    gap = min(max((width - sum(cells[:4])) // 4, 1), 3)
    count = sum(end - gap <= width for end in accumulate(cell + gap for cell in cells))  # in the first line
    rows = [[sum(cells[:place]) + gap * place for place in range(count)]]
    x = width
    for cell in cells[count:]:
        start = next(stop for stop in (n * _TAB_STOPS_CELLS // 2 for n in range(width + 1)) if stop >= x)
        if start + cell > width or len(rows) == 1:
            rows.append([])
            start = 0
        rows[-1].append(start)
        x = start + cell + 1
    if len(rows) > 2 and len(rows[-1]) == 1:
        del rows[-1]
    return tuple(map(tuple, rows))

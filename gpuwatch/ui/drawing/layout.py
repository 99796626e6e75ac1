"""How many lines each part of the overview gets at a terminal size. Pure arithmetic, so it can be tested.

As space shrinks, these are given up in order: extra bands of graphs, the first band, extra readings, cards
(each becomes one line), the host strip, the heading of the lines. Then lines stand side by side (at a reduced
width only if all of them become visible), and at last they scroll, with a count of the hidden ones. The finding
always stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MIN_WIDTH = 60
MIN_HEIGHT = 12

CARD_MIN_WIDTH = 48
CARD_HEIGHT = 5
_LINE_WIDTH = 39
"""Cells that fit utilisation, used and total memory, power and temperature of a GPU."""
_LINE_MIN_WIDTH = 28
"""Cells that fit utilisation and memory."""
_TALL = 30
"""A terminal with at least this many lines is large."""
_TABLE_ROWS = 6
"""Header and five processes: the table keeps them as long as GPUs can fold."""
_TABLE_LEAST = 3
"""Lines the table keeps before GPUs scroll; below ``_SMALL`` lines only its header."""
_SMALL = 16
BESIDE_WIDTH = 150
"""A card at least this wide inside has its readings beside the graphs."""
FACT_WIDTH = 32
"""Cells of a reading with its title and the gap to the next."""
_BAND_MIN, _BAND_GOOD, _BAND_TALL = 3, 5, 8
"""Lines of a band of graphs with its caption: the minimum, and what each needs before a second or third is added."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows of each part; the process table gets the rest."""

    too_small: bool = False
    host: bool = True
    style: Literal["none", "line", "card"] = "none"
    columns: int = 1
    heading: bool = False
    """Line style: whether a line names the columns."""
    graph: int = 0
    """Card style: lines of graphs in each card, captions included."""
    bands: int = 0
    """Card style: how many graphs are stacked in those lines."""
    gpu_height: int = 0
    framed: bool = False
    """Whether the table has a border."""

    facts: int = 0
    """Card style: lines of extra readings below the graphs."""
    parts: int = 0
    """Maximum lines for the MIG instances of each GPU."""
    scrolls: bool = False
    """Line style: not all GPUs fit, and the last line counts the hidden ones."""

    @property
    def card_height(self) -> int:
        """Lines of one card with its border."""
        return CARD_HEIGHT + self.graph + self.facts + self.parts


def plan(
    width: int,
    height: int,
    gpus: int,
    *,
    findings: bool = False,
    notice: int = 0,
    processes: int = 0,
    readings: int = 0,
    instances: Sequence[int] = (),
) -> Plan:
    """The layout of the overview.

    ``notice``: lines that explain why there is no GPU. ``processes``: rows the table should have room for; the
    fewer, the more graphs. ``readings``: how many extra readings each GPU has. ``instances``: MIG instances of
    each GPU.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Plan(too_small=True)
    framed = width >= 100 and height >= 30
    room = height - 2 - int(findings)
    if not gpus:
        return Plan(style="none", framed=framed, gpu_height=min(max(notice + 4, 5), max(room // 2, 5)))
    cards = _cards(width, height, gpus, processes, readings, max(instances, default=0), framed=framed)
    if cards is not None:
        fits = processes + 2 <= height - 4 - cards.gpu_height and cards.parts == max(instances, default=0)
        if framed or (height >= _TALL and gpus <= 2) or fits:
            return cards
    # The finding's line is always reserved, so that a new finding does not change the layout.
    most = height - 3 - _TABLE_ROWS
    # The table shrinks before a GPU is hidden, but keeps a minimum on all but tiny terminals.
    utmost = height - 3 - (_TABLE_LEAST if height >= _SMALL else 1)
    columns = _side_by_side(width, gpus, most, _LINE_WIDTH)
    if math.ceil(gpus / columns) > utmost:
        narrow = _side_by_side(width, gpus, most, _LINE_MIN_WIDTH)
        columns = narrow if math.ceil(gpus / narrow) <= utmost else columns
    rows = math.ceil(gpus / columns)
    if rows > most:
        if rows <= utmost:
            return Plan(style="line", columns=columns, host=False, gpu_height=rows, framed=framed)
        shown = max(most, (height - 3) // 2)
        return Plan(style="line", columns=columns, host=False, gpu_height=shown, scrolls=True, framed=framed)
    parts = max(instances, default=0) if columns == 1 else 0
    while parts and rows + sum(min(count, parts) for count in instances) > most:
        parts -= 1
    rows += sum(min(count, parts) for count in instances)
    heading = rows + 3 <= most
    return Plan(
        style="line",
        columns=columns,
        heading=heading,
        host=rows + 2 <= most,
        parts=parts,
        gpu_height=rows + int(heading),
        framed=framed,
    )


def _side_by_side(width: int, gpus: int, most: int, cells: int) -> int:
    """How many lines of at least ``cells`` cells to put side by side, to get at most ``most`` rows."""
    columns = 1
    while math.ceil(gpus / columns) > most and width // (columns + 1) >= cells:
        columns += 1
    return columns


def _cards(
    width: int, height: int, gpus: int, processes: int, readings: int, instances: int, *, framed: bool
) -> Plan | None:
    """Cards with as many graphs and readings as the processes leave room for; None if cards do not fit."""
    least = max(_TABLE_ROWS + 1, int(height * 0.2))
    across = max(width // CARD_MIN_WIDTH, 1)
    rows = math.ceil(gpus / across)
    columns = math.ceil(gpus / rows)
    spare = height - 4 - rows * CARD_HEIGHT
    wanted = processes + 2 + 2 * int(framed)
    if spare < max(least, min(wanted, max(9, int(height * 0.3)))):
        return None
    table = min(max(wanted, least), max(int(height * 0.45), least))
    budget = (spare - table) // rows
    parts = min(instances, max(budget, 0))
    budget -= parts
    tall = max(9, height // 5)  # a taller graph shows no more
    graph = bands = facts = 0
    inner = width // columns - 4
    wanted_facts = 1 + math.ceil(readings / facts_across(inner))  # the first line lists the memory by process
    if budget >= _BAND_MIN:
        # Reserve some lines for readings: a graph shows little of an idle GPU.
        room = budget - (min(wanted_facts, budget // 4) if inner < BESIDE_WIDTH else 0)
        bands = 1 if room < 2 * _BAND_GOOD else 2 if room < 3 * _BAND_TALL else 3
        graph = bands * min(room // bands, tall)
        facts = min(wanted_facts, budget - graph) if inner < BESIDE_WIDTH else 0
    elif inner < BESIDE_WIDTH:
        facts = min(wanted_facts, max(budget, 0))
    return Plan(
        style="card",
        columns=columns,
        graph=graph,
        bands=bands,
        facts=facts,
        parts=parts,
        gpu_height=rows * (CARD_HEIGHT + graph + facts + parts),
        framed=framed,
    )


def facts_across(inner: int) -> int:
    """How many readings fit side by side in a card."""
    return max(inner // FACT_WIDTH, 2 if inner >= 52 else 1)


def rounded(processes: int) -> int:
    """The rows to plan for, rounded up so that one more process rarely changes the layout."""
    return -(-processes // 4) * 4

"""Who gets how many lines at which size of terminal. Pure arithmetic, so that it can be tested.

Order of folding, first to go first: further bands of graphs, the first band, further readings, cards (they
become one line each), the host strip, the heading of the lines, lines side by side instead of below each other
(as long as each has room for all that matters; in less where all of them are then seen); at last the lines
scroll, and say how many more there are. The finding never goes.
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
"""Cells in which utilisation, memory used and in all, power and temperature of a GPU can be told."""
_LINE_MIN_WIDTH = 28
"""Cells in which utilisation and memory can be told."""
_TALL = 30
"""Lines from which on a screen is a large one."""
_TABLE_ROWS = 6
"""Header and five processes: what the table keeps while GPUs can fold instead."""
_TABLE_LEAST = 3
"""What the table keeps before GPUs scroll; in fewer lines than ``_SMALL`` only its header."""
_SMALL = 16
BESIDE_WIDTH = 150
"""Cells inside a card from which on its readings stand beside the graphs."""
FACT_WIDTH = 32
"""Cells of a reading with its title, and the gap to the next."""
_BAND_MIN, _BAND_GOOD, _BAND_TALL = 3, 5, 8
"""Lines of a band of graphs with its caption: at least, and from which on there can be a second one, a third one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows of each part; the process table takes what is left."""

    too_small: bool = False
    host: bool = True
    style: Literal["none", "line", "card"] = "none"
    columns: int = 1
    heading: bool = False
    """Line style: one line that names the columns."""
    graph: int = 0
    """Card style: lines of graphs in each card, captions included."""
    bands: int = 0
    """Card style: how many graphs stand above each other in those lines."""
    gpu_height: int = 0
    framed: bool = False
    """Whether the table has a border."""

    facts: int = 0
    """Card style: lines of further readings below the graphs."""
    parts: int = 0
    """Lines at most for the MIG instances of each GPU."""
    scrolls: bool = False
    """Line style: not all GPUs fit; the last line says how many more there are."""

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
    said: int = 0,
    processes: int = 0,
    readings: int = 0,
    instances: Sequence[int] = (),
) -> Plan:
    """The layout of the first screen.

    ``said``: how many lines explain why there is no GPU. ``processes``: how many rows the table should have
    room for; the fewer, the more graphs. ``readings``: how many more there are to tell of each GPU.
    ``instances``: how many MIG instances each GPU has.
    """
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Plan(too_small=True)
    framed = width >= 100 and height >= 30
    room = height - 2 - int(findings)
    if not gpus:
        return Plan(style="none", framed=framed, gpu_height=min(max(said + 4, 5), max(room // 2, 5)))
    cards = _cards(width, height, gpus, processes, readings, max(instances, default=0), framed=framed)
    if cards is not None:
        fits = processes + 2 <= height - 4 - cards.gpu_height and cards.parts == max(instances, default=0)
        if framed or (height >= _TALL and gpus <= 2) or fits:
            return cards
    # The finding's line is always counted: a finding that comes must not fold anything.
    most = height - 3 - _TABLE_ROWS
    # The table gives way before a GPU does, but not the whole of it where there is a screen to speak of.
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
    """How many lines of at least so many cells stand beside each other, so that there are at most ``most`` rows."""
    columns = 1
    while math.ceil(gpus / columns) > most and width // (columns + 1) >= cells:
        columns += 1
    return columns


def _cards(
    width: int, height: int, gpus: int, processes: int, readings: int, instances: int, *, framed: bool
) -> Plan | None:
    """Cards, with as many graphs and readings as the processes leave room for; None where cards do not fit."""
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
    tall = max(9, height // 5)  # beyond that a graph gains nothing
    graph = bands = facts = 0
    inner = width // columns - 4
    told = 1 + math.ceil(readings / facts_across(inner))  # the first line says who has the memory
    if budget >= _BAND_MIN:
        # Of much room some is for words: a graph says little of a GPU that is idle.
        room = budget - (min(told, budget // 4) if inner < BESIDE_WIDTH else 0)
        bands = 1 if room < 2 * _BAND_GOOD else 2 if room < 3 * _BAND_TALL else 3
        graph = bands * min(room // bands, tall)
        facts = min(told, budget - graph) if inner < BESIDE_WIDTH else 0
    elif inner < BESIDE_WIDTH:
        facts = min(told, max(budget, 0))
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
    """How many readings stand side by side in a card."""
    return max(inner // FACT_WIDTH, 2 if inner >= 52 else 1)


def rounded(processes: int) -> int:
    """For how many rows to plan: in steps, so that a process that comes does not move everything."""
    return -(-processes // 4) * 4

"""Who gets how many lines at which size of terminal. Pure arithmetic, so that it can be tested.

Order of folding, first to go first: further bands of graphs, the first band, cards (they become one line
each), the host strip, the heading of the lines, lines side by side instead of below each other; at last
the lines scroll, and say how many more there are. The finding never goes.
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
_LINE_MIN_WIDTH = 28
_TABLE_ROWS = 6
"""Header and five processes: what the table keeps while GPUs can fold instead."""
_TABLE_LEAST = 3
"""What the table keeps before GPUs scroll; in fewer lines than ``_SMALL`` only its header."""
_SMALL = 16
BESIDE_WIDTH = 150
"""Cells inside a card from which on its readings stand beside the graphs."""
FACT_WIDTH = 32
"""Cells of a reading with its title, and the gap to the next."""
_BAND_MIN, _BAND_GOOD = 3, 5
"""Lines of a band of graphs with its caption: at least, and from which on there can be a second one."""


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
        fits = gpus == 1 and processes + 2 <= height - 4 - CARD_HEIGHT
        if framed or (height >= 30 and gpus <= 2) or fits or _bare(height, gpus, processes):
            return cards
    # The finding's line is always counted: a finding that comes must not fold anything.
    most = height - 3 - _TABLE_ROWS
    columns = 1
    while math.ceil(gpus / columns) > most and width // (columns + 1) >= _LINE_MIN_WIDTH:
        columns += 1
    rows = math.ceil(gpus / columns)
    if rows > most:
        # The table gives way before a GPU does, but not the whole of it where there is a screen to speak of.
        if rows <= height - 3 - (_TABLE_LEAST if height >= _SMALL else 1):
            return Plan(style="line", columns=columns, host=False, gpu_height=rows, framed=framed)
        return Plan(style="line", columns=columns, host=False, gpu_height=most, scrolls=True, framed=framed)
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


def _bare(height: int, gpus: int, processes: int) -> bool:
    """Whether lines would leave more than half of the screen empty: then there is room for cards."""
    used = 6 + gpus + processes  # top, host, two heads, finding, keys
    return height - used > height / 2


def _cards(
    width: int, height: int, gpus: int, processes: int, readings: int, instances: int, *, framed: bool
) -> Plan | None:
    """Cards, with as many graphs and readings as the processes leave room for; None where cards do not fit."""
    least = max(9, int(height * 0.3))
    across = max(width // CARD_MIN_WIDTH, 1)
    rows = math.ceil(gpus / across)
    columns = math.ceil(gpus / rows)
    spare = height - 4 - rows * CARD_HEIGHT
    if spare < least:
        return None
    wanted = processes + 2 + 2 * int(framed)
    table = min(max(wanted, least), max(int(height * 0.45), least))
    budget = (spare - table) // rows
    parts = min(instances, max(budget, 0))
    budget -= parts
    tall = max(9, height // 6)  # beyond that a graph gains nothing
    graph = bands = facts = 0
    if budget >= _BAND_MIN:
        bands = 1 if budget < 2 * _BAND_GOOD else 2
        graph = bands * min(budget // bands, tall)
        inner = width // columns - 4
        facts = min(math.ceil(readings / facts_across(inner)), budget - graph) if inner < BESIDE_WIDTH else 0
        if budget - graph - facts >= tall:
            graph, bands = graph + tall, 3
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

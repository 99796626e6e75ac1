"""Who gets how many lines at which size of terminal. Pure arithmetic, so that it can be tested.

Order of folding, first to go first: tall graphs, cards (they become one line each), the host strip,
the heading of the lines, lines side by side instead of below each other. A GPU and the finding
never go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

MIN_WIDTH = 60
MIN_HEIGHT = 12

CARD_MIN_WIDTH = 48
CARD_HEIGHT = 5
_LINE_MIN_WIDTH = 28
_TABLE_ROWS = 6
"""Header and five processes: what the table keeps while GPUs can fold instead."""


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
    """Card style: lines of graphs in each card, the caption included."""
    gpu_height: int = 0
    framed: bool = False
    """Whether the table has a border."""

    @property
    def card_height(self) -> int:
        """Lines of one card with its border."""
        return CARD_HEIGHT + self.graph


def plan(width: int, height: int, gpus: int, *, findings: bool = False, said: int = 0) -> Plan:
    """The layout of the first screen; ``said`` is how many lines explain why there is no GPU."""
    if width < MIN_WIDTH or height < MIN_HEIGHT:
        return Plan(too_small=True)
    framed = width >= 100 and height >= 30
    room = height - 2 - int(findings)
    if not gpus:
        return Plan(style="none", framed=framed, gpu_height=min(max(said + 4, 5), max(room // 2, 5)))
    if framed or (height >= 30 and gpus <= 2):
        # The finding's line is always counted: a finding that comes must not fold the cards.
        table = max(9, int(height * 0.3))
        most = max(width // CARD_MIN_WIDTH, 1)
        rows = math.ceil(gpus / most)
        columns = math.ceil(gpus / rows)
        spare = height - 4 - rows * CARD_HEIGHT - table
        if spare >= 0:
            wanted = max(int(height * 0.42), table)
            graph = min((height - 4 - rows * CARD_HEIGHT - wanted) // rows, height // 5)
            graph = graph if graph >= 3 else 0
            return Plan(
                style="card",
                columns=columns,
                graph=graph,
                gpu_height=rows * (CARD_HEIGHT + graph),
                framed=framed,
            )
    columns = 1
    while math.ceil(gpus / columns) + _TABLE_ROWS > height - 3 and width // (columns + 1) >= _LINE_MIN_WIDTH:
        columns += 1
    rows = math.ceil(gpus / columns)
    host = rows + _TABLE_ROWS + 2 <= height - 3
    heading = rows + _TABLE_ROWS + 3 <= height - 3
    return Plan(
        style="line",
        columns=columns,
        heading=heading,
        host=host,
        gpu_height=rows + int(heading),
        framed=framed,
    )

"""The memory of a profile over time in layers, by group or by line, and the same in characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.memory_profile import MemoryMoment
from gpuwatch.core.safe_text import shorten
from gpuwatch.share.reports.chart_types import MEMORY_GROUPS, MemoryAreas
from gpuwatch.share.reports.recorded_period_graphs import course
from gpuwatch.share.reports.report_elements import clean

_OTHER_COLUMNS = 21
"""Columns after a graph in characters."""
_MAX_GRAPH_COLUMNS = 72
_MIN_SHARE = 0.005
"""Share of the peak that a layer has at some moment, or it is not drawn."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, from the bottom."""

    name: str
    kind: str
    """How it is drawn: a class of the style sheet."""
    held: Callable[[MemoryMoment], int]
    """Its bytes at a moment."""


def layers(chart: MemoryAreas) -> list[Layer]:
    """Those that can be seen, what lives long at the bottom; lines as they are in the profile."""
    profile = chart.profile
    top = max((moment.in_use_bytes for moment in profile.moments), default=0)
    if chart.by == "line":
        found = [Layer("others", "workspace", lambda moment: max(moment.in_use_bytes - sum(moment.lines), 0))]
        named = reversed(list(enumerate(profile.lines)))
        found += [Layer(clean(name), f"c{place}", partial(_line_bytes, place)) for place, name in named]
    else:
        found = [Layer(name, kind, partial(_group_bytes, name)) for name, (kind, _) in MEMORY_GROUPS.items()]
    most = ((layer, max((layer.held(moment) for moment in profile.moments), default=0)) for layer in found)
    return [layer for layer, held in most if held > _MIN_SHARE * top]


def _group_bytes(name: str, moment: MemoryMoment) -> int:
    return moment.groups.get(name, 0)


def _line_bytes(place: int, moment: MemoryMoment) -> int:
    return moment.lines[place] if place < len(moment.lines) else 0


def graph_lines(chart: MemoryAreas, width: int) -> Iterator[str]:
    """A line for each layer, the largest first, each of its own scale; nothing for a profile without moments."""
    moments = chart.profile.moments
    if len(moments) < 2:
        return
    rows: list[tuple[str, list[int]]] = [("in use", [moment.in_use_bytes for moment in moments])]
    drawn = [(layer.name, [layer.held(moment) for moment in moments]) for layer in layers(chart)]
    rows += sorted(drawn, key=lambda row: (row[0] == "others", -max(row[1])))
    wide = min(max(len(name) for name, _ in rows), max((width - _OTHER_COLUMNS) // 2, _OTHER_COLUMNS))
    for name, amounts in rows:
        line = course(
            [amount or None for amount in amounts],
            0.0,
            max(amounts),
            min(width - wide - _OTHER_COLUMNS, _MAX_GRAPH_COLUMNS),
            of=max,
        )
        yield f"{shorten(name, wide):<{wide}}  {line}  {size(max(amounts))} at most"

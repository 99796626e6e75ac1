"""A chart as data, before a format draws it: bars, marks, the timeline of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuwatch.model.doctor import State
from gpuwatch.model.run import Run

Kind = Literal["owner", "others", "unexplained", "reserved", "value"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar, in the unit of its chart."""

    kind: Kind
    name: str
    amount: float
    shown: str


@dataclass(frozen=True, slots=True)
class Row:
    """One bar: its parts from the left, and what is written behind it."""

    label: str
    parts: tuple[Part, ...]
    shown: str
    low: float | None = None
    high: float | None = None
    """A whisker from low to high: where most of what was measured lies."""
    mark: float | None = None
    """A tick: a limit, or what was granted."""
    total: float | None = None
    """Length of this row's own scale where rows differ in it (GPUs of several sizes)."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars under each other, on an axis from 0 to ``top``."""

    title: str
    rows: tuple[Row, ...]
    top: float
    axis: str
    """What the axis is, in words."""
    mark: str = ""
    """What the tick means."""
    whisker: str = ""
    more: str = ""
    """What was left out."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Checks by group, a sign each."""

    title: str
    groups: tuple[tuple[str, tuple[tuple[State, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The memory of a run over its time."""

    title: str
    run: Run


Chart = Bars | Marks | Timeline

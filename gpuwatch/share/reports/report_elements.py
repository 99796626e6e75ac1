"""The content of a report, before any format: tables, charts and findings as plain data.

Text, Markdown and HTML all draw it, so a new section is written once. Every string from outside has gone through
:func:`printable`; formats still escape for their own syntax.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuwatch.core.model.doctor import CheckState
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.recorded_period import Period, PeriodDevice
from gpuwatch.core.model.run import Run

PartKind = Literal[
    "owner",
    "others",
    "unexplained",
    "reserved",
    "process",
    "used",
    "held",
    "context",
    "free",
    "value",
    "weights",
    "kept",
    "optimizer",
    "variables",
    "gradients",
    "activations",
    "inputs",
    "workspace",
    "unattributed",
]


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of a bar, in the unit of its chart."""

    kind: PartKind
    name: str
    amount: float
    text: str


@dataclass(frozen=True, slots=True)
class BarRow:
    """One bar: its parts from the left, and the text after it."""

    label: str
    parts: tuple[BarPart, ...]
    text: str
    low: float | None = None
    high: float | None = None
    """A whisker from low to high: the range of most measurements."""
    tick: float | None = None
    """A tick: a limit, or the granted amount."""
    scale: float | None = None
    """Scale of this row, if rows differ (GPUs of several sizes)."""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars on one axis from 0 to ``top``."""

    title: str
    rows: tuple[BarRow, ...]
    top: float
    axis: str
    tick: str = ""
    """What the tick means."""
    whisker: str = ""
    note: str = ""
    """A note on bars that are not shown."""
    legend: tuple[BarPart, ...] = ()
    """The kinds of parts, named once for all bars; empty: below each bar."""


@dataclass(frozen=True, slots=True)
class CheckMarks:
    """Checks by group, one sign each."""

    title: str
    groups: tuple[tuple[str, tuple[tuple[CheckState, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """The memory of a run over time."""

    title: str
    run: Run


@dataclass(frozen=True, slots=True)
class MemoryAreas:
    """The memory of a profile over time, stacked by group, or by the lines that held most at the peak."""

    title: str
    profile: MemoryProfile
    by: Literal["group", "line"] = "group"


@dataclass(frozen=True, slots=True)
class PeriodGraphs:
    """Readings of a GPU over a stretch of a recording, with its processes, findings and events on the same clock."""

    period: Period
    device: PeriodDevice


Chart = BarChart | CheckMarks | MemoryTimeline | MemoryAreas | PeriodGraphs


GLYPHS = {
    "error": "✖",
    "warning": "▲",
    "info": "•",
    "ok": "●",
    "fallback": "▲",
    "oom": "✖",
    "timeout": "✖",
    "skipped": "○",
    "interrupted": "○",
    "unknown": "○",
}
"""Signs by state, so that color is never the only sign."""
STATE_BY_SEVERITY = {"error": "error", "warning": "warning", "info": "ok"}
"""The state of a document by the severity of its main finding."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; columns are named by their headings, which a table may lack."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: Collection[str] = ()
    """Columns of numbers, aligned right."""
    note: str = ""
    keep: Collection[str] = ()
    """Columns that a narrow terminal must not narrow."""
    one_line: bool = False
    """Whether rows stay on one line (long lists): the last column is cut, none is folded."""
    optional: tuple[str, ...] = ()
    """Columns that a narrow terminal leaves out, in this order; other formats have them all."""
    lines: int = 0
    """Most lines of a row on a terminal; 0: as many as it needs."""
    below: str | None = None
    """A column of sentences, which a narrow terminal puts under its row."""
    shorter: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    """Columns with a short form of their cells, for narrow terminals."""
    charts: tuple[Chart, ...] = ()
    """Drawn above the rows, by formats that can draw."""
    sortable: bool = False
    """Whether rows are equals that readers may want in another order, by formats that can sort."""
    has_total_row: bool = False
    """Whether the last row is the sum of the others, and stays last."""
    folded: bool = False
    """Whether formats that can fold it show it only on demand."""
    only_in_files: bool = False
    """Whether a terminal leaves it out, because the summary covers it or it is long."""

    def without(self, *headings: str) -> Table:
        """The table without the columns of these headings."""
        columns_kept = [index for index, head in enumerate(self.heads) if head not in headings]
        rows = tuple(tuple(row[index] for index in columns_kept) for row in self.rows)
        return replace(self, heads=tuple(self.heads[index] for index in columns_kept), rows=rows)


def heads_and_rows(cells: Iterable[Mapping[str, str]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Headings and rows of a :class:`Table`, from rows that have their cells by heading."""
    rows = tuple(cells)
    return tuple(rows[0]) if rows else (), tuple(tuple(row.values()) for row in rows)


@dataclass(frozen=True, slots=True)
class Content:
    """One document, ready to be drawn."""

    title: str
    subtitle: str
    state: str
    """``ok``, ``warning``, ``error``, ``unknown``: chooses color and glyph."""
    verdict: str
    tables: tuple[Table, ...]
    reason: str = ""
    simulated: str = ""
    """What readers must know about simulated GPUs; empty if they are real."""
    facts: tuple[tuple[str, str], ...] = ()
    """A summary: asked, granted, seen, happened, speed."""
    certainty: str = ""
    """``fact`` or ``likely`` if the verdict is a finding."""
    action: str = ""
    """What to do, if that comes before everything else."""
    code: tuple[str, ...] = ()
    """Lines to paste, below the action."""
    evidence: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    log_tail: tuple[str, ...] = ()
    footer: str = ""
    raw: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Verbatim lines by their source."""
    parts: tuple[Content, ...] = ()
    """Documents inside this one (the runs of a comparison)."""


def charts_with_data(*charts: Chart | None) -> tuple[Chart, ...]:
    """The charts of a table, without those for which there is no data."""
    return tuple(chart for chart in charts if chart is not None)

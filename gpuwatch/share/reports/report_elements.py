"""The content of a report, before any format: lines, tables, charts and findings as plain data.

Text, Markdown and HTML all draw it, so a new section is written once. Every string from outside has gone through
:func:`printable`; formats still escape for their own syntax.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from gpuwatch.core.model.doctor import CheckState
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.recorded_period import Period, PeriodDevice
from gpuwatch.core.model.run import Framework, Run
from gpuwatch.core.safe_text import printable

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
MEMORY_GROUPS: dict[str, tuple[PartKind, str]] = {
    "weights": ("weights", "parameters of the model"),
    "weights and caches": ("kept", "in use since before the recording began: parameters, buffers, caches"),
    "caches": ("kept", "keys and values kept between steps"),
    "arrays": ("weights", "arrays that the program keeps"),
    "executables": ("kept", "compiled programs, which the device holds too"),
    "optimizer state": ("optimizer", "what the optimizer keeps, such as momentum"),
    "other variables": ("variables", "variables that do not belong to Keras, and Keras variables that are not trained"),
    "inputs": ("inputs", "data copied to the GPU that has the shape of an input"),
    "created": ("inputs", "tensors that the program creates outside modules, such as torch.zeros"),
    "activations": ("activations", "results of the layers' forward ops"),
    "gradients": ("gradients", "results of the backward pass"),
    "workspace": (
        "workspace",
        "buffers of kernels, such as what cuBLAS keeps in each thread, and of the optimizer's update",
    ),
    "unattributed": ("unattributed", "recorded, but its name does not say what it was for"),
}
"""The groups of a memory profile, in the order in which they are stacked, what lives long at the bottom: how each is
drawn, and what it is."""


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
    total: float | None = None
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
    keys: tuple[BarPart, ...] = ()
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


SIMULATED = "SIMULATED"
SIMULATED_NOTE = "The GPUs are simulated: mappings and memory are meaningful, speeds depend on this computer's CPU."
VALUES_NOTE = (
    "The simulated driver computes only matrix products and copies, no other kernels: values such as a loss mean"
    " nothing."
)
SIMULATED_IGNORED_NOTE = (
    "The GPUs are simulated and ignore a setting of this program: mappings and memory differ from a real GPU's; "
    "speeds depend on this computer's CPU."
)
TORCH_VALUES_NOTE = "The simulated driver computes PyTorch's matrix products and copies, and refuses other kernels."
SIMULATED_MACHINE = "These GPUs are simulated: nothing here is real hardware."

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
EVERY_RUN = "Every run"
"""Title of a table of ``try`` that terminals leave out."""


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
    total: bool = False
    """Whether the last row is the sum of the others, and stays last."""
    folded: bool = False
    """Whether formats that can fold it show it only on demand."""

    def without(self, *headings: str) -> Table:
        """The table without the columns of these headings."""
        columns_kept = [index for index, head in enumerate(self.heads) if head not in headings]
        rows = tuple(tuple(row[index] for index in columns_kept) for row in self.rows)
        return replace(self, heads=tuple(self.heads[index] for index in columns_kept), rows=rows)


def columns(cells: Iterable[Mapping[str, str]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Headings and rows of a :class:`Table`, of rows that have their cells by heading."""
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


def sentence_case(head: str) -> str:
    """``Seen by NVML`` for the terminal's ``SEEN BY NVML``."""
    if not head.isupper() or len(head) < 4:
        return head
    words = [word if word in _NAMES else word.lower() for word in head.replace("GPUS", "GPUs").split(" ")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


_NAMES = frozenset({"NVML", "GPU", "GPUs", "PID", "UUID", "SM", "CUDA"})


def clean(value: object) -> str:
    """Any value as one harmless line; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{clean(key)} {clean(item)}" for key, item in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(clean(item) for item in value) or "–"
    text = printable(str(value)).strip()
    return text or "–"


def clean_or_empty(text: str | None) -> str:
    """A text as one harmless line; nothing for None and the empty text."""
    return clean(text) if text else ""


def names_with_counts(names: Iterable[str], separator: str = ", ") -> str:
    """``2 × NVIDIA H200, NVIDIA A100``; empty without names."""
    return separator.join(name if count == 1 else f"{count} × {name}" for name, count in Counter(names).items())


def framework_text(framework: Framework | None) -> str:
    """``tensorflow 2.21.0``; a dash if it is unknown."""
    return "–" if framework is None else f"{clean(framework.name)} {clean(framework.version)}"


def drawable(*charts: Chart | None) -> tuple[Chart, ...]:
    """The charts of a table, without those for which there is no data."""
    return tuple(chart for chart in charts if chart is not None)


def variable_value(value: str | None) -> str:
    """The value of an environment variable: ``""`` if it is empty, a dash if it is unknown."""
    return '""' if value is not None and not value.strip() else clean(value)


def redaction_text(redacted: bool) -> str:
    """Whether users, hosts and paths are replaced, for the last line of a report."""
    if redacted:
        return "users, hosts and paths are replaced"
    return "users, hosts and paths are not replaced (gpuwatch report --redact does that)"


def clean_finding(finding: Finding) -> Finding:
    """The finding with every text as one harmless line."""
    return msgspec.structs.replace(
        finding,
        title=clean(finding.title),
        evidence=tuple(map(clean, finding.evidence)),
        action=printable(finding.action),
    )

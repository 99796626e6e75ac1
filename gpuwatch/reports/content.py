"""What a report says, before any format: lines, tables and findings as plain text.

Text, Markdown and HTML all draw these, so a new section is written once. Every string that came from
outside has gone through :func:`printable`; formats still escape for their own syntax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpuwatch.formatting.text import printable
from gpuwatch.model.findings import Finding
from gpuwatch.reports.chart_data import Chart

SIMULATED = "SIMULATED"
SIMULATED_NOTE = "The GPUs are simulated: mappings and memory are meaningful, the speed is this computer's CPU."
VALUES = (
    "Under the simulated driver only matrix products and copies are computed, other kernels are not:"
    " values such as a loss mean nothing."
)
SIMULATED_OTHERWISE = (
    "The GPUs are simulated and do not honour a setting of this program: its mappings and memory are not those of a"
    " real GPU; the speed is this computer's CPU."
)
TORCH_VALUES = (
    "Under the simulated driver PyTorch's matrix products and copies are computed, and other kernels are refused."
)
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
"""State by shape, so that it never hangs on colour alone."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headings; ``right`` are the columns of numbers."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()
    note: str = ""
    keep: frozenset[int] = frozenset()
    """Columns that a narrow terminal must not squeeze."""
    one_line: bool = False
    """Whether rows stay one line (long lists): the last column is cut, none is folded."""
    optional: tuple[int, ...] = ()
    """Columns that a narrow terminal leaves out, the first one first; other formats have them."""
    lines: int = 0
    """Lines that a row may have on a terminal; 0: as many as it needs."""
    below: int | None = None
    """A column of sentences: where it would be squeezed, a terminal puts it under its row."""
    shorter: tuple[tuple[int, Callable[[str], str]], ...] = ()
    """Columns whose cells have a short form, for narrow terminals."""
    charts: tuple[Chart, ...] = ()
    """Drawn above the rows, by formats that draw."""
    folded: bool = False
    """Whether formats that can show it on demand only."""


@dataclass(frozen=True, slots=True)
class Content:
    """One document, ready to be drawn."""

    title: str
    subtitle: str
    state: str
    """``ok``, ``warning``, ``error``, ``unknown``: chooses colour and glyph."""
    verdict: str
    reason: str
    simulated: str
    """Empty, or what a reader must know: the GPUs are not real."""
    facts: tuple[tuple[str, str], ...]
    """The story in short: asked, granted, seen, happened, speed."""
    tables: tuple[Table, ...]
    certainty: str = ""
    """``fact`` or ``likely``, where the verdict is a finding."""
    action: str = ""
    """What to do about the verdict, where that comes before everything else."""
    evidence: tuple[str, ...] = ()
    """What the verdict rests on."""
    findings: tuple[Finding, ...] = ()
    log_tail: tuple[str, ...] = ()
    footer: str = ""
    raw: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Lines as they were, by where they are from."""
    parts: tuple[Content, ...] = field(default=())
    """Documents inside this one (the runs of a comparison)."""


def sentence_case(head: str) -> str:
    """``Seen by NVML`` of a terminal's ``SEEN BY NVML``: documents have room for small letters."""
    if not head.isupper() or len(head) < 4:
        return head
    words = [word if word in _NAMES else word.lower() for word in head.replace("GPUS", "GPUs").split(" ")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


_NAMES = frozenset({"NVML", "GPU", "GPUs", "PID", "UUID", "SM", "CUDA"})


def clean(value: object) -> str:
    """Any value as one harmless line."""
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


def variable_value(value: str | None) -> str:
    """The value of an environment variable: an empty one is written as such, a dash is one that nobody knows."""
    return '""' if value is not None and not value.strip() else clean(value)


def clean_finding(finding: Finding) -> Finding:
    """The finding with every text in one harmless line."""
    return Finding(
        id=finding.id,
        severity=finding.severity,
        certainty=finding.certainty,
        title=clean(finding.title),
        evidence=tuple(clean(line) for line in finding.evidence),
        action=printable(finding.action),
        device_uuid=finding.device_uuid,
        pid=finding.pid,
    )

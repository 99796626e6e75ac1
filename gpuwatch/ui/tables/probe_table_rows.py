"""Rows and columns of the probe table: configurations by group, their results, earlier runs; bars below it.

Pure: no widget, no terminal. Columns and cells are those of every comparison
(:mod:`gpuwatch.share.reports.runs_side_by_side`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.share.reports import chart_data
from gpuwatch.share.reports.runs_side_by_side import COLUMNS, RIGHT, labels
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.tables.filter_language import WordFilter

_GPU_BEFORE_ARROW = re.compile(r"GPU:(\d+)→")
_UNIT_BEHIND = re.compile(r"(?<=\d) ([KMGT])iB\b")
_NUMBER_CONTINUES = re.compile(r"\.?\d")

_SHORT_NAMES = (
    ("memory_limit ", "limit "),
    ("per_process_gpu_memory_fraction", "fraction"),
    ("memory growth", "growth"),
    ("CUDA_DEVICE_ORDER=PCI_BUS_ID, ", ""),
    ("/physical_device:", ""),
    (" yes, GPU:", " yes, "),
    (" (expected error)", ""),
    ("everything ran on the CPU", "all→CPU"),
    ("not observed", "not seen"),
)
_MAX_NAME_WORDS = 5
"""Words of the longest name of a variable."""

MARKS_CELLS = 4
"""Cells of the cursor and the selection mark."""
_TITLES = {name: head for name, head, _ in COLUMNS}
_WIDTHS = {
    "config": (21, 24),
    "asked": (23, 31),
    "granted": (10, 20),
    "seen_by_nvml": (9, 12),
    "device_map": (7, 24),
    "on_gpu_percent": (6, 8),
    "fell_back": (9, 22),
    "steps_per_second": (10, 12),
    "verdict": (16, 30),
}
"""Usual and wide; the verdict gets the rest."""
_DROP_ORDER = ("fell_back", "on_gpu_percent", "device_map", "asked", "seen_by_nvml", "granted")
"""Columns dropped when there is no room, in this order."""
_DROPPED_FOR_FALLBACKS = "device_map"
"""Dropped instead of ``fell_back`` if a run has a value there and that is enough."""
_SHORT_TITLES = {"on_gpu_percent": "ON GPU", "seen_by_nvml": "NVML", "steps_per_second": "STEPS/S", "device_map": "MAP"}

_MEMORY_CELLS = 9
"""Cells of an amount of memory."""
_SPEED_CELLS = 12
_MIN_BAR_CELLS = 12
"""Minimum cells of a bar."""
_MAX_CHARTED_RUNS = 30
_MAX_BAR_CELLS = 80
"""Maximum cells of a bar: the number should stand near its name."""
_MIN_CELLS_FOR_BARS = 60

GROUP_WORDS = {
    "memory": "How much GPU memory a program takes, and what limits it: default, growth, limits, fractions.",
    "visibility": "Which GPUs a program sees, and which of them it calls GPU:0: environment, API, mistakes in both.",
    "placement": "Where an op runs, and what happens if it cannot run there: soft and hard placement.",
    "devices": "Work on several devices: virtual GPUs, strategies, towers, model parallelism, several workers.",
    "sharing": "Two programs on one GPU: how memory is shared, which one fails and how, how slow each becomes.",
    "limits": "Limits: the largest batch that fits, free memory that cannot be used.",
    "torch": "The same for PyTorch: device map, visible devices, memory fraction, OOM.",
}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group heading."""

    name: str
    count: int
    chosen: int
    ran: int
    folded: bool = False
    """Whether its configurations are hidden."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A configuration, and its latest run if there is one."""

    script: ProbeScript
    run: Run | None
    chosen: bool
    state: str = ""
    """``running``, ``waiting`` or empty."""


@dataclass(frozen=True, slots=True)
class EarlierRunRow:
    """An older run of the configuration above."""

    run: Run


ProbeRow = GroupRow | ConfigRow | EarlierRunRow
_PROGRAMS = "run"
"""Group of runs of users' programs: one that was tried with growth is no run of the probe of that name."""


def probe_rows(
    scripts: Mapping[str, ProbeScript],
    runs: Mapping[str, Run],
    earlier: Sequence[Run],
    *,
    chosen: set[str],
    running: str,
    waiting: frozenset[str],
    with_earlier: bool,
    folded: Set[str] = frozenset(),
    wanted: WordFilter | None = None,
) -> list[ProbeRow]:
    """Groups, their configurations and, if ``with_earlier``, the earlier runs of each.

    ``folded``: groups that show only their heading; a filter (``wanted``, by name, title and group) opens them.
    """
    if wanted is not None:
        scripts = {name: script for name, script in scripts.items() if wanted(name, script.title, script.group)}
        folded = frozenset()
    old: dict[str, list[Run]] = {}
    for run in earlier:
        if run.group != _PROGRAMS:
            old.setdefault(run.config, []).append(run)
    rows: list[ProbeRow] = []
    for group in dict.fromkeys(script.group for script in scripts.values()):
        members = [script for script in scripts.values() if script.group == group]
        names = {script.name for script in members}
        rows.append(GroupRow(group, len(members), len(names & chosen), len(names & runs.keys()), group in folded))
        if group in folded:
            continue
        for script in members:
            state = "running" if script.name == running else "waiting" if script.name in waiting else ""
            rows.append(ConfigRow(script, runs.get(script.name), script.name in chosen, state))
            if with_earlier:
                rows += [EarlierRunRow(run) for run in old.get(script.name, [])[:5]]
    if with_earlier:
        # Runs of configurations that were removed from the catalog are still results.
        gone = [run for run in earlier if run.config not in scripts or run.group == _PROGRAMS]
        if gone and wanted is None:
            rows += [GroupRow("no longer in the catalog", len(gone), 0, len(gone)), *map(EarlierRunRow, gone)]
    return rows


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column and its position."""

    id: str
    title: str
    start: int
    width: int

    @property
    def at_right(self) -> bool:
        return self.id in RIGHT


@lru_cache(maxsize=32)
def place_columns(
    width: int, *, moved: bool = True, wants: tuple[tuple[str, int], ...] = ()
) -> tuple[PlacedColumn, ...]:
    """Columns that fit into ``width`` cells; ``moved``: whether any run fell back, else that column leaves first.

    ``wants``: cells of the longest text of columns, which get what the verdict does not need.
    """
    size = int(width >= 190)
    widths = {name: both[size] for name, both in _WIDTHS.items()}
    names = list(_TITLES)
    folding = list(_DROP_ORDER)

    def need() -> int:
        gaps = sum(a in RIGHT and b not in RIGHT for a, b in pairwise(names))
        return MARKS_CELLS + sum(widths[name] + 1 for name in names) + gaps - 1

    if moved and need() > width:
        names.remove(_DROPPED_FOR_FALLBACKS)
        if need() > width:
            names.insert(list(_TITLES).index(_DROPPED_FOR_FALLBACKS), _DROPPED_FOR_FALLBACKS)
    while folding and need() > width:
        gone = folding.pop(0)
        names = [name for name in names if name != gone]
    spare = width - need() + widths["verdict"] - max(dict(wants).get("verdict", 0), widths["verdict"])
    for name, cells in wants:
        if name in names and name != "verdict" and widths[name] < cells and spare > 0:
            more = min(cells - widths[name], spare)
            widths[name], spare = widths[name] + more, spare - more
    placed: list[PlacedColumn] = []
    x = MARKS_CELLS
    for name in names:
        wide = widths[name] if name != "verdict" else max(width - x, 2)
        title = _TITLES[name] if len(_TITLES[name]) <= wide else _SHORT_TITLES.get(name, _TITLES[name])
        # A gap between a number and the text after it.
        if placed and placed[-1].at_right and name not in RIGHT:
            x += 1
            wide = wide - 1 if name == "verdict" else wide
        placed.append(PlacedColumn(name, title, x, wide))
        x += wide + 1
    return tuple(placed)


def fit_cell(text: str, width: int) -> str:
    """A cell's text, abbreviated if too long: ``0→0 1→1``, ``…VISIBLE_DEVICES=-1``, ``1.5G+138G``.

    If it still does not fit, it is cut before a number, never inside one.
    """
    if width_of(text) <= width:
        return text
    if "→" in text:
        text = _short_map(_GPU_BEFORE_ARROW.sub(r"\1→", text).replace(", ", " "), width)
        return text if width_of(text) <= width else _cut_before_number(text, width)
    for name, short in _SHORT_NAMES:
        text = text.replace(name, short)
    if width_of(text) <= width:
        return text
    if " · " in text:
        return cut_to_width(_cut_cause(text, width), width)
    text = _UNIT_BEHIND.sub(r"\1", text).replace(" + ", "+")
    if ", " in text:
        text = text.replace("=true", "")
    # The value of a variable matters more than the start of its name, which is cut between two words.
    for dropped in range(_MAX_NAME_WORDS):
        parts = [_cut_variable(part, dropped) for part in text.split(", ")]
        if width_of(", ".join(parts)) <= width:
            return ", ".join(parts)
    parts = [_cut_variable(part, _MAX_NAME_WORDS) for part in text.split(", ")]
    return _cut_before_number(", ".join(parts), width)


def _cut_cause(verdict: str, width: int) -> str:
    """``✖ oom · limit…`` for a cause of several words: cut between two of them, or left out."""
    before, _, cause = verdict.partition(" · ")
    words = cause.split("-")
    for count in range(len(words) - 1, 0, -1):
        text = f"{before} · {'-'.join(words[:count])}…"
        if width_of(text) <= width:
            return text
    return before


def _cut_variable(part: str, count: int) -> str:
    """``…ALLOW_GROWTH=true`` for a variable without its first two words; other text stays."""
    name, equals, value = part.partition("=")
    if not count or "_" not in name or not name.isupper():
        return part
    return f"…{'_'.join(name.split('_')[count:])}{equals}{value}"


def _short_map(text: str, width: int) -> str:
    """``0-7→0-7`` for a map of consecutive numbers."""
    pairs = [pair.partition("→") for pair in text.split(" ")]
    if width_of(text) <= width or len(pairs) < 3 or not all(a.isdigit() and b.isdigit() for a, _, b in pairs):
        return text
    numbers = [(int(a), int(b)) for a, _, b in pairs]
    (first, there), (last, end) = numbers[0], numbers[-1]
    steps = [(first + n, there + n) for n in range(len(numbers))]
    return f"{first}-{last}→{there}-{end}" if numbers == steps else text


def _cut_before_number(text: str, width: int) -> str:
    """Cut with an ellipsis; a number that does not fit is dropped entirely."""
    short = cut_to_width(text, width)
    kept = short.removesuffix("…")
    if kept[-1:].isdigit() and _NUMBER_CONTINUES.match(text, len(kept)):
        kept = kept.rstrip("0123456789.-")
    return kept.rstrip(" ,+=→") + "…" if kept else short


def probe_bar_lines(document: Comparison, width: int, room: int, chosen: int | None = None) -> list[Line]:
    """A heading with the axes, and a line for each run that held GPU memory; empty for fewer than two runs.

    ``chosen``: index of a run to keep in view. Speeds of simulated GPUs are this computer's and are left out.
    """
    named = list(zip(labels(document.runs), document.runs, strict=True))
    if chosen is not None and chosen >= _MAX_CHARTED_RUNS:  # a chart has no more rows than that
        start = len(named) - _MAX_CHARTED_RUNS if len(named) - chosen < _MAX_CHARTED_RUNS else chosen
        named, chosen = named[start:], chosen - start
    memory = chart_data.memory_of_runs(named)
    if memory is None or room < 3 or width < _MIN_CELLS_FOR_BARS:
        return []
    simulated = any(run.simulated for run in document.runs)
    alike = {labels(document.runs)[index] for index in document.comparable}
    speeds = None if simulated else chart_data.speed_chart([pair for pair in named if pair[0] in alike])
    speed_of = {row.label: row for row in speeds.rows} if speeds is not None else {}
    name = max(width_of(row.label) for row in memory.rows) + 2
    parts = 2 if speed_of else 1
    bar = min((width - name - _MEMORY_CELLS - 4 - (_SPEED_CELLS + 5 if speed_of else 0)) // parts, _MAX_BAR_CELLS)
    if bar < _MIN_BAR_CELLS:
        return []
    behind = name + bar + _MEMORY_CELLS + 6
    rows, first = list(memory.rows), 0
    if len(rows) > room - 1:
        wanted = next((n for n, row in enumerate(rows) if chosen is not None and row.label == named[chosen][0]), 0)
        first = min(max(wanted - (room - 1) // 2, 0), len(rows) - room + 1)
    shown = min(len(rows), room - 1)
    of = f" · {shown} of {len(rows)} runs" if shown < len(rows) else ""
    title = f"Seen by NVML, {memory.axis}{of}"
    head = LineBuilder(width).fill_to(name, style="header")
    head.add(cut_to_width(title, behind - name - 2) if speeds is not None else title, "header")
    if speeds is not None:
        head.fill_to(behind, style="header").add("steps/s, from 0", "header")
    lines = [head.fill_to(width, style="header").line()]
    for row in rows[first : first + shown]:
        builder = LineBuilder(width)
        mine = chosen is not None and row.label == named[chosen][0]
        builder.add(align_left(f" {row.label}", name), "strong" if mine else "text")
        builder.bar(row.parts[0].amount / memory.top, bar, "memory")
        builder.add(align_right(row.parts[0].shown, _MEMORY_CELLS), "text")
        speed = speed_of.get(row.label)
        if speeds is not None and speed is not None:
            builder.fill_to(behind).bar(speed.parts[0].amount / speeds.top, bar, "graph")
            builder.add(align_right(speed.shown, _SPEED_CELLS), "text")
        elif speeds is not None:
            builder.fill_to(behind).add("not comparable", "dim")
        lines.append(builder.line())
    return lines

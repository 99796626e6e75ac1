"""The table of the Probes tab: its rows, its columns with texts abbreviated to them, the widget."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from gpuwatch.core.formatting.durations import ago
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.share.reports.comparison_report import BEST_MARK, speed_marks
from gpuwatch.share.reports.report_elements import GLYPHS
from gpuwatch.share.reports.run_report import fallback_text, state_of
from gpuwatch.share.reports.runs_side_by_side import COLUMNS, RIGHT_ALIGNED, run_cells
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.widgets.scroll_list import NO_MATCH, ItemList


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group heading."""

    name: str
    count: int
    selected_count: int
    ran: int
    folded: bool = False
    """Whether its configurations are hidden."""


@dataclass(frozen=True, slots=True)
class ConfigRow:
    """A configuration, and its latest run if there is one."""

    script: ProbeScript
    run: Run | None
    selected: bool
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
    selected: set[str],
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
    earlier_by_config: dict[str, list[Run]] = {}
    for run in earlier:
        if run.group != _PROGRAMS:
            earlier_by_config.setdefault(run.config, []).append(run)
    rows: list[ProbeRow] = []
    for group in dict.fromkeys(script.group for script in scripts.values()):
        members = [script for script in scripts.values() if script.group == group]
        names = {script.name for script in members}
        rows.append(GroupRow(group, len(members), len(names & selected), len(names & runs.keys()), group in folded))
        if group in folded:
            continue
        for script in members:
            state = "running" if script.name == running else "waiting" if script.name in waiting else ""
            rows.append(ConfigRow(script, runs.get(script.name), script.name in selected, state))
            if with_earlier:
                rows += [EarlierRunRow(run) for run in earlier_by_config.get(script.name, [])[:5]]
    if with_earlier:
        # Runs of configurations that were removed from the catalog are still results.
        removed = [run for run in earlier if run.config not in scripts or run.group == _PROGRAMS]
        if removed and wanted is None:
            rows += [GroupRow("no longer in the catalog", len(removed), 0, len(removed)), *map(EarlierRunRow, removed)]
    return rows


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


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column and its position."""

    id: str
    title: str
    start: int
    width: int

    @property
    def at_right(self) -> bool:
        return self.id in RIGHT_ALIGNED


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
        gaps = sum(a in RIGHT_ALIGNED and b not in RIGHT_ALIGNED for a, b in pairwise(names))
        return MARKS_CELLS + sum(widths[name] + 1 for name in names) + gaps - 1

    if moved and need() > width:
        names.remove(_DROPPED_FOR_FALLBACKS)
        if need() > width:
            names.insert(list(_TITLES).index(_DROPPED_FOR_FALLBACKS), _DROPPED_FOR_FALLBACKS)
    while folding and need() > width:
        dropped = folding.pop(0)
        names = [name for name in names if name != dropped]
    spare = width - need() + widths["verdict"] - max(dict(wants).get("verdict", 0), widths["verdict"])
    for name, wanted in wants:
        if name in names and name != "verdict" and widths[name] < wanted and spare > 0:
            more = min(wanted - widths[name], spare)
            widths[name], spare = widths[name] + more, spare - more
    placed: list[PlacedColumn] = []
    x = MARKS_CELLS
    for name in names:
        wide = widths[name] if name != "verdict" else max(width - x, 2)
        title = _TITLES[name] if len(_TITLES[name]) <= wide else _SHORT_TITLES.get(name, _TITLES[name])
        # A gap between a number and the text after it.
        if placed and placed[-1].at_right and name not in RIGHT_ALIGNED:
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


STATE_STYLES = {"ok": "ok", "info": "text", "warning": "warning", "error": "error", "skipped": "dim"}
"""TextStyle of a run by its state (:func:`gpuwatch.share.reports.run_report.state_of`)."""

_WIDENED_COLUMNS = ("verdict", "asked", "granted", "device_map", "fell_back")
"""Columns that get the cells that are left, the first ones first."""


class ProbeTable(ItemList[ProbeRow]):
    """Groups, configurations, earlier runs."""

    BINDINGS = bindings("probes")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Probes", id=id)
        self._best: Mapping[str, str] = {}
        self._marks: dict[int, tuple[str, ...]] = {}
        """Marks beside the speed of a run, by ``id(run)``."""
        self._activity = ""
        self._now = 0.0

    def show(self, rows: list[ProbeRow], comparison: Comparison, *, doing: str, now: float) -> None:
        """Shows rows; the cursor stays with its row."""
        self._best = {column: comparison.runs[index].config for column, index in comparison.best_run.items()}
        self._activity, self._now = doing, now
        self._marks = {id(run): speed_marks(comparison, index) for index, run in enumerate(comparison.runs)}
        self.set_items(rows, _row_key, follow_first=True)

    @property
    def counts(self) -> tuple[int, int]:
        """Configurations, not their headings."""
        return sum(isinstance(row, ConfigRow) for row in self.items), self.total

    def go_to_name(self, typed: str) -> None:
        """Puts the cursor on the configuration of this name, else on the first that begins so, else on the first."""
        names = {row.script.name: number for number, row in enumerate(self.items) if isinstance(row, ConfigRow)}
        begun = [name for name in names if name.startswith(typed)]
        if names:
            self.put_cursor(names[typed if typed in names else next(iter(begun or names))])
            self.redraw()

    def follow(self, config: str) -> None:
        """Scrolls a configuration into view without moving the cursor."""
        for number, row in enumerate(self.items):
            if isinstance(row, ConfigRow) and row.script.name == config:
                self.top = min(max(self.top, number - self.room + 3), max(number - 1, 0))

    def rebuild(self) -> None:
        runs = [row.run for row in self.items if not isinstance(row, GroupRow) and row.run is not None]
        texts = [run_cells(run) for run in runs]
        wants = tuple((name, max((width_of(text[name]) for text in texts), default=0) + 2) for name in _WIDENED_COLUMNS)
        columns = place_columns(self.inner_width, moved=any(fallback_text(run) != UNKNOWN for run in runs), wants=wants)
        head = LineBuilder(self.inner_width)
        head.fill_to(MARKS_CELLS, style="header")
        for placed in columns:
            head.fill_to(placed.start, style="header")
            head.add((align_right if placed.at_right else align_left)(placed.title, placed.width), "header")
        self.head = [head.fill_to(self.inner_width, style="header").line()]
        self.set_lines([self._line(row, columns) for row in self.items] or [NO_MATCH])

    def _line(self, row: ProbeRow, columns: tuple[PlacedColumn, ...]) -> Line:
        builder = LineBuilder(self.inner_width)
        if isinstance(row, GroupRow):
            mark = "■" if row.count and row.selected_count == row.count else "◧" if row.selected_count else " "
            builder.add("  ").add(f"{mark} ", "accent")
            builder.add(f"{'▸' if row.folded else '▾'} {printable(row.name)}", "title")
            return builder.add(f"  {row.ran} of {row.count} ran" if row.ran else f"  {row.count}", "dim").line()
        if isinstance(row, EarlierRunRow):
            shown = run_cells(row.run)
            shown["config"] = f" └ {ago(self._now - row.run.started_at.timestamp())}"
            return self._cells(builder.add("    "), row.run, shown, columns, old=True)
        mark, style = ("■", "accent") if row.selected else ("□", "track")
        builder.add("  ").add(f"{mark} ", style)
        name = printable(row.script.name)
        if row.run is not None and not row.state:
            return self._cells(builder, row.run, run_cells(row.run), columns)
        builder.add(align_left(name, columns[0].width), "strong" if row.state == "running" else "text").add(" ")
        if row.state == "running":
            return builder.add("▸ ", "accent").add(printable(self._activity), "accent").line()
        if row.state == "waiting":
            return builder.add("· queued", "dim").line()
        return builder.add(printable(row.script.title), "dim").line()

    def _cells(
        self,
        builder: LineBuilder,
        run: Run,
        shown: dict[str, str],
        columns: tuple[PlacedColumn, ...],
        *,
        old: bool = False,
    ) -> Line:
        for placed in columns:
            text, style = shown[placed.id], "dim" if old else "text"
            if placed.id == "verdict":
                state = state_of(run)
                text, style = f"{GLYPHS[state]} {text}", STATE_STYLES[state]
            elif text == "–" or placed.id in ("asked", "device_map"):
                style = "dim"
            elif placed.id == "config":
                style = "dim" if old else "strong"
            marks = self._marks.get(id(run), ()) if placed.id == "steps_per_second" else ()
            text = _with_marks(text, marks, placed.width)
            best = not old and self._best.get(placed.id) == run.config
            if best:
                style = "ok"
            builder.fill_to(placed.start)
            if best and width_of(text) + 2 <= placed.width:
                text = f"{BEST_MARK} {text}"
            builder.add((align_right if placed.at_right else align_left)(text, placed.width), style)
        return builder.line()


def _with_marks(text: str, marks: tuple[str, ...], width: int) -> str:
    """The text with its marks; if there is no room, the spread is dropped."""
    if not marks:
        return fit_cell(text, width)
    for shown in (" ".join((text, *marks)), text.replace(" ", "") + "".join(marks)):
        if width_of(shown) <= width:
            return shown
    return f"{text.partition(' ')[0]} {''.join(marks)}"


def _row_key(row: ProbeRow) -> tuple[object, ...]:
    if isinstance(row, GroupRow):
        return ("group", row.name)
    if isinstance(row, EarlierRunRow):
        return ("earlier", row.run.config, row.run.started_at)
    return ("config", row.script.name)

"""The table of the Probes tab."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.core.formatting.durations import ago
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.core.safe_text import printable
from gpuwatch.share.reports.comparison_report import BEST, speed_marks
from gpuwatch.share.reports.report_elements import GLYPHS
from gpuwatch.share.reports.run_report import fallback_text, state_of
from gpuwatch.share.reports.runs_side_by_side import cells
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import align_left, align_right, width_of
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.probe_table_columns import MARKS_CELLS, PlacedColumn, fit_cell, place_columns
from gpuwatch.ui.tables.probe_table_rows import ConfigRow, EarlierRunRow, GroupRow, ProbeRow
from gpuwatch.ui.widgets.scroll_list import NO_MATCH, ItemList

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
        texts = [cells(run) for run in runs]
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
            mark = "■" if row.count and row.chosen == row.count else "◧" if row.chosen else " "
            builder.add("  ").add(f"{mark} ", "accent").add(
                f"{'▸' if row.folded else '▾'} {printable(row.name)}", "title"
            )
            return builder.add(f"  {row.ran} of {row.count} ran" if row.ran else f"  {row.count}", "dim").line()
        if isinstance(row, EarlierRunRow):
            shown = cells(row.run)
            shown["config"] = f" └ {ago(self._now - row.run.started_at.timestamp())}"
            return self._cells(builder.add("    "), row.run, shown, columns, old=True)
        mark, style = ("■", "accent") if row.chosen else ("□", "track")
        builder.add("  ").add(f"{mark} ", style)
        name = printable(row.script.name)
        if row.run is not None and not row.state:
            return self._cells(builder, row.run, cells(row.run), columns)
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
                text = f"{BEST} {text}"
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

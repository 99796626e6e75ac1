"""Lines of the process table: header, rows, border, the latest events below. Pure: the first frame uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice

from gpuwatch.core.formatting.command_lines import without_folder
from gpuwatch.core.formatting.grouped_findings import grouped_texts
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.machine.history.machine_event import Severity
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.glyphs import EVENT_MARKS, SEVERITY_MARKS
from gpuwatch.ui.drawing.line_builder import LineBuilder, filtered_title, scroll_thumb, visible_rows, with_border
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.tables.process_columns import (
    COLUMN_BY_ID,
    Column,
    PlacedColumn,
    command_text,
    memory_text,
    place_columns,
    time_column_text,
    why_unavailable,
)
from gpuwatch.ui.tables.process_table_rows import (
    Branch,
    Row,
    RowKey,
    UnexplainedMemory,
    largest_memory,
    sorted_rows,
    table_rows,
)

SCROLL_CELLS = 8
"""Cells that one key press scrolls the command."""
_MIN_EMPTY_LINES = 4
"""Empty lines of a table from which on it has events in them: two, below a heading and a line apart."""
NO_PROCESS = "no process uses a GPU"
_MIN_BUSY_PERCENT = 1.0
_DIM_COLUMNS = frozenset({"pid", "type", "time", "sees", "host"})
_SHARE_READINGS = {"sm": "sm_percent", "mbw": "memory_percent", "cpu": "cpu_percent"}


@dataclass(slots=True)
class TableLayout:
    """How a table is drawn: columns, sort order, focus."""

    columns: tuple[PlacedColumn, ...]
    width: int
    """Cells inside the frame."""
    sort_column: str
    sort_reverse: bool
    at: float
    """Moment of the run times, in seconds since the epoch."""
    focused: bool = False
    scrolled_cells: int = 0
    """Cells by which commands are scrolled."""
    branches: Mapping[RowKey, Branch] = field(default_factory=dict)
    mig_indices: Mapping[tuple[str | None, str | None], int] = field(default_factory=dict)
    """Index of each MIG instance, by device UUID and instance id."""
    largest_memory: float = 0.0
    """The largest amount of GPU memory, in bytes."""
    marks: Mapping[tuple[int, str | None], Span] = field(default_factory=dict)
    """What :func:`finding_marks` found."""


def finding_marks(findings: Iterable[Finding]) -> dict[tuple[int, str | None], Span]:
    """A sign before each row that a current finding is about, by pid and device: an idle holder has ``●`` from the
    first minute on.
    """
    current = [finding for finding in findings if finding.pid is not None and finding.until is None]
    current.sort(key=lambda finding: -SEVERITY_ORDER[finding.severity])  # the worst one wins
    return {(finding.pid or 0, finding.device_uuid): SEVERITY_MARKS[finding.severity] for finding in current}


def mig_indices(snapshot: Snapshot) -> dict[tuple[str | None, str | None], int]:
    """The value of :attr:`TableLayout.mig_indices`."""
    return {(device.uuid, mig.id): mig.index for device in snapshot.devices for mig in device.mig_instances}


def time_cell(process: Process, placed: PlacedColumn, at: float) -> Span:
    """A cell of a column of times, in its width."""
    text = time_column_text(placed.column, process, at)
    return align_right(text, placed.width), _style(process, placed.column, text)


def process_count(rows: Iterable[Row]) -> int:
    """How many of the rows are processes."""
    return sum(isinstance(row, Process) for row in rows)


def full_command(row: Row) -> str:
    """Full text of the command column."""
    return row.reason if isinstance(row, UnexplainedMemory) else command_text(row)


def header_line(layout: TableLayout, shown: Sequence[Row]) -> Line:
    """The column headers above the rows ``shown``."""
    builder = LineBuilder(layout.width)
    blank = False
    for placed in layout.columns:
        title = placed.column.title
        sorted_by = placed.column.id == layout.sort_column
        mark = ("↓" if layout.sort_reverse else "↑") if sorted_by else ""
        style = "sorted" if sorted_by else "header"
        if placed.column.id == "command" and any(width_of(full_command(row)) > placed.width for row in shown):
            title += " →"  # the key that scrolls it
        text = title + mark
        if placed.at_right and (len(title) < placed.width or blank):
            # The arrow goes before the name if there is a cell, so that headers stay above their numbers.
            wide = placed.width + (len(title) >= placed.width)
            builder.fill_to(placed.start + placed.width - wide, style="header")
            builder.add(align_right(mark + title, wide), style)
        elif placed.at_right:
            builder.fill_to(placed.start, style="header").add(align_right(title, placed.width), style).add(mark, style)
        else:
            size = min(max(placed.width, len(text)), placed.width + 1, builder.cells_left)
            builder.fill_to(placed.start, style="header").add(align_left(text, size), style)
        blank = not placed.at_right and len(text) < placed.width
    builder.fill_to(layout.width, style="header")
    return builder.line()


def row_line(row: Row, layout: TableLayout, *, chosen: bool = False, tagged: bool = False) -> Line:
    """One row; ``chosen``: whether it is under the cursor."""
    builder = LineBuilder(layout.width)
    builder.add("▶" if chosen else " ", "focus" if layout.focused else "dim")
    mark = layout.marks.get((row.pid, row.device_uuid)) if isinstance(row, Process) else None
    builder.add(*(("✓", "accent") if tagged else mark or (" ", "text")))
    if isinstance(row, UnexplainedMemory):
        _unexplained(builder, row, layout)
    else:
        branch = layout.branches.get(row.key) if layout.branches else None
        for placed in layout.columns:
            _cell(builder, row, placed, layout, branch)
    return builder.fill_to(layout.width).line(chosen and layout.focused)


def table_lines(
    rows: Sequence[Row],
    layout: TableLayout,
    room: int,
    *,
    top: int = 0,
    cursor: int = 0,
    tagged: Callable[[Row], bool] = lambda row: False,
    empty: str = NO_PROCESS,
) -> list[Line]:
    """The header, and ``room`` rows from ``top`` on; ``empty``: why there is none."""
    shown = rows[top : top + room]
    lines = [header_line(layout, shown)]
    for number, row in enumerate(shown, top):
        lines.append(row_line(row, layout, chosen=number == cursor, tagged=tagged(row)))
    if not rows and room > 1:
        lines.append(Line(((f"  {empty}", "dim"),)))
    return lines


def _cell(
    builder: LineBuilder, process: Process, placed: PlacedColumn, layout: TableLayout, branch: Branch | None
) -> None:
    column = placed.column
    if column.id == "memory":
        text = memory_text(process.number("gpu_memory_bytes"), placed.width, layout.largest_memory)
    elif column.seconds is not None:
        text = time_column_text(column, process, layout.at)
    else:
        text = column.text_of(process, placed.width)
    number = layout.mig_indices.get((process.device_uuid, process.mig_instance)) if column.id == "mig" else None
    if number is not None and len(f"{number} ({text})") <= placed.width:
        text = f"{number} ({text})"
    if column.id == "command" and branch is not None and not branch.requested:
        text = without_folder(command_text(process))  # the tree shows who launched it
    if column.id == "command" and layout.scrolled_cells:
        # The first step to the right shows the full path, later steps scroll.
        text = command_text(process)
        text = "…" + text[layout.scrolled_cells - SCROLL_CELLS + 1 :] if layout.scrolled_cells > SCROLL_CELLS else text
    style = "dim" if branch is not None and not branch.requested else _style(process, column, text)
    builder.fill_to(placed.start)
    width = placed.width
    if branch is not None and column.id == "command":
        builder.add(cut_to_width(branch.lead, width), "faint")
        width, style = max(width - width_of(branch.lead), 0), "text" if branch.requested else "dim"
    builder.add(align_right(text, width) if placed.at_right else align_left(text, width), style)


def _style(process: Process, column: Column, text: str) -> str:
    if text.startswith(("–", "(")) or text in ("busy", "<1m") or column.id in _DIM_COLUMNS or process.type == "G":
        return "dim"
    if column.id in ("gpu", "memory"):
        return "strong"
    if column.id in _SHARE_READINGS:
        busy = (process.number(_SHARE_READINGS[column.id]) or 0) >= _MIN_BUSY_PERCENT
        return ("gpu" if column.id == "sm" else "text") if busy else "dim"
    return "accent" if column.id == "framework" else "text"


def _unexplained(builder: LineBuilder, row: UnexplainedMemory, layout: TableLayout) -> None:
    """GPU, "unexplained" and the amount in their columns; the reason in the largest gap."""
    used = [placed for placed in layout.columns if placed.column.id in ("gpu", "pid", "memory")]
    cells: list[tuple[int, str, str]] = []
    ends = []
    starts = [placed.start for placed in used] + [builder.width]
    for placed, following in zip(used, starts[1:], strict=True):
        match placed.column.id:
            case "gpu":
                index = str(row.parts[0][0].index) if len(row.parts) == 1 else UNKNOWN
                text, style = align_left(index, placed.width), "strong"
            case "pid":
                text, style = cut_to_width("unexplained", following - placed.start - 1), "warning"
            case _:
                amount = memory_text(row.amount, placed.width, layout.largest_memory)
                text, style = align_right(amount, placed.width), "strong"
        cells.append((placed.start, text, style))
        ends.append((following - placed.start - len(text), placed.start + len(text)))
    ends.append((starts[0] - builder.x, builder.x - 2))
    room, start = max(ends)
    cells.append((start + 2, cut_to_width(row.reason, room - 3), "dim"))
    for x, text, style in sorted(cells):
        builder.fill_to(x).add(text, style)


def preferred_order(chosen: Preferences) -> tuple[str, bool] | None:
    """The preferred column to sort by, and whether largest first; None if none was chosen."""
    if chosen.sort not in COLUMN_BY_ID:
        return None
    return chosen.sort, COLUMN_BY_ID[chosen.sort].descends if chosen.descending is None else chosen.descending


def initial_table(view: View, chosen: Preferences, width: int, height: int, *, framed: bool) -> tuple[list[Line], str]:
    """The table in its initial state, and the footer's note for a table without a frame.

    Neither filtered nor as a tree: the table widget does that.
    """
    snapshot = view.snapshot
    assert snapshot is not None
    gpus = bool(snapshot.devices)
    sort, descending = preferred_order(chosen) or ("memory" if gpus else "cpu", True)
    known = [name for name in chosen.columns if name in COLUMN_BY_ID]
    ids = tuple(name for name in known if not why_unavailable(COLUMN_BY_ID[name], snapshot))
    inner = width - 2 * framed
    at = snapshot.taken_at.timestamp()
    rows = sorted_rows(table_rows(snapshot), COLUMN_BY_ID[sort], reverse=descending)
    columns, indices, most = place_columns(inner, ids, gpus=gpus), mig_indices(snapshot), largest_memory(rows)
    layout = TableLayout(columns, inner, sort, descending, at, focused=True, mig_indices=indices, largest_memory=most)
    room = max(height - 1 - 2 * framed, 1)
    lines = table_lines(rows, layout, room)
    if framed:
        return bordered_table(lines, layout, height, rows=rows, total=len(snapshot.processes)), ""
    return lines, visible_rows(0, room, len(snapshot.processes))


def bordered_table(
    lines: list[Line],
    layout: TableLayout,
    height: int,
    *,
    rows: Sequence[Row],
    total: int,
    top: int = 0,
    filtered: str | None = None,
    requested: int = 0,
    tagged: int = 0,
    as_tree: bool = False,
) -> list[Line]:
    """Header and rows from ``top`` on in a frame of ``height`` lines.

    ``rows``: all of the list; ``total``: process rows without a filter; ``requested``: those that match it.
    """
    width, count = layout.width + 2, process_count(rows)
    typed = cut_to_width(filtered, width // 3) if filtered is not None else None
    by = COLUMN_BY_ID[layout.sort_column].title.lower()
    counts = f"{requested} of {total}" if filtered is not None else str(total)
    seen = visible_rows(top, max(height - 3, 1), count)
    if seen:
        counts = f"{seen}, {counts}" if filtered is not None or count != total else seen
    counts += f", {tagged} tagged" if tagged else ""
    return with_border(
        lines,
        width,
        height,
        title=filtered_title("Processes", typed, " as a tree" * as_tree),
        note=f" {counts}, by {by} {'↓' if layout.sort_reverse else '↑'} " if total else "",
        focused=layout.focused,
        scroll_bar=scroll_thumb(top, max(height - 3, 1), len(rows)),
        scroll_bar_top=1,
    )


def with_latest_events(lines: list[Line], view: View, width: int, room: int) -> list[Line]:
    """A table with the machine's latest events at its bottom, newest first, if there are lines for some."""
    spare = room - len(lines)
    if not view.events or spare < _MIN_EMPTY_LINES:
        return lines
    below = [LineBuilder(width).add("  LATEST EVENTS", "header").fill_to(width, style="header").line()]
    for at, severity, text in islice(_newest_events(view), spare - 2):
        glyph, style = EVENT_MARKS[severity]
        builder = LineBuilder(width).add(f"  {clock_text(at, view.now)}  ", "dim").add(f"{glyph} ", style)
        below.append(builder.add(cut_to_width(text, builder.cells_left), "text").line())
    return [*lines, *[Line(())] * (spare - len(below)), *below]


def _newest_events(view: View) -> Iterator[tuple[float, Severity, str]]:
    """Time, severity and text of the events, newest first; equal ones of several GPUs at one moment are one."""
    indices = {device.uuid: device.index for device in view.devices}
    for at, events in groupby(reversed(view.events), key=lambda event: event.at):
        alike = group_by(events, lambda event: (event.severity, event.kind, event.pid))
        for (severity, *_), same_kind in alike.items():
            texts = grouped_texts((indices.get(event.device_uuid or "", -1), event.text) for event in same_kind)
            yield from ((at, severity, text) for text in texts)

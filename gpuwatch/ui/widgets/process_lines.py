"""The lines of the process table: its head, a row, its frame. Pure, no Textual: the first picture has them too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.formatting.units import duration, memory
from gpuwatch.model.snapshot import Process, Snapshot
from gpuwatch.ui.cells import cut, left, right, width_of
from gpuwatch.ui.lines import Line, Span
from gpuwatch.ui.preferences import Preferences
from gpuwatch.ui.rows import (
    BY_ID,
    Key,
    Placed,
    Row,
    Unexplained,
    command_text,
    in_order,
    place,
    rows_of,
    unavailable,
)
from gpuwatch.ui.tree import Branch
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.frame import frame, part, thumb
from gpuwatch.ui.widgets.pen import Pen

RUN_TIME = "run_seconds"
STEP = 8
"""Cells that one key press scrolls the command."""
NOBODY = "no process uses a GPU"
_BUSY = 1.0
_DIM = frozenset({"pid", "type", "time", "sees", "host"})
_SHARES = {"sm": "sm_percent", "mbw": "memory_percent", "cpu": "cpu_percent"}


@dataclass(slots=True)
class Look:
    """What the lines of a table follow, beside its rows."""

    columns: tuple[Placed, ...]
    width: int
    """Cells inside the frame."""
    sort_column: str
    sort_reverse: bool
    at: float | None = None
    """Moment of the run times, in seconds since the epoch; None: as the rows have them."""
    focused: bool = False
    shift: int = 0
    """Cells by which commands are scrolled."""
    branches: Mapping[Key, Branch] = field(default_factory=dict)
    parts: Mapping[tuple[str | None, str | None], int] = field(default_factory=dict)
    """Numbers of MIG instances, by the device and what its processes call them."""


def parts_of(snapshot: Snapshot) -> dict[tuple[str | None, str | None], int]:
    """See :attr:`Look.parts`."""
    return {(device.uuid, one.id): one.index for device in snapshot.devices for one in device.mig_instances}


def ran(process: Process, at: float | None) -> float | None:
    """Seconds that a process had run at a moment: a row is as it was when something else last changed."""
    if at is None or process.create_time is None:
        return process.number(RUN_TIME)
    return max(at - process.create_time, 0.0)


def run_time(process: Process, placed: Placed, at: float | None) -> str:
    """What the column of run times says."""
    return right(duration(ran(process, at)), placed.width)


def command(row: Row) -> str:
    """What stands in the column of commands, in full."""
    return row.reason if isinstance(row, Unexplained) else command_text(row)


def head(look: Look, shown: Sequence[Row]) -> Line:
    """The names of the columns, over the rows that are ``shown``."""
    pen = Pen(look.width)
    blank = False
    for placed in look.columns:
        title = placed.column.title
        sorted_by = placed.column.id == look.sort_column
        mark = ("↓" if look.sort_reverse else "↑") if sorted_by else ""
        ink = "sorted" if sorted_by else "header"
        if placed.column.id == "command" and any(width_of(command(row)) > placed.width for row in shown):
            title += " →"  # the key that scrolls it
        text = title + mark
        if placed.at_right and (len(title) < placed.width or blank):
            # Before the name, where there is a cell: heads stay over their numbers, and apart.
            wide = placed.width + (len(title) >= placed.width)
            pen.to(placed.start + placed.width - wide, ink="header").add(right(mark + title, wide), ink)
        elif placed.at_right:
            pen.to(placed.start, ink="header").add(right(title, placed.width), ink).add(mark, ink)
        else:
            size = min(max(placed.width, len(text)), placed.width + 1, pen.left)
            pen.to(placed.start, ink="header").add(left(text, size), ink)
        blank = not placed.at_right and len(text) < placed.width
    pen.to(look.width, ink="header")
    return pen.line()


def line(row: Row, look: Look, *, chosen: bool = False, tagged: bool = False) -> Line:
    """One row; ``chosen``: it is under the cursor."""
    pen = Pen(look.width)
    pen.add("▶" if chosen else " ", "focus" if look.focused else "dim")
    pen.add("✓" if tagged else " ", "accent")
    if isinstance(row, Unexplained):
        _unexplained(pen, row, look.columns)
    else:
        branch = look.branches.get(row.key) if look.branches else None
        for placed in look.columns:
            _cell(pen, row, placed, look, branch)
    return pen.to(look.width).line("cursor" if chosen and look.focused else "")


def _cell(pen: Pen, process: Process, placed: Placed, look: Look, branch: Branch | None) -> None:
    column = placed.column
    if column.reading == RUN_TIME:
        text = duration(ran(process, look.at))
    else:
        text = column.text(process, placed.width)
    number = look.parts.get((process.device_uuid, process.mig_instance)) if column.id == "mig" and look.parts else None
    if number is not None and len(f"{number} ({text})") <= placed.width:
        text = f"{number} ({text})"
    if column.id == "command" and look.shift:
        # The first step to the right shows the whole path, the next ones what follows.
        text = command_text(process)
        text = "…" + text[look.shift - STEP + 1 :] if look.shift > STEP else text
    if branch is not None and column.id == "command":
        pen.to(placed.start).add(cut(branch.lead, placed.width), "faint")
        lead = min(width_of(branch.lead), placed.width)
        pen.add(left(text, placed.width - lead), "text" if branch.asked else "dim")
        return
    ink = "text"
    if branch is not None and not branch.asked:
        pen.to(placed.start)
        pen.add(right(text, placed.width) if placed.at_right else left(text, placed.width), "dim")
        return
    if text.startswith(("–", "(")) or column.id in _DIM or process.type == "G":
        ink = "dim"
    elif column.id in ("gpu", "memory"):
        ink = "strong"
    elif column.id in _SHARES:
        busy = (process.number(_SHARES[column.id]) or 0) >= _BUSY
        ink = ("gpu" if column.id == "sm" else "text") if busy else "dim"
    elif column.id == "framework":
        ink = "accent"
    pen.to(placed.start)
    pen.add(right(text, placed.width) if placed.at_right else left(text, placed.width), ink)


def _unexplained(pen: Pen, row: Unexplained, columns: tuple[Placed, ...]) -> None:
    """GPU, the word and the amount in their columns; the reason where there is most room between them."""
    told = [placed for placed in columns if placed.column.id in ("gpu", "pid", "memory")]
    cells: list[tuple[int, str, str]] = []
    ends = []
    starts = [placed.start for placed in told] + [pen.limit]
    for placed, following in zip(told, starts[1:], strict=True):
        match placed.column.id:
            case "gpu":
                text, ink = left(str(row.device.index), placed.width), "strong"
            case "pid":
                text, ink = cut("unexplained", following - placed.start - 1), "warning"
            case _:
                text, ink = right(memory(row.amount, short=placed.width < 9), placed.width), "strong"
        cells.append((placed.start, text, ink))
        ends.append((following - placed.start - len(text), placed.start + len(text)))
    ends.append((starts[0] - pen.x, pen.x - 2))
    room, start = max(ends)
    cells.append((start + 2, cut(row.reason, room - 3), "dim"))
    for x, text, ink in sorted(cells):
        pen.to(x).add(text, ink)


def first_table(view: View, chosen: Preferences, width: int, height: int, *, framed: bool) -> tuple[list[Line], str]:
    """The table as it stands before anybody has touched it, and what the line of keys says of one without a frame.

    Neither filtered nor a tree: these follow in the table itself.
    """
    snapshot = view.snapshot
    assert snapshot is not None
    gpus = bool(snapshot.devices)
    sort = chosen.sort if chosen.sort in BY_ID else "memory" if gpus else "cpu"
    descending = BY_ID[sort].number if chosen.sort in BY_ID else True
    if chosen.sort in BY_ID and chosen.descending is not None:
        descending = chosen.descending
    ids = tuple(name for name in chosen.columns if name in BY_ID and not unavailable(BY_ID[name], snapshot))
    inner = width - 2 * framed
    look = Look(place(inner, ids, gpus=gpus), inner, sort, descending, focused=True, parts=parts_of(snapshot))
    rows = in_order(rows_of(snapshot), BY_ID[sort], reverse=descending)
    room = max(height - 1 - 2 * framed, 1)
    shown = rows[:room]
    lines = [
        head(look, shown),
        *(line(row, look, chosen=number == 0) for number, row in enumerate(shown)),
    ]
    if not rows and room > 1:
        lines.append(Line(((f"  {NOBODY}", "dim"),)))
    if framed:
        return in_frame(lines, look, height, top=0, count=len(rows), total=len(rows)), ""
    return lines, part(0, room, len(rows))


def in_frame(
    lines: list[Line],
    look: Look,
    height: int,
    *,
    top: int,
    count: int,
    total: int,
    filtered: str | None = None,
    asked: int = 0,
    tagged: int = 0,
    as_tree: bool = False,
) -> list[Line]:
    """The head and the rows from ``top`` on in a frame of ``height`` lines; ``count`` rows there are in the list,
    ``total`` without a filter, of which ``asked`` match that."""
    width = look.width + 2
    title: list[Span] = [("Processes", "title"), (" as a tree", "dim") if as_tree else ("", "dim")]
    if filtered is not None:
        title += [(" ─ ", "border"), ("/ ", "key"), (cut(filtered, width // 3), "strong")]
    by = BY_ID[look.sort_column].title.lower()
    told = f"{asked} of {total}" if filtered is not None else str(total)
    seen = part(top, max(height - 3, 1), count)
    if seen:
        told = f"{seen}, {told}" if filtered is not None or count != total else seen
    told += f", {tagged} tagged" if tagged else ""
    return frame(
        lines,
        width,
        height,
        title=title,
        note=f" {told}, by {by} {'↓' if look.sort_reverse else '↑'} " if total else "",
        focused=look.focused,
        bar=thumb(top, max(height - 3, 1), count),
        bar_from=1,
    )

"""The process table: fixed columns, a cursor that follows its process, redrawn line by line.

Only rows on screen are formatted. The cursor belongs to a process (device, pid, start time), not to
a position, so it moves along when rows are sorted; until it is first moved, it stays on the first row.
When its process has gone, it is on none until somebody moves it: the same keys again must not end another process.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from textual import events
from textual.message import Message

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.session.process_history import Identity, process_identity
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import visible_rows
from gpuwatch.ui.drawing.styled_lines import BLANK, with_spans_replaced
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of
from gpuwatch.ui.panes.process_table_lines import (
    NO_PROCESS,
    SCROLL_CELLS,
    TableLayout,
    bordered_table,
    finding_marks,
    full_command,
    mig_indices,
    preferred_order,
    process_count,
    table_lines,
    time_cell,
    with_latest_events,
)
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.tables.device_notes import memory_without_processes, owners_text
from gpuwatch.ui.tables.filter_language import FilterError
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, Column, PlacedColumn, place_columns, why_unavailable
from gpuwatch.ui.tables.process_filter import ProcessFilter, parse_process_filter
from gpuwatch.ui.tables.process_table_rows import (
    Branch,
    Row,
    RowKey,
    filtered_rows,
    largest_memory,
    sorted_rows,
    table_rows,
    tree_branches,
)
from gpuwatch.ui.widgets.painted_pane import JumpTarget
from gpuwatch.ui.widgets.preferences_app import preferences_of
from gpuwatch.ui.widgets.scroll_list import ItemList


def _same_rows(before: Snapshot, now: Snapshot) -> bool:
    """Whether only run times differ between two snapshots."""
    rows = (before.processes, before.bystanders) == (now.processes, now.bystanders)
    return rows and (before.devices is now.devices or _device_data(before) == _device_data(now))


def _device_data(snapshot: Snapshot) -> list[object]:
    """Device data that the table shows: unexplained memory and MIG instances."""
    return [(d.uuid, d.readings.get("memory.unexplained_bytes"), d.mig_instances) for d in snapshot.devices]


class ProcessTable(ItemList[Row]):
    """Processes of all devices."""

    BINDINGS = bindings("processes")

    class Scrolled(Message):
        """Other rows are visible in a table without a frame, so the footer's note changes."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Processes", id=id)
        self.framed = False
        self.head = [BLANK]  # the titles of the columns, which are drawn with the rows
        self._view: View | None = None
        self._state: tuple[object, ...] | None = None
        self._columns_with_values: set[str] = set()
        """Columns that have had a value: they stay, so that nothing jumps."""
        self.column_ids: tuple[str, ...] = ()
        """The chosen columns, without those that have no value."""
        self._cursor_key: RowKey | None = None
        self._process_gone = False
        """Whether a sample came without the process under the cursor."""
        self._collected: tuple[Snapshot | None, str | None] = (None, None)
        """The sample and the device of the rows."""
        self._tags: set[Identity] = set()
        """Tagged processes; a process on two GPUs counts once."""
        self._scrolled_cells = 0
        self._largest_memory = 0.0
        """The largest amount of GPU memory, of rows that a filter hides too: it decides the unit."""
        self._last_note = ("", False)
        self.sort_column = "memory"
        self.sort_reverse = True
        self.filter: ProcessFilter | None = None
        self.only_device: str | None = None
        """UUID of the device whose processes are shown; None: all."""
        self._sort_chosen = False
        self.as_tree = False
        self._branches: dict[RowKey, Branch] = {}
        self._requested = 0
        """Number of requested rows, without those that only connect others in the tree."""

    # What it shows

    def show(self, view: View, *, framed: bool) -> None:
        """Draws the processes of ``view``; keeps cursor and scroll position."""
        before, self._view = self._view, view
        old, new = before.snapshot if before is not None else None, view.snapshot
        marks = finding_marks(view.findings)
        latest = view.events[-1] if view.events else None
        state = (framed, view.stale, self.only_device, preferences_of(self).columns, marks, latest)
        if old is None or new is None or state != self._state or not _same_rows(old, new):
            self.column_ids = self._usable_columns(view)
            self.framed, self._state = framed, state
            self._collect_rows()
        elif old.taken_at != new.taken_at:
            if self.filter is not None or self.as_tree:  # either may depend on run times and other processes
                self._collect_rows()
            else:
                self._redraw_times()

    def _redraw_times(self) -> None:
        """Replaces the times in the lines on screen, which takes a twentieth of the time of a redraw."""
        view, lines, inset = self._view, list(self._lines), int(self.framed)
        assert view is not None
        times = [placed for placed in self._columns if placed.column.seconds is not None]
        shown = self.items[self.top : self.top + self.room] if times else ()
        for y, row in enumerate(shown, inset + 1):
            if isinstance(row, Process) and y < len(lines):
                cells = {placed.start + inset: time_cell(row, placed, view.moment) for placed in times}
                line = with_spans_replaced(lines[y], cells)
                if line is None:  # not in its place
                    self.redraw()
                    return
                lines[y] = line
        self.paint(lines, stale=view.stale)

    def _usable_columns(self, view: View) -> tuple[str, ...]:
        chosen, snapshot = preferences_of(self).columns, view.snapshot
        if snapshot is None:  # without those that are hidden unless somebody has a value
            return tuple(
                name
                for name in chosen
                if name not in COLUMN_BY_ID or not COLUMN_BY_ID[name].empty_reason or COLUMN_BY_ID[name].known_late
            )
        if not any(device.mig_instances for device in snapshot.devices):
            self._columns_with_values.discard("mig")  # no process can be in an instance now
        unknown = [name for name in chosen if name not in self._columns_with_values and name in COLUMN_BY_ID]
        self._columns_with_values.update(name for name in unknown if not why_unavailable(COLUMN_BY_ID[name], snapshot))
        return tuple(name for name in chosen if name in self._columns_with_values)

    def sort_by(self, column: str, *, reverse: bool | None = None) -> None:
        """Sorts by a column; the same column again reverses the order.

        Shows the first rows, and moves the cursor there unless its process is among them.
        """
        if reverse is None:
            reverse = not self.sort_reverse if column == self.sort_column else COLUMN_BY_ID[column].descends
        self.sort_column, self.sort_reverse = column, reverse
        self._sort_chosen = True
        self._collect_rows()
        self.top = 0
        if self._process_gone:
            self.cursor = 0
        elif (self.cursor or 0) >= self.room:
            self.put_cursor(0)
        self.redraw()

    def restore(self, chosen: Preferences) -> None:
        """Applies the preferred sort order, filter and tree view."""
        with suppress(FilterError):
            self.filter = parse_process_filter(chosen.filter)
        self.as_tree = chosen.tree
        order = preferred_order(chosen)
        if order is not None:
            self._sort_chosen = True
            self.sort_column, self.sort_reverse = order

    @property
    def order_preferences(self) -> dict[str, Any]:
        """Sort order and filter as fields of :class:`Preferences`; no order if none was chosen."""
        found: dict[str, Any] = {"filter": self.filter.text if self.filter is not None else "", "tree": self.as_tree}
        if self._sort_chosen:
            usual = COLUMN_BY_ID[self.sort_column].descends == self.sort_reverse
            found |= {"sort": self.sort_column, "descending": None if usual else self.sort_reverse}
        return found

    def set_filter(self, wanted: ProcessFilter | None) -> None:
        self.filter = wanted
        if self._process_gone:
            self.unpin()  # what was looked for is meant
        self._collect_rows()

    @property
    def count(self) -> int:
        return len(self.items)

    @property
    def tagged(self) -> list[Process]:
        """The visible tagged processes; a filter hides the others from every action."""
        return [row for row in self.items if isinstance(row, Process) and self._is_tagged(row)]

    def _is_tagged(self, row: Row) -> bool:
        return bool(self._tags) and isinstance(row, Process) and process_identity(row) in self._tags

    @property
    def tagged_count(self) -> int:
        """Number of tagged processes, not of their rows."""
        return len({process_identity(row) for row in self.tagged})

    def tag(self) -> None:
        """Toggles the tag of the row under the cursor, and moves one down."""
        row = self.item_under_cursor
        if isinstance(row, Process):
            self._tags ^= {process_identity(row)}
        self.move("down")

    def untag(self, rows: Iterable[Process] | None = None) -> bool:
        """Removes the tags of ``rows``, or all; False if there were none."""
        before = len(self._tags)
        self._tags = set() if rows is None else self._tags - {process_identity(row) for row in rows}
        self.redraw()
        return len(self._tags) < before

    @property
    def counts(self) -> tuple[int, int]:
        return self._requested, self.total

    def toggle_tree(self) -> None:
        self.as_tree = not self.as_tree
        self._collect_rows()
        self.bring_into_view()
        self.redraw()

    @property
    def footer_note(self) -> tuple[str, bool]:
        """The footer's note for a table without a frame, and whether a filter hides rows."""
        shown, total = self.counts
        if self.filter is not None:
            return f"/{cut_to_width(self.filter.text, 16)} {shown} of {total} (Esc)", True
        return visible_rows(self.top, self.room, total), False

    # Moving

    @property
    def item_under_cursor(self) -> Row | None:
        """The row under the cursor; None after its process has gone."""
        return None if self._process_gone else super().item_under_cursor

    def pin(self) -> None:
        """Keeps the cursor on the process under it, also if it was never moved."""
        if not self._process_gone and self.items:
            self.put_cursor(self.cursor or 0)

    @property
    def scrolled(self) -> bool:
        """Whether the beginnings of commands are out of sight."""
        return self._scrolled_cells > 0

    def move(self, where: str) -> None:
        """``up``, ``down``, ``page_up``, ``page_down``, ``home``, ``end``, ``left``, ``right``."""
        if where in ("left", "right"):
            longest = max((width_of(full_command(row)) for row in self.items), default=0)
            step = SCROLL_CELLS if where == "right" else -SCROLL_CELLS
            last = longest // SCROLL_CELLS * SCROLL_CELLS
            self._scrolled_cells = min(max(self._scrolled_cells + step, 0), last)
            self.redraw()
            return
        if self._process_gone and where == "down" and self.cursor is not None:
            self.cursor -= 1  # to the row that has taken the place
        super().move(where)

    def jump_targets(self) -> list[JumpTarget]:
        """The visible rows, each identified by its process in case the order changes."""
        inset, shown = int(self.framed), self.items[self.top : self.top + self.room]
        return [(inset, inset + 1 + y, partial(self._jump_to, row.key)) for y, row in enumerate(shown)]

    def go_to(self, key: RowKey) -> None:
        """Puts the cursor on a process and the focus on this table; a filter that hides it is cleared."""
        if all(row.key != key for row in self.items):
            self.set_filter(None)
        self._jump_to(key, False)
        self.focus()

    def _jump_to(self, key: object, opens: bool) -> None:
        number = next((number for number, row in enumerate(self.items) if row.key == key), None)
        if number is not None:
            self.put_cursor(number)
            self.redraw()
            if opens:
                self.choose()

    @property
    def pinned(self) -> bool:
        """Whether the cursor was put on a process, and stays with it."""
        return self._cursor_key is not None

    def unpin(self) -> bool:
        """Forgets the selected process; False if there was none."""
        if self._cursor_key is None:
            return False
        self._cursor_key, self.cursor, self.top, self._scrolled_cells, self._process_gone = None, 0, 0, 0, False
        self.redraw()
        return True

    def put_cursor(self, number: int) -> None:
        """Moves the cursor to a row, and from now on with its process."""
        super().put_cursor(number)
        self._process_gone = False
        self._cursor_key = self.item_under_cursor.key if self.item_under_cursor is not None else None

    # Events

    def _title_at(self, event: events.MouseEvent) -> Column | None:
        x = event.x - int(self.framed)
        here = (column.column for column in self._columns if column.start <= x <= column.start + column.width)
        return next(here, None) if event.y == int(self.framed) else None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """A title is spelled out below the mouse."""
        title = self._title_at(event)
        text = f"{title.title}: {title.help}" if title is not None else None
        if text != self.tooltip:
            self.tooltip = text

    def on_click(self, event: events.Click) -> None:
        """A click on a header sorts; else as in any list."""
        title = self._title_at(event)
        if title is not None:
            self.sort_by(title.id)
        else:
            super().on_click(event)

    # Drawing

    @property
    def _has_gpus(self) -> bool:
        return self._view is not None and bool(self._view.devices)

    @property
    def _columns(self) -> tuple[PlacedColumn, ...]:
        return place_columns(self.inner_width, self.column_ids, gpus=self._has_gpus)

    @property
    def columns_on_screen(self) -> list[str]:
        return [placed.column.id for placed in self._columns]

    def _collect_rows(self) -> None:
        """Filters and sorts the rows; puts the cursor back on its process."""
        view = self._view
        if view is None or view.snapshot is None:
            self.redraw()
            return
        if not self._sort_chosen:
            self.sort_column = "memory" if self._has_gpus else "cpu"
        rows = table_rows(view.snapshot, self.only_device)
        self.total, self._largest_memory = process_count(rows), largest_memory(rows)
        here = {process_identity(row) for row in rows if isinstance(row, Process)} if self._tags else set()
        rows = filtered_rows(rows, self.filter, view.moment)
        rows = sorted_rows(rows, COLUMN_BY_ID[self.sort_column], reverse=self.sort_reverse)
        self.items, self._requested, self._branches = rows, process_count(rows), {}
        if self.as_tree:
            made = tree_branches(rows, view.snapshot)
            self.items = [branch.row for branch in made]
            self._branches = {branch.row.key: branch for branch in made}
        if self._tags:
            self._tags &= here | {process_identity(row) for row in self.items if isinstance(row, Process)}
        if self._cursor_key is not None:
            number = self.cursor or 0
            visible = self.top <= number < self.top + self.room
            keys = [row.key for row in self.items]
            sample, device = self._collected
            self._process_gone = self._cursor_key not in keys and (self._process_gone or sample is not view.snapshot)
            self._process_gone = self._process_gone and device == self.only_device
            if self._cursor_key in keys:
                self.cursor = keys.index(self._cursor_key)
            else:
                self.cursor = min(number, max(len(self.items) - 1, 0))
                self._cursor_key = (
                    self.item_under_cursor.key if self.item_under_cursor is not None else self._cursor_key
                )
            if visible:
                self.bring_into_view()
        self._collected = view.snapshot, self.only_device
        self.redraw()

    @property
    def _table_layout(self) -> TableLayout:
        view = self._view
        return TableLayout(
            self._columns,
            self.inner_width,
            self.sort_column,
            self.sort_reverse,
            at=view.moment if view is not None else 0.0,
            focused=self.has_focus,
            scrolled_cells=self._scrolled_cells,
            branches=self._branches,
            mig_indices=mig_indices(view.snapshot) if view is not None and view.snapshot is not None else {},
            largest_memory=self._largest_memory,
            marks=finding_marks(view.findings) if view is not None else {},
        )

    def _draw(self, width: int, height: int) -> None:
        if self._view is None:
            return
        self.top = min(max(self.top, 0), max(len(self.items) - self.room, 0))
        if not self.framed and self._last_note != self.footer_note:
            self._last_note = self.footer_note
            self.post_message(self.Scrolled())
        layout = self._table_layout
        cursor, empty = -1 if self._process_gone or self.covered else self.cursor or 0, self._empty_text()
        lines = table_lines(
            self.items, layout, self.room, top=self.top, cursor=cursor, tagged=self._is_tagged, empty=empty
        )
        if self.only_device is None and self._view.events:
            lines = with_latest_events(lines, self._view, layout.width, self.room + 1)
        if self.framed:
            lines = bordered_table(
                lines,
                layout,
                height,
                rows=self.items,
                total=self.total,
                top=self.top,
                filtered=self.filter.text if self.filter is not None else None,
                requested=self._requested,
                tagged=self.tagged_count,
                as_tree=self.as_tree,
            )
        self.paint(lines, stale=self._view.stale)

    def _empty_text(self) -> str:
        if self._view is None or self._view.snapshot is None:
            return "waiting for the first sample"
        if self.filter is not None:
            return f"no match for “{self.filter.text}” in {count_text(self.total, 'process')}; Esc clears the filter"
        snapshot, only = self._view.snapshot, self.only_device
        devices = [device for device in snapshot.devices if only in (None, device.uuid)]
        if any(memory_without_processes(device) for device in devices):
            owned = owners_text(self._view.owners, devices)
            return "processes are not reported here" + (f"; {owned}" if owned else "")
        unread = [device for device in devices if device.state != "ok"]
        if unread and only is not None:
            return f"its processes cannot be read while it is {unread[0].state}"
        return "no process uses this GPU" if only is not None else NO_PROCESS + " that can be read" * bool(unread)

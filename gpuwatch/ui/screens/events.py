"""The Events tab: what happened, even while nobody watched, newest first; and the machine at that moment."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from textual.containers import Horizontal

from gpuwatch.core.formatting.durations import ago
from gpuwatch.core.formatting.units import UNKNOWN, gib, gib_number, whole_number
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.last_hour import MAX_EVENTS
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text, date_and_time
from gpuwatch.ui.drawing.glyphs import EVENT_MARKS
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, SpanLines, cut_line, wrap_lines
from gpuwatch.ui.drawing.text_width import align_left, cut_to_width
from gpuwatch.ui.screens.filterable_tab import FilterableScreen
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.tables.process_columns import short_command
from gpuwatch.ui.widgets.scroll_list import NO_MATCH, WAITING, ItemList, LazyLines, TextPane


class EventList(ItemList[MachineEvent]):
    """One line per event; the cursor stays with its event while new ones are added above."""

    BINDINGS = bindings("events")

    _view: View | None = None
    _new = 0
    _wanted: WordFilter | None = None

    def show(self, view: View, new: int, wanted: WordFilter | None, chosen: MachineEvent | None) -> None:
        """Shows the events that match a filter, with the cursor on the chosen one if there is one; the latest ``new``
        of all are highlighted as unseen.
        """
        before = self.item_under_cursor if self.cursor else None
        self._view, self._wanted, self.total = view, wanted, len(view.events)
        every = list(reversed(view.events))
        self.items = every if wanted is None else [event for event in every if wanted(event.text, event.kind)]
        self._new = new if wanted is None else sum(wanted(event.text, event.kind) for event in every[:new])
        places = {id(event): place for place, event in enumerate(self.items)}
        if before is not None:
            self.cursor = places.get(id(before), 0)
        if (place := places.get(id(chosen))) is not None:
            self.put_cursor(place)
        self.rebuild()

    def rebuild(self) -> None:
        view = self._view
        if view is None:
            return
        self.note = f" {len(self.items)} " if self.items else ""
        if len(self.items) < self.total:
            self.note = f" {len(self.items)} of {self.total} "
        elif self.total >= MAX_EVENTS:
            self.note = f" the last {len(self.items)} "
        lines = LazyLines(len(self.items), lambda place: self._line(self.items[place], view, fresh=place < self._new))
        self.set_lines(lines or _nothing(view, self.inner_width, filtered=self._wanted is not None), stale=view.stale)

    def _line(self, event: MachineEvent, view: View, *, fresh: bool) -> Line:
        builder = LineBuilder(self.inner_width)
        builder.add("  ").add(clock_text(event.at, view.now), "strong" if fresh else "dim")
        glyph, style = EVENT_MARKS[event.severity]
        builder.add(f"  {glyph} ", style)
        end = f"  {event.kind} · {event.certainty} "
        builder.add(cut_to_width(event.text, builder.cells_left), "strong" if fresh else "text")
        if self.inner_width >= 100 and builder.cells_left >= len(end):
            builder.fill_to(builder.width - len(end)).add(end, "dim")
        return builder.line()


_WHAT_IS_RECORDED = (
    "Recorded here, even while nobody watches: processes that start using a GPU or exit, memory that fills up or is "
    "freed, throttling, GPUs that are lost or return, error counters, a driver or collector that does not answer."
)


def _nothing(view: View, width: int, *, filtered: bool) -> list[Line]:
    if filtered:
        return [NO_MATCH]
    if view.waiting:
        return [WAITING]
    if view.since.events is not None:
        return [Line((("  ● ", "ok"), (f"No events since {clock_text(view.since.events, view.now)}.", "text")))]
    lines = [Line((("  ● ", "ok"), ("No events since gpuwatch started.", "text"))), Line(())]
    parts = wrap(_WHAT_IS_RECORDED, max(min(width - 6, 90), 20))
    return lines + [Line((("    ", "text"), (part, "dim"))) for part in parts]


class EventsScreen(FilterableScreen):
    """Tab with the list of events."""

    AUTO_FOCUS = "#event-list"
    TAB = "events"
    PANES: ClassVar[dict[str, str]] = {"event-list": "events"}

    def __init__(self) -> None:
        super().__init__()
        self.event_list = EventList("Events", id="event-list")
        self._new = 0
        self._count = 0
        self._since: float | None = None
        """Since when a replay has been played without a jump."""
        self.about = TextPane("Event", id="event")
        """The event under the cursor and the machine then, beside the list on a wide terminal."""
        self._below: tuple[MachineEvent, int, SpanLines] | None = None
        """What stands below an event in so many cells: the machine then and the cause, which do not change."""
        self.panes = (Horizontal(self.event_list, self.about, id="body"),)

    def on_screen_resume(self) -> None:
        """Highlights events since the last visit."""
        self._new = min(self.gpuwatch.session.unseen_events, MAX_EVENTS)
        self._count = self.gpuwatch.session.event_count
        self._since = self.gpuwatch.session.view().since.counted
        self.gpuwatch.session.see_events()

    def draw(self, view: View) -> None:
        """Draws the list and marks all events as seen."""
        self.event_list.framed = self.about.framed = self.framed
        width = self.app.size.width
        self.about.display = self.wide
        self.about.styles.width = width * 2 // 5 if self.wide else 0
        if view.since.counted != self._since:
            self._since, self._new, self._count = view.since.counted, 0, self.gpuwatch.session.event_count
        count = self.gpuwatch.session.event_count if view.paused_since is None else self._count
        self.gpuwatch.session.see_events()
        self.event_list.title = self.filter_title("Events")
        chosen, self.gpuwatch.chosen_event = self.gpuwatch.chosen_event, None
        self.event_list.show(view, self._new + count - self._count, self.filter, chosen)
        self.draw_event()

    def draw_event(self) -> None:
        """Draws the event under the cursor, on a wide terminal."""
        event = self.event_list.item_under_cursor
        if not self.about.display:
            return
        lines: SpanLines = []
        if event is not None:
            room = max(self.app.size.width * 2 // 5 - 4, 10)
            if self._below is None or self._below[0] is not event or self._below[1] != room:
                self._below = (event, room, self._lines_below(event, room))
                self.about.top = 0
            lines = wrap_lines(_event_lines(event, self.gpuwatch.session.clock()), room) + self._below[2]
        self.about.set_text(lines, stale=self.view.stale)

    def _lines_below(self, event: MachineEvent, room: int) -> SpanLines:
        then = self.gpuwatch.session.timeline.at(event.at)
        lines = [cut_line(line, room) if line else line for line in moment_lines(event, then)]
        if event.cause in CAUSES:
            from gpuwatch.ui.details.finding_lines import cause_head, folded_page

            lines += [[], cause_head(event.cause), *folded_page(event.cause, room)]
        return lines

    @property
    def filtered(self) -> EventList:
        return self.event_list

    def titles(self) -> dict[str, str]:
        absent = {} if self.event_list.item_under_cursor is not None else {"open_event": "", "view_event": ""}
        return super().titles() | absent

    def action_move(self, where: str) -> None:
        self.event_list.move(where)

    def on_item_list_cursor_moved(self) -> None:
        self.draw_event()

    async def action_view_event(self) -> None:
        event = self.event_list.item_under_cursor
        if event is not None:
            self.gpuwatch.move_playhead(lambda past: past.move_to(event.at))
            await self.go("overview")

    def action_open_event(self) -> None:
        event = self.event_list.item_under_cursor
        if event is None:
            return
        lines = _event_lines(event, self.gpuwatch.session.clock())
        lines += [[(f"  {uuid}", "dim")] for uuid in event.all_device_uuids]
        self.open_sheet("Event", lines)


def _event_lines(event: MachineEvent, now: float) -> SpanLines:
    glyph, style = EVENT_MARKS[event.severity]
    return [
        [(f"{glyph} ", style), (event.text, "strong")],
        [(f"  {date_and_time(event.at)}, {ago(now - event.at)}", "text")],
        [(f"  {event.kind} · {event.certainty}", "dim")],
    ]


_MAX_PROCESSES = 16
"""Processes listed."""
_MAX_DISTANCE_SECONDS = 60.0
"""Seconds from an event beyond which a sample does not show its moment."""


def moment_lines(event: MachineEvent, sample: StoredSample | None) -> SpanLines:
    """All GPUs, those of the event marked, and the processes on these; ``sample``: the sample at that moment."""
    lines: SpanLines = [[]]
    if sample is None or abs(sample.at - event.at) > _MAX_DISTANCE_SECONDS:
        return [*lines, [("no sample of that moment is kept", "dim")]]
    snapshot = sample.snapshot
    lines.append([("The machine then", "title"), (f"  sample of {clock_text(sample.at)}; v shows it", "dim")])
    concerned = [device for device in snapshot.devices if device.uuid in event.all_device_uuids]
    lines += [_device(device, marked=device in concerned) for device in snapshot.devices]
    if not snapshot.devices:
        lines.append([("  no GPU was read", "dim")])
    wanted = {device.uuid for device in concerned or snapshot.devices}
    rows = [row for row in snapshot.processes if row.device_uuid in wanted]
    rows.sort(key=lambda row: -(row.number("gpu_memory_bytes") or 0.0))
    if rows:
        where = "on the GPUs of the event" if concerned and len(concerned) < len(snapshot.devices) else "on the GPUs"
        lines += [[], [("Processes then", "title"), (f"  {where}", "dim")]]
    lines += [_process(row, marked=row.pid == event.pid) for row in rows[:_MAX_PROCESSES]]
    if len(rows) > _MAX_PROCESSES:
        lines.append([(f"  {len(rows) - _MAX_PROCESSES} more", "dim")])
    return lines


def _device(device: Device, *, marked: bool) -> list[tuple[str, str]]:
    used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
    return [
        ("▸ " if marked else "  ", "accent"),
        (f"GPU {device.index:<2} ", "strong"),
        (f"{whole_number(device.number('utilization.gpu_percent'), 3)} %", "text"),
        (f"  {gib_number(used):>5} / {gib_number(total)} GiB", "text"),
        (f"  {whole_number(device.number('temperature.gpu_celsius'), 3)} °C", "text"),
        (f"  {whole_number(device.number('power.draw_watts'), 4)} W", "text"),
        (f"  {printable(device.state)}" if device.state != "ok" else "", "error"),
    ]


def _process(row: Process, *, marked: bool) -> list[tuple[str, str]]:
    where = UNKNOWN if row.device_index is None else str(row.device_index)
    return [
        ("▸ " if marked else "  ", "accent"),
        (f"GPU {where:<2} ", "strong"),
        (f"{row.pid:>7}  ", "dim"),
        (align_left(printable(row.user or UNKNOWN), 9) + " ", "text"),
        (f"{gib(row.number('gpu_memory_bytes')):>9}  ", "text"),
        (short_command(row), "text"),
    ]

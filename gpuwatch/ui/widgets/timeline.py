"""The timeline: the kept history as a line, what was wrong on it and the moment that is shown; its gaps in words."""

from __future__ import annotations

import datetime
import math
from bisect import bisect_left
from collections.abc import Sequence

from textual import events
from textual.message import Message

from gpuwatch.core.formatting.durations import ago, hours_minutes, rounded_duration
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_gaps import Gap
from gpuwatch.session.event_timeline import SEVERITY_SIGNS, IncidentTrack, clock_ticks
from gpuwatch.session.view import PlayheadPosition, View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, Span, spans_width
from gpuwatch.ui.drawing.text_width import cut_to_width, drop_last_clauses, width_of
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.widgets.one_line_panes import OneLinePane

_MIN_TRACK_CELLS = 12
"""Minimum cells of a track."""
_SPAN_CELLS = len("last 60 min")
"""Cells for how long the track is, so that it stands still."""
_RECORD_HINTS = ("· gpuwatch record keeps more ", "· record keeps more ", "")
"""In the part of the track before the first sample, while nothing is recorded."""
_MIN_NAME_CELLS = 14
"""Fewest cells of a name below the track."""
_CLOCK_CELLS = 18
"""Cells for each time below the track."""


class Timeline(OneLinePane, can_focus=True):
    """Shown while paused or replayed, and always on the tab of a GPU. A click goes to that moment; with focus, the
    arrow keys move through the samples.

    On a large terminal, names of what was wrong and times are below it.
    """

    BINDINGS = bindings("timeline")

    class Clicked(Message):
        """A click on the track."""

        def __init__(self, moment: float) -> None:
            super().__init__()
            self.moment = moment

    _position: PlayheadPosition | None = None
    _framed = False
    _track_area = (0, 0, 0)
    """Line, first cell and width of the track; no width: it is not shown."""
    _track = IncidentTrack()
    """What happened on the GPU that it is about."""

    def show_position(self, view: View, position: PlayheadPosition | None, uuid: str | None, *, framed: bool) -> None:
        """Draws it; ``position``: the history and the place in it, ``uuid``: the GPU that it is about."""
        self._position, self._framed = position, framed
        if position is not None:
            self._track = position.track.of_gpu(uuid)
        self.styles.height = 1 if not framed or position is None else 2 + (view.paused_since is not None)
        self.show(view)

    def _draw(self, width: int, height: int) -> None:
        view, position = self._view, self._position
        if view is None:
            return
        self._track_area = (0, 0, 0)
        lines: list[Line] = []
        if view.paused_since is not None:
            builder = LineBuilder(width)
            self._draw_paused(builder, view, position)
            lines.append(builder.fill_to(width).line())
        if position is not None and (self._framed or not lines):
            lines += self._track_lines(width, view, position, len(lines))
        self.paint(lines)

    def _draw_paused(self, builder: LineBuilder, view: View, position: PlayheadPosition | None) -> None:
        """The moment, its age, what was wrong then or, on a small terminal, the track; and the keys."""
        if position is None:
            builder.add(" ‖ PAUSED ", "badge").add(" before the first sample", "dim")
            return
        long = builder.width >= 100
        at = clock_text(position.moment, position.viewers_time)
        builder.add(" ‖ PAUSED · ", "badge").add(f"{at} ", "badge")
        ends: list[Span] = [("P", "key"), (" now" if not long else " back to now", "dim"), (" ", "text")]
        if position.played is not None:
            ends = [("Space", "key"), (" play ", "dim")]
        else:
            builder.add(f" {ago(view.now - position.moment)}", "strong")
        if long:
            moves = ("← →", "PgUp PgDn") if self.has_focus else ("[ ]", "{ }")  # as the line of keys has them
            ends = [(moves[0], "key"), (" sample  ", "dim"), (moves[1], "key"), (" minute  ", "dim"), *ends]
        reserve = spans_width(ends)
        around = self._track.incident_at(position.moment)
        if not self._framed:
            self._draw_track(builder, view, position, 0, builder.width - reserve)
        elif around is not None:
            builder.add(f"  {SEVERITY_SIGNS[around.severity]} ", around.severity)
            builder.add(cut_to_width(printable(around.text), max(builder.cells_left - reserve - 2, 0)), "text")
        builder.fill_to(builder.width - reserve)
        builder.add_spans(ends)

    def _track_lines(self, width: int, view: View, position: PlayheadPosition, line: int) -> list[Line]:
        """The track, and names and times below it if there is room for them."""
        builder = LineBuilder(width)
        self._draw_track(builder, view, position, line, width)
        lines = [builder.fill_to(width).line()]
        _, start, cells = self._track_area
        if self._framed and cells:
            names = problem_labels(position, self._track, cells)
            lines.append(LineBuilder(width).fill_to(start).add_spans(names).fill_to(width).line())
        return lines

    def _draw_track(self, builder: LineBuilder, view: View, position: PlayheadPosition, line: int, limit: int) -> None:
        """The track between its two ends, up to the cell ``limit``."""
        if position.played is not None:
            begin, end = f"  {_time(position.begin, position.end)} ", f" {_time(position.end, position.begin)} "
        else:
            begin = f"  {f'last {rounded_duration(view.now - position.begin)}':>{_SPAN_CELLS}} "
            end = " now " if view.now - position.end < 60 else " end "
        room = limit - builder.x - len(begin) - max(len(end), 6)
        if room < _MIN_TRACK_CELLS or position.end <= position.begin:
            return
        builder.add(begin, "dim")
        self._track_area = (line, builder.x, room)
        cursor = position.moment if view.paused_since is not None or position.played is not None else None
        drawn = track_spans(position, self._track, room, cursor)
        text, style = drawn[0]
        if position.played is None and view.since.events is None:
            more = next(label for label in _RECORD_HINTS if text.startswith(" " * len(label)))
            drawn[:1] = [(more, "faint"), (text[len(more) :], style)]
        for text, style in drawn:
            builder.add(text, "accent" if self.has_focus and style == "dim" else style)
        builder.add(end, "dim")

    def on_click(self, event: events.Click) -> None:
        line, start, width = self._track_area
        position = self._position
        if position is not None and start <= event.x < start + width and event.y >= line:
            begin, cell_seconds = _cell_times(position, width)
            moment = begin + (event.x - start + 0.5) * cell_seconds
            self.post_message(self.Clicked(min(max(moment, position.begin), position.end)))


def _time(at: float, other: float) -> str:
    """``14:05``, with the date if the other end is on another day, with seconds if it is within minutes."""
    when, then = datetime.datetime.fromtimestamp(at), datetime.datetime.fromtimestamp(other)
    form = "%H:%M:%S" if abs(at - other) < 600 else "%H:%M"
    return when.strftime(form if when.date() == then.date() else f"%m-%d {form}")


def _cell_times(position: PlayheadPosition, width: int) -> tuple[float, float]:
    """When the first cell begins, and the seconds of each: at multiples of them, so that a live track stands still."""
    cell_seconds = (position.end - position.begin) / max(width - 1, 1)
    return math.floor(position.begin / cell_seconds) * cell_seconds, cell_seconds


def track_spans(position: PlayheadPosition, track: IncidentTrack, width: int, cursor: float | None) -> list[Span]:
    """The track in exactly ``width`` cells: samples, gaps, what was wrong and for how long, and the cursor."""
    begin, cell_seconds = _cell_times(position, width)

    def cell(moment: float) -> int:
        return min(max(int((moment - begin) / cell_seconds), 0), width - 1)

    def is_hole(left: float) -> bool:
        place = bisect_left(position.gapless, (left, -math.inf))
        before = position.gapless[place - 1][1] if place else -math.inf
        after = position.gapless[place][0] if place < len(position.gapless) else math.inf
        return before < left and after > left + cell_seconds

    cells: list[Span] = [(" " if is_hole(begin + number * cell_seconds) else "─", "dim") for number in range(width)]
    ranks = {severity: rank for rank, severity in enumerate(SEVERITY_SIGNS)}  # the worst is drawn last
    for incident in sorted(track.incidents, key=lambda incident: ranks[incident.severity]):
        if incident.begin <= position.end and incident.end >= position.begin:
            first, last = cell(incident.begin), cell(min(incident.end, position.end))
            cells[first : last + 1] = [("━", incident.severity)] * (last + 1 - first)
    marks = (mark for mark in track.marks if mark.severity in ranks and position.begin <= mark.begin <= position.end)
    for mark in sorted(marks, key=lambda mark: ranks[mark.severity]):
        cells[cell(mark.begin)] = (SEVERITY_SIGNS[mark.severity], mark.severity)
    if cursor is not None:
        cells[cell(cursor)] = ("●", "focus")
    return _join_spans(cells)


def problem_labels(position: PlayheadPosition, track: IncidentTrack, width: int) -> list[Span]:
    """Names of problems, each at its start, and round times where there is room, in ``width`` cells."""
    begin, cell_seconds = _cell_times(position, width)
    cells: list[Span] = [(" ", "text")] * width

    def put(at: float, text: str, style: str, least: int) -> None:
        place = cell(at)
        others = starts - set(range(place + _MIN_NAME_CELLS + 1))
        taken = (x for x in range(place, width) if x in others or cells[x] != (" ", "text"))
        free = next(taken, width + 1) - place - 1
        if free >= least and (place == 0 or cells[place - 1] == (" ", "text")):
            shown = drop_last_clauses(text, free)
            cells[place : place + width_of(shown)] = [(shown, style), *[("", style)] * (width_of(shown) - 1)]

    def cell(at: float) -> int:
        return max(int((at - begin) / cell_seconds), 0)

    named = [found for found in track.incidents if found.begin <= position.end and found.end >= position.begin]
    starts = {cell(incident.begin) for incident in named}
    for incident in sorted(named, key=lambda incident: (incident.severity != "error", incident.begin)):
        name = printable(incident.text)
        put(incident.begin, name, incident.severity, min(width_of(name), _MIN_NAME_CELLS))
    for at, text in clock_ticks(position.begin, position.end, max(width // _CLOCK_CELLS, 1)):
        put(at, text, "dim", len(text))
    return _join_spans(cells)


def _join_spans(cells: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for text, style in cells:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        elif text:
            joined.append((text, style))
    return joined


_GAP_REASONS = (
    ("recording.began", "the recorder was off"),
    ("machine.resumed", "the machine was suspended"),
    ("clock.set", "the clock was set"),
    ("silence.", "the driver did not answer"),
    ("collector.", "the driver did not answer"),
)
"""Events in a gap that say why it is one, by the beginning of their kind."""
_GAP_REASON_SECONDS = 2.0
"""Seconds after a gap in which its reason may be recorded."""


def gap_text(skipped: Sequence[Gap], now: float, events: Sequence[MachineEvent]) -> str:
    """``nothing recorded 02:10:05–07:45:00 (5 h 35 min): the recorder was off``; of several the last, and how many."""
    last = skipped[-1]
    begin, end = clock_text(last.begin, now), clock_text(last.end, now)
    span = f"{begin}–{end} ({hours_minutes(last.end - last.begin)})"
    more = f"; {len(skipped)} gaps" if len(skipped) > 1 else ""
    if last.damaged:
        return f"▲ damaged, cannot be read: {span}{more}"
    kinds = [event.kind for event in events if last.begin < event.at <= last.end + _GAP_REASON_SECONDS]
    why = next((words for kind, words in _GAP_REASONS if any(text.startswith(kind) for text in kinds)), "")
    return f"nothing recorded {span}{f': {why}' if why else ''}{more}"

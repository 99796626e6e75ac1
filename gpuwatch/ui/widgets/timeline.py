"""The timeline of a paused display: the moment shown, and the kept history as a track."""

from __future__ import annotations

import datetime
from bisect import bisect_left
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from gpuwatch.core.formatting.units import ago
from gpuwatch.machine.history.timeline import LEVELS
from gpuwatch.session.view import PlayheadPosition, View
from gpuwatch.ui.drawing.cells import width_of
from gpuwatch.ui.drawing.clock import clock
from gpuwatch.ui.drawing.lines import Span
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.widgets.strips import Strip

_LEAST = 12
"""Minimum cells of a track."""
_BAD = {"error": ("✖", "error"), "warning": ("▲", "warning")}


class TimelineStrip(Strip, can_focus=True):
    """Shown while paused. While it is focused, arrows move in time; a click moves to that moment."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("timeline")
    WASHED = False

    class Wanted(Message):
        """A click on the track."""

        def __init__(self, moment: float) -> None:
            super().__init__()
            self.moment = moment

    _track = (0, 0)
    """First cell and width of the track; no width: it is not shown."""

    def draw(self, pen: Pen, view: View) -> bool:
        """The moment, its age, the track, and the keys."""
        past = view.past
        if past is None:
            pen.add(" ‖ PAUSED ", "badge").add(" before the first sample", "dim")
            return False
        long = pen.limit >= 100
        first, last = past.times[0], past.times[-1]
        replay = view.replay
        at = clock(past.moment, replay.today if replay is not None else view.now)
        pen.add(" ‖ PAUSED · ", "badge").add(f"{at} ", "badge")
        ends: list[Span] = [("P", "key"), (" now" if not long else " back to now", "dim"), (" ", "text")]
        if replay is not None:
            begin, end = f"  {_time(first, last)} ", f" {_time(last, first)} "
            ends = [("Space", "key"), (" play ", "dim")]
        else:
            pen.add(f" {ago(view.now - past.moment)}", "strong")
            begin, end = f"  {_brief(view.now - first)} ", " now" if view.now - last < 60 else " end"
        if long:
            ends = [("[ ]", "key"), (" sample  ", "dim"), ("{ }", "key"), (" minute  ", "dim"), *ends]
        reserve = sum(width_of(text) for text, _ in ends)
        room = pen.left - reserve - len(begin) - max(len(end) + 2, 6)
        if room >= _LEAST and last > first:
            pen.add(begin, "dim")
            self._track = (pen.x, room)
            for text, ink in track(past, room):
                pen.add(text, "accent" if self.has_focus and ink == "dim" else ink)
            pen.add(end, "dim")
        else:
            self._track = (0, 0)
        pen.to(pen.limit - reserve)
        pen.write(ends)
        return False

    def on_click(self, event: events.Click) -> None:
        """Moves to the moment under the pointer."""
        start, width = self._track
        past = self._view.past if self._view is not None else None
        if past is not None and width and start <= event.x < start + width:
            first, last = past.times[0], past.times[-1]
            self.post_message(self.Wanted(first + (last - first) * (event.x - start) / max(width - 1, 1)))


def _time(at: float, other: float) -> str:
    """``14:05``, with the date if the other end is on another day, with seconds if it is within minutes."""
    when, then = datetime.datetime.fromtimestamp(at), datetime.datetime.fromtimestamp(other)
    form = "%H:%M:%S" if abs(at - other) < 600 else "%H:%M"
    return when.strftime(form if when.date() == then.date() else f"%m-%d {form}")


def _brief(seconds: float) -> str:
    for unit, name, most in ((1, "s", 100), (60, "min", 100), (3600, "h", 48)):
        if seconds < most * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} d"


def track(past: PlayheadPosition, width: int) -> list[Span]:
    """The kept history in exactly ``width`` cells: samples, gaps, events, and the current position."""
    first, last = past.times[0], past.times[-1]
    one = (last - first) / max(width - 1, 1)

    def cell(moment: float) -> int:
        return min(max(round((moment - first) / one), 0), width - 1)

    def is_hole(moment: float) -> bool:
        if past.stretches is not None:
            place = bisect_left(past.stretches, (moment - one / 2, float("-inf")))
            reached = past.stretches[place - 1][1] if place else float("-inf")
            begins = past.stretches[place][0] if place < len(past.stretches) else float("inf")
            return reached < moment - one / 2 and begins > moment + one / 2
        place = bisect_left(past.times, moment)
        after = past.times[min(place, len(past.times) - 1)]
        before = past.times[max(place - 1, 0)]
        apart = next((apart for span, apart in LEVELS if last - after <= span), LEVELS[-1][1])
        return after - before > max(3 * past.asked, 1.4 * apart)

    cells: list[Span] = [(" " if is_hole(first + number * one) else "─", "dim") for number in range(width)]
    ranks = {"warning": 1, "error": 2}
    worst: dict[int, str] = {}
    for at, severity in past.marks:
        if severity in ranks and first <= at <= last:
            place = cell(at)
            if ranks[severity] > ranks.get(worst.get(place, ""), 0):
                worst[place] = severity
    for place, severity in worst.items():
        cells[place] = _BAD[severity]
    cells[cell(past.moment)] = ("●", "focus")
    joined: list[Span] = []
    for text, ink in cells:
        if joined and joined[-1][1] == ink:
            joined[-1] = (joined[-1][0] + text, ink)
        else:
            joined.append((text, ink))
    return joined

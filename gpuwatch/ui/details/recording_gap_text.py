"""Times without samples, in words: how long, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_gaps import Gap
from gpuwatch.ui.drawing.clock_text import clock_text

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

"""Durations and times as text: coarse in findings, so that a line seldom changes; exact in events."""

from __future__ import annotations

import datetime

from gpuwatch.core.formatting.durations import span, steady_span
from gpuwatch.explain.diagnosis.conditions.hysteresis import Occurrence


def clock(at: float) -> str:
    """The local time of day."""
    return datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S")


def lasted(occurrence: Occurrence, at: float) -> str:
    """``since 10:02:31, for 4 min: in 80 % of the samples, 3 min in all``, and how much was not observed.

    ``at least since``: it held in the first sample, and nothing is known of the time before.
    """
    if occurrence.samples < 2 and not occurrence.known:
        return "seen in one sample so far"
    whole = (occurrence.last if occurrence.leaving else at) - occurrence.since
    text = f"{'at least ' * occurrence.at_least}since {clock(occurrence.since)}, for {steady_span(whole)}"
    if occurrence.leaving:
        text = f"from {clock(occurrence.since)} to {clock(occurrence.last)}, for {span(whole)}"
    if occurrence.share < 0.95:
        text += f": in {occurrence.share * 100:.0f} % of the samples"
        first = occurrence.since + occurrence.known
        text += f" since {clock(first)}" if occurrence.known else f", {steady_span(occurrence.held)} in all"
    elif occurrence.observed + occurrence.known < 0.8 * (whole - occurrence.unobserved):
        text += f", {steady_span(occurrence.observed + occurrence.known)} of which could be judged"
    if occurrence.unobserved:
        text += f"; not observed for {steady_span(occurrence.unobserved)} of it"
    return text


def mean(occurrence: Occurrence, name: str, unit: str) -> str:
    """``1410 MHz``: the mean while it held; empty if it was never read."""
    figure = occurrence.figure(name)
    return f"{figure.mean:.0f} {unit}" if figure is not None else ""


def duration(occurrence: Occurrence) -> str:
    """``3 min``, from the first to the last sample in which it held; for events."""
    return span(occurrence.last - occurrence.since)

"""Spans and times as the rules over time write them: coarse, so that a line changes seldom."""

from __future__ import annotations

import datetime

from gpuwatch.diagnosis.overtime.stretch import Stretch


def span(seconds: float) -> str:
    """``40 s``, ``4 min``, ``2.5 h``: seconds in tens, so that not every sample changes the words."""
    if seconds < 10:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 115:
        return f"{seconds // 10 * 10:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5700 else f"{seconds / 3600:.1f} h"


def clock(at: float) -> str:
    """The local time of day."""
    return datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S")


def lasted(stretch: Stretch, at: float) -> str:
    """``since 10:02:31, for 4 min: in 80 % of the samples, 3 min in all``, and what nobody observed of it."""
    whole = at - stretch.since
    text = f"since {clock(stretch.since)}, for {span(whole)}"
    if stretch.share < 0.95 and stretch.samples > 1:
        text += f": in {stretch.share * 100:.0f} % of the samples, {span(stretch.held)} in all"
    elif stretch.observed < 0.8 * (whole - stretch.unobserved):
        text += f", {span(stretch.observed)} of which could be judged"
    if stretch.unobserved:
        text += f"; {span(stretch.unobserved)} of it nobody observed"
    return text


def mean(stretch: Stretch, name: str, unit: str) -> str:
    """``1410 MHz``: the mean while it held; empty where it was never read."""
    figure = stretch.figure(name)
    return f"{figure.mean:.0f} {unit}" if figure is not None else ""

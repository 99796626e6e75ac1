"""Moments, in seconds since the epoch, as text."""

from __future__ import annotations

import datetime


def clock_text(moment: float, now: float | None = None) -> str:
    """``10:02:31``, with the date unless it is that of ``now``; None: without a date."""
    then = datetime.datetime.fromtimestamp(moment)
    today = now is None or then.date() == datetime.datetime.fromtimestamp(now).date()
    return then.strftime("%H:%M:%S" if today else "%m-%d %H:%M:%S")


def date_and_time(moment: float) -> str:
    """``2026-11-26 10:02:31``."""
    return datetime.datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S")

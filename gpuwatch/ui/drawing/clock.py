"""A moment as the time of day."""

from __future__ import annotations

import datetime


def clock(moment: float, now: float) -> str:
    """``10:02:31``, with the date unless it is today's; both are seconds since the epoch."""
    then = datetime.datetime.fromtimestamp(moment)
    today = then.date() == datetime.datetime.fromtimestamp(now).date()
    return then.strftime("%H:%M:%S" if today else "%m-%d %H:%M:%S")

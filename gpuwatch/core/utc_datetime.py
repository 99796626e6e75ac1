"""Converts seconds since the epoch to datetimes in UTC."""

from __future__ import annotations

import datetime


def utc_datetime(at: float) -> datetime.datetime:
    """The moment ``at`` seconds after the epoch."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC)

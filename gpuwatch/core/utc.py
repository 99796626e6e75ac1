"""Moments in UTC, from seconds since the epoch."""

from __future__ import annotations

import datetime


def utc(at: float) -> datetime.datetime:
    """The moment ``at`` seconds after the epoch."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC)

"""The error of all readers of recordings of other tools."""

from __future__ import annotations


class InvalidTrace(ValueError):
    """The file is none of its kind, is cut off, or exceeds a limit; the message says why."""

"""Reports of several machines, or of one at several times, compared. ``gpuwatch.contrast/1``."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A fact in which the reports differ."""

    part: str
    """``Verdict``, ``Versions``, ``GPUs``, ``Environment variables``, ``Libraries`` …"""
    name: str
    values: tuple[str | None, ...]
    """One per report, in the order of ``sources``; None if a report does not contain it."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.contrast/1"):
    """The primary causes of several reports, and the facts in which they differ."""

    sources: tuple[str, ...]
    """A unique name for each report."""
    primaries: tuple[str | None, ...]
    """The primary cause of each report."""
    simulated: bool
    rows: tuple[Row, ...]
    alike: int
    """Number of facts that are equal in all reports."""

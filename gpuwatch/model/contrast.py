"""Reports of several machines, or of one at several times, against each other. ``gpuwatch.contrast/1``."""

from __future__ import annotations

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fact in which the reports differ."""

    part: str
    """``Verdict``, ``Versions``, ``GPUs``, ``Environment variables``, ``Libraries`` …"""
    name: str
    values: tuple[str | None, ...]
    """Of each report, in the order of ``sources``; None where a report says nothing of it."""


class Contrast(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.contrast/1"):
    """What works here and not there, and in what the two differ."""

    sources: tuple[str, ...]
    """A name for each report, unlike the others'."""
    primaries: tuple[str | None, ...]
    """Its primary cause."""
    simulated: bool
    rows: tuple[Row, ...]
    alike: int
    """Facts that all reports tell alike."""

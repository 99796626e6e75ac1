"""The output of ``gpuwatch cause --json``: ``gpuwatch.cause/1`` and ``gpuwatch.causes/1``."""

from __future__ import annotations

import msgspec


class CausePage(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.cause/1"):
    """The page of a cause."""

    id: str
    title: str
    markdown: str
    """Its page: what it is, how it is recognized, what to do."""


class CauseName(msgspec.Struct, frozen=True, kw_only=True):
    """A cause in the list of all."""

    id: str
    title: str


class CauseList(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.causes/1"):
    """Every cause that gpuwatch knows."""

    causes: tuple[CauseName, ...]

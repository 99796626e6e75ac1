"""The output of ``gpuwatch probe --list --json`` and ``--explain``; events of probes and of watched Python processes.

An event is one JSON object on a line: from a probe on a descriptor of its own, from a watched process on a socket.
The encoders are in ``probes`` (standard library only, because they run in the user's interpreter). A missing ``end``
event is itself a result: the process was killed, ran out of memory or timed out.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One event. ``t`` is its sender's monotonic clock in seconds; ``data`` depends on ``kind``."""

    t: float
    kind: str
    data: dict[str, Any] = {}


class BrokenEventLine(msgspec.Struct, frozen=True):
    """A line that is not an event, such as an incomplete one from a probe that died."""

    line: str
    problem: str


_decoder = msgspec.json.Decoder(Event)


def decode_event(line: bytes) -> Event | BrokenEventLine:
    """The event in a line; never raises."""
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return BrokenEventLine(line[:400].decode("utf-8", "replace"), str(error))


class ProbeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in the list of all."""

    config: str
    group: str
    framework: str
    title: str
    summary: str
    """Its first paragraph; empty if the title says it all."""


class ProbeList(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.probes/1"):
    """Every configuration that ``gpuwatch probe`` runs."""

    probes: tuple[ProbeEntry, ...]


class RecipeList(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.recipes/1"):
    """The settings of configurations, as code to paste."""

    recipes: dict[str, str]
    """Code by configuration."""

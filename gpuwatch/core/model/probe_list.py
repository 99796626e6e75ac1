"""The output of ``gpuwatch probe --list --json`` (``gpuwatch.probes/1``) and ``--explain`` (``gpuwatch.recipes/1``)."""

from __future__ import annotations

import msgspec


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

"""Runs side by side: several configurations, versions, or one command on each node of a cluster.

``gpuwatch.comparison/1``.
"""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.cluster_nodes import Node, OddFact
from gpuwatch.core.model.run import Run


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How two runs of a comparison differ: what was changed, and its effects."""

    run: int
    """Index of the run."""
    against: int
    """Index of the run that it is compared with."""
    changed: tuple[str, ...] = ()
    """What was set up differently: settings, version, machine."""
    effects: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """Causes that explain it."""
    text: str = ""
    """The difference in sentences."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.comparison/1"):
    """Runs side by side."""

    runs: tuple[Run, ...]
    columns: tuple[str, ...]
    best_run: dict[str, int] = {}
    """Column to the run that is best in it among the comparable runs, by index in ``runs``."""
    worst_run: dict[str, int] = {}
    comparable: tuple[int, ...] = ()
    """Runs whose speeds may be compared: one workload, size, type and kind of device."""
    notes: tuple[str, ...] = ()
    """Caveats about the numbers, one sentence each."""
    differences: tuple[Difference, ...] = ()
    nodes: tuple[Node, ...] = ()
    """The nodes of a cluster; empty if the runs were saved one by one, on fewer than four machines."""
    odd: tuple[OddFact, ...] = ()
    """What is odd about single nodes, structure first."""
    odd_notes: tuple[str, ...] = ()
    """What could not be judged, and why."""

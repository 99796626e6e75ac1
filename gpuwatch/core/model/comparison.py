"""Runs of several configurations or versions, or the nodes of a cluster, side by side. ``gpuwatch.comparison/1``."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot

NodeState = Literal["ok", "finding", "failed", "no-answer", "timed-out", "interrupted"]
"""How the command ended on a node.

``ok``: with exit code 0.
``finding``: it did its work, and what it found is why its exit code is not 0.
``failed``: it returned no result, or only a part.
``no-answer``: gpuwatch did not start there.
``timed-out``: it was ended at its deadline.
``interrupted``: it was ended by Ctrl+C.
"""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What one command did on one node of a cluster."""

    node: str
    state: NodeState
    """``ok``, ``finding``, ``failed``, ``no-answer``, ``timed-out`` or ``interrupted``."""
    reason: str = ""
    """Why it failed, or what its exit code means: ``exit code 7``, ``killed by SIGKILL``; empty if all is well."""
    host: str | None = None
    """Name of the machine, as it calls itself; null if it did not answer."""
    exit_code: int | None = None
    """Exit code of gpuwatch there; null if it did not start, or a signal ended it."""
    gpuwatch_version: str | None = None
    """Version of gpuwatch there; null if it did not answer."""
    took_seconds: float | None = None
    """From its start there to its end; null if it did not start."""
    runs: int = 0
    """How many of the runs of the comparison are from there."""
    answer: str = ""
    """What ``gpuwatch try`` or ``report`` found there, in one sentence."""
    snapshot: Snapshot | None = None
    """The machine, by ``gpuwatch snapshot`` or ``report``."""
    doctor: Doctor | None = None
    """What ``gpuwatch doctor`` or ``report`` found."""


class OddFact(msgspec.Struct, frozen=True, kw_only=True):
    """Something in which one node differs from its siblings: nodes with equal GPUs."""

    node: str
    kind: Literal["structure", "speed"]
    """``structure``: what the node has; ``speed``: how fast it is."""
    what: str
    """What differs: ``number of GPUs``, ``driver``, ``speed of growth``."""
    value: str
    """There; a dash where it is not known."""
    usual: str
    """The value that most siblings have."""
    siblings: int
    """How many nodes it was compared with."""
    detail: str = ""
    """How a slow node was told from noise, in words."""


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

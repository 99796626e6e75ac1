"""What one command did on each node of a cluster, and in which facts single nodes differ from their siblings."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.snapshot import Snapshot

NodeState = Literal["ok", "finding", "failed", "no-answer", "timed-out", "interrupted"]
"""How the command ended on a node.

``ok``: with exit code 0.
``finding``: it did its work, and what it found made its exit code another.
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

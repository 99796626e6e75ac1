"""Which of several GPUs are connected best with each other.

Programs that use several GPUs at once wait for the slowest connection between two of them (all-reduce rings), so that
counts first, then the second slowest, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from gpuwatch.core.model.snapshot import Topology

_LEVELS = (None, "SYS", "NODE", "PHB", "PXB", "PIX", "INT")
"""From the slowest to the fastest; NVLinks are faster, the more the better."""
_ALL_TRIED = 15_000
"""Choices up to which each is looked at: 8 of 16 GPUs are 12,870."""


def rank(path: str | None) -> int:
    """How fast a connection is, compared with others; ``path`` as :meth:`Topology.path` has it."""
    if path is not None and path.startswith("NV"):
        return len(_LEVELS) + int(path[2:])
    return _LEVELS.index(path)


def best_connected(uuids: Sequence[str], count: int, topology: Topology, beside: Sequence[str] = ()) -> list[int]:
    """Places in ``uuids`` of those ``count`` that are connected best, together with all of ``beside``; in their order.

    Of choices that are equal, the first. With very many choices, a good one: what was chosen is extended by one GPU at
    a time, from each GPU as the first.
    """
    everyone = [*uuids, *beside]
    ranks = [[rank(topology.path(a, b)) if a != b else 0 for b in everyone] for a in everyone]
    always = range(len(uuids), len(everyone))

    def quality(chosen: Iterable[int]) -> list[int]:
        """The connections between all, slowest first: the larger, the better."""
        return sorted(ranks[a][b] for a, b in combinations((*chosen, *always), 2))

    if comb(len(uuids), count) <= _ALL_TRIED:
        return list(max(combinations(range(len(uuids)), count), key=quality))
    best: list[int] = []
    for first in range(len(uuids)):
        chosen = [first]
        while len(chosen) < count:
            left = (place for place in range(len(uuids)) if place not in chosen)
            chosen.append(max(left, key=lambda place: quality([*chosen, place])))
        if not best or quality(chosen) > quality(best):
            best = chosen
    return sorted(best)

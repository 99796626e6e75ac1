"""How fast the connections between GPUs are, and which GPUs are connected best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb

from gpuwatch.core.model.snapshot import Topology

_CONNECTION_LEVELS = (None, "SYS", "NODE", "PHB", "PXB", "PIX", "INT")
"""From the slowest to the fastest; NVLinks are faster, the more the better."""
_MAX_COMBINATIONS_TRIED = 15_000
"""Choices up to which each is looked at: 8 of 16 GPUs are 12,870."""


def connection_rank(path: str | None) -> int:
    """How fast a connection is, compared with others; ``path`` as :meth:`Topology.path` has it."""
    if path is not None and path.startswith("NV"):
        return len(_CONNECTION_LEVELS) + int(path[2:])
    return _CONNECTION_LEVELS.index(path)


def best_connected(uuids: Sequence[str], count: int, topology: Topology, beside: Sequence[str] = ()) -> list[int]:
    """Places in ``uuids`` of those ``count`` that are connected best, together with all of ``beside``; in their order.

    Of choices that are equal, the first. With very many choices, a good one: what was chosen is extended by one GPU at
    a time, from each GPU as the first.
    """
    all_uuids = [*uuids, *beside]
    ranks = [
        [
            connection_rank(topology.path(first_uuid, second_uuid)) if first_uuid != second_uuid else 0
            for second_uuid in all_uuids
        ]
        for first_uuid in all_uuids
    ]
    beside_places = range(len(uuids), len(all_uuids))

    def quality(chosen: Iterable[int]) -> list[int]:
        """The connections between all, slowest first: the larger, the better."""
        return sorted(
            ranks[first_uuid][second_uuid] for first_uuid, second_uuid in combinations((*chosen, *beside_places), 2)
        )

    if comb(len(uuids), count) <= _MAX_COMBINATIONS_TRIED:
        return list(max(combinations(range(len(uuids)), count), key=quality))
    best: list[int] = []
    for first in range(len(uuids)):
        chosen = [first]
        while len(chosen) < count:
            remaining = (place for place in range(len(uuids)) if place not in chosen)
            chosen.append(max(remaining, key=lambda place: quality([*chosen, place])))
        if not best or quality(chosen) > quality(best):
            best = chosen
    return sorted(best)

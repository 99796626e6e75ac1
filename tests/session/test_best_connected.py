"""GPUs that are connected well are picked together."""

from __future__ import annotations

import random
import time
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Connection, Snapshot, Topology
from gpuwatch.session.free_gpus import Requirements, best_connected, connection_rank, pick_gpus
from tests.session.test_free_gpus import chosen, gpu, machine
from tests.ui.machines import uuid


def topology(count: int, pairs: dict[tuple[int, int], str | int], other: str | None = "SYS") -> Topology:
    """``pairs``: a level, or a number of NVLinks; ``other``: all the rest."""
    return Topology(
        connections=tuple(
            Connection(
                first=uuid(a),
                second=uuid(b),
                level=found if isinstance(found, str) else "NODE",
                nvlinks=found if isinstance(found, int) else 0,
            )
            if (found := pairs.get((a, b), other)) is not None
            else Connection(first=uuid(a), second=uuid(b), level=None, missing=Missing("failed"))
            for a, b in combinations(range(count), 2)
        )
    )


def of(
    count: int, found: Topology | None, *, on: tuple[int, ...] = (), used: dict[int, float] | None = None
) -> Snapshot:
    return machine(*(gpu(index, used=(used or {}).get(index, 0)) for index in range(count)), on=on, topology=found)


PAIRS = topology(4, {(0, 2): "PIX", (1, 3): 4})


def test_the_fastest_pair() -> None:
    picked = pick_gpus(of(4, PAIRS), Requirements(2), {}, {})
    assert (chosen(picked), picked.connection, picked.spare) == ([1, 3], "NV4", 2)
    picked = pick_gpus(of(4, PAIRS, on=(3,)), Requirements(2), {}, {})
    assert (chosen(picked), picked.connection) == ([0, 2], "PIX")
    assert pick_gpus(of(4, PAIRS), Requirements(1), {}, {}).connection is None


def test_free_gpus_go_before_fast_connections() -> None:
    picked = pick_gpus(of(4, PAIRS, on=(1, 0)), Requirements(3), {}, {})
    assert (chosen(picked), picked.connection) == ([2, 3, 1], "SYS"), "2 and 3 are free; 1 has NVLinks to 3"


def test_the_slowest_connection_counts_first() -> None:
    ring = topology(4, {(0, 1): 12, (0, 2): "SYS", (1, 2): "SYS", (0, 3): "PIX", (1, 3): "PIX", (2, 3): "PHB"})
    assert chosen(pick_gpus(of(4, ring), Requirements(3), {}, {})) == [0, 1, 3]


def test_equal_connections_leave_the_order_of_free_memory() -> None:
    for found in (topology(4, {}), topology(4, {}, None), None):
        picked = pick_gpus(of(4, found, used={0: 2, 1: 1}), Requirements(2), {}, {})
        assert chosen(picked) == [2, 3]
        assert picked.connection == ("SYS" if found is not None and found.connections[0].level else None)


def test_a_switch_connects_all_that_are_at_it() -> None:
    at_switch = Topology(
        connections=topology(4, {(0, 1): "PIX"}).connections, switch_nvlinks={uuid(2): 18, uuid(3): 12}
    )
    picked = pick_gpus(of(4, at_switch), Requirements(2), {}, {})
    assert (chosen(picked), picked.connection) == ([2, 3], "NV12")


def test_an_unknown_connection_is_not_taken_for_a_fast_one() -> None:
    some = topology(3, {(0, 1): "SYS"}, None)
    picked = pick_gpus(of(3, some), Requirements(2), {}, {})
    assert (chosen(picked), picked.connection) == ([0, 1], "SYS")
    assert pick_gpus(of(3, some), Requirements(3), {}, {}).connection is None


def test_order_of_connections() -> None:
    paths = [None, "SYS", "NODE", "PHB", "PXB", "PIX", "INT", "NV1", "NV2", "NV18"]
    assert sorted(paths, key=connection_rank) == paths


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.data())
def test_no_other_choice_has_a_faster_slowest_connection(count: int, data: st.DataObject) -> None:
    levels = st.sampled_from(["SYS", "NODE", "PHB", "PIX", 2, 4])
    found = topology(count, {pair: data.draw(levels) for pair in combinations(range(count), 2)})
    wanted = data.draw(st.integers(2, count))
    uuids = [uuid(index) for index in range(count)]

    def slowest(places: tuple[int, ...] | list[int]) -> int:
        return min(connection_rank(found.path(uuids[a], uuids[b])) for a, b in combinations(places, 2))

    taken = best_connected(uuids, wanted, found)
    assert len(set(taken)) == wanted
    assert slowest(taken) == max(slowest(one) for one in combinations(range(count), wanted))


@pytest.mark.thorough
@pytest.mark.parametrize("wanted", [2, 8, 32, 63])
def test_many_gpus_take_no_time(wanted: int) -> None:
    dice = random.Random(1)
    pairs = {pair: dice.choice(["SYS", "NODE", "PIX", 4]) for pair in combinations(range(64), 2)}
    pairs |= dict.fromkeys(combinations(range(0, 64, 8), 2), 12)
    began = time.process_time()
    taken = best_connected([uuid(index) for index in range(64)], wanted, topology(64, pairs))
    assert time.process_time() - began < 20
    assert wanted != 8 or taken == list(range(0, 64, 8))

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Device, Host, Snapshot
from gpuwatch.machine.history.metric_history import History


def taken(*devices: tuple[str, dict[str, Value]]) -> Snapshot:
    return Snapshot(
        taken_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        took_seconds=0.0,
        simulated=False,
        driver=None,
        devices=tuple(
            Device(index=i, uuid=uuid, name="x", pci_bus_id="", readings=readings, missing={})
            for i, (uuid, readings) in enumerate(devices)
        ),
        processes=(),
        host=Host(hostname="h", cpu_percent=None, cpu_count=1, memory_used_bytes=None, memory_total_bytes=None),
    )


def test_a_missing_sample_is_a_gap_and_not_a_zero() -> None:
    history = History(capacity=3)
    history.add(taken(("GPU-a", {"utilization.gpu_percent": 10})))
    history.add(taken(("GPU-a", {})))
    history.add(taken())
    assert list(history.series("GPU-a", "utilization.gpu_percent")) == [10.0, None, None]
    history.add(taken(("GPU-a", {"utilization.gpu_percent": 0})))
    assert list(history.series("GPU-a", "utilization.gpu_percent")) == [None, None, 0.0]


def test_the_same_devices_again_are_a_sample_again() -> None:
    history = History(capacity=100)
    first = taken(("GPU-a", {"x": 1}), ("GPU-b", {"x": 5}))
    for _ in range(150):
        history.add(first)
    other = taken(("GPU-a", {"x": 2}))
    history.add(other)
    history.add(other)
    history.add_numbers(0.0, {("GPU-a", "x"): 3.0})
    history.add(other)
    assert list(history.series("GPU-a", "x")) == [1.0] * 96 + [2.0, 2.0, 3.0, 2.0]
    assert list(history.series("GPU-b", "x")) == [5.0] * 96 + [None] * 4
    assert len(history.times) == 100
    assert history.sample_count == 154


_VALUES = st.sampled_from([0, 1, 1.0, 2.5, "P0", True])
_READINGS = st.dictionaries(st.sampled_from(["a", "b", "c"]), _VALUES)


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(_READINGS, max_size=3), st.integers(1, 4)), max_size=10))
def test_what_is_kept_does_not_depend_on_what_is_known_to_be_the_same(
    steps: list[tuple[list[dict[str, Value]], int]],
) -> None:
    quick, whole = History(capacity=10), History(capacity=10)
    for readings, times in steps:
        snapshot = taken(*((f"GPU-{n}", values) for n, values in enumerate(readings)))
        for _ in range(times):
            quick.add(snapshot)
            whole._devices = None
            whole.add(snapshot)
    keys = [(f"GPU-{n}", metric) for n in range(3) for metric in "abc"]
    assert [list(quick.series(*key)) for key in keys] == [list(whole.series(*key)) for key in keys]
    assert quick.times == whole.times


def test_names_are_not_numbers_and_unknown_series_are_empty() -> None:
    history = History()
    history.add(taken(("GPU-a", {"performance.state": "P0"})))
    assert list(history.series("GPU-a", "performance.state")) == []
    assert list(history.series("GPU-b", "memory.used_bytes")) == []


def test_the_ring_keeps_the_last_samples_in_their_order_and_reads_like_a_list() -> None:
    history = History(capacity=100)
    for tick in range(1000):
        history.add_numbers(float(tick), {("GPU-a", "x"): float(tick)} if tick % 3 else {})
    series = history.series("GPU-a", "x")
    told = [None if tick % 3 == 0 else float(tick) for tick in range(900, 1000)]
    assert len(series) == len(history.times) == 100
    assert list(series) == told
    assert [series[place] for place in range(100)] == told
    assert (series[-1], series[-2]) == (None, 998.0)
    assert series[10:20] == told[10:20]
    assert series[::-7] == told[::-7]
    assert list(reversed(series)) == told[::-1]
    with pytest.raises(IndexError):
        series[100]
    cut = history.until(950.0)
    assert list(cut.series("GPU-a", "x")) == told[:51]
    assert list(cut.times) == [float(tick) for tick in range(900, 951)]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from([None, 0.0, 1.5]), st.sampled_from([None, 2.0])), min_size=1, max_size=7),
        max_size=6,
    ),
    st.integers(1, 9),
)
def test_blocks_are_put_as_their_samples_would_be(
    blocks: list[list[tuple[float | None, float | None]]], capacity: int
) -> None:
    """Also over gaps, series that begin later, and more samples than are kept."""
    one_by_one, by_blocks, at = History(capacity), History(capacity), 0.0
    keys = [("GPU-0", "a"), ("GPU-0", "b")]
    for block in blocks:
        times = [at + place for place in range(len(block))]
        at += len(block)
        for moment, values in zip(times, block, strict=True):
            one_by_one.add_numbers(
                moment, {key: value for key, value in zip(keys, values, strict=True) if value is not None}
            )
        columns = {key: [values[place] for values in block] for place, key in enumerate(keys)}
        by_blocks.add_columns(
            times, {key: column for key, column in columns.items() if any(v is not None for v in column)}
        )
    assert list(one_by_one.times) == list(by_blocks.times)
    for key in keys:
        expected, found = list(one_by_one.series(*key)), list(by_blocks.series(*key))
        while len(found) > len(expected) and found[0] is None:  # a series begins with its block
            del found[0]
        assert expected == found
        assert one_by_one.last_number(*key) == by_blocks.last_number(*key)

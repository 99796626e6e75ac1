"""Columns of numbers: any numbers come back, with their types and bits."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.recording.columns import DamagedColumn, pack, unpack

whole = st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**64 - 1))
decimals = st.integers(-(10**7), 10**7).flatmap(
    lambda number: st.sampled_from([number / 10, number / 100, number * 1e-3, number / 1000, float(number)])
)
floats = st.one_of(decimals, st.floats())
columns = st.one_of(
    st.lists(whole, min_size=1, max_size=70),
    st.lists(floats, min_size=1, max_size=70),
    st.lists(st.one_of(whole, floats), min_size=1, max_size=70),
    st.tuples(whole, st.integers(1, 10**9), st.integers(1, 70)).map(
        lambda counter: [min(counter[0] + counter[1] * step, 2**64 - 1) for step in range(counter[2])]
    ),
)


def bits(value: float) -> object:
    return struct.pack("d", value) if isinstance(value, float) else value


@settings(max_examples=400, deadline=None)
@given(columns)
@example([137377248981523.0, 0.001])  # more than eight bytes as whole numbers
@example([-137377248981523.0, 0.000001])
def test_numbers_come_back_with_types_and_bits(values: list[float]) -> None:
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(pack(values)))
    back = list(unpack(stored, len(values)))
    assert [type(one) for one in back] == [type(one) for one in values]
    assert list(map(bits, back)) == list(map(bits, values))


def test_what_does_not_change_or_grows_evenly_is_small() -> None:
    assert pack([5] * 60) == 5
    watts = [round(300 + step % 7 * 0.25, 2) for step in range(60)]
    assert len(msgspec.msgpack.encode(pack(watts))) < 80
    energy = [10**12 + 287_000 * step for step in range(60)]
    assert len(msgspec.msgpack.encode(pack(energy))) < 90


@pytest.mark.parametrize(
    "damaged", [[], [9], [0, 1, 1, b"abc"], [1, 0, 0, 1, b"a"], [2, 99, 1], [2, 0, 1, 1], [3, b"\xff", b"1"], [4, [1]]]
)
def test_damaged_columns_are_refused(damaged: object) -> None:
    with pytest.raises(DamagedColumn):
        unpack(damaged, 60)

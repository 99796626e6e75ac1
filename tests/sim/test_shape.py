from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.errors import UsageError
from gpuwatch.sim.machine_shape import MAX_DEVICES, MIN_MEMORY_BYTES, SimShape
from tests.every import every


@pytest.mark.parametrize(
    ("text", "count", "memory", "canonical"),
    [
        ("2x24GiB", 2, 24 * 2**30, "2x24GiB"),
        ("24GiB", 1, 24 * 2**30, "1x24GiB"),
        ("8 x 80 gb", 8, 80 * 10**9, "8x80GB"),
        ("1X512mib", 1, 512 * 2**20, "1x512MiB"),
        ("1536MiB", 1, 1536 * 2**20, "1x1536MiB"),
        (" 16x1.5GiB ", 16, 3 * 2**29, "16x1536MiB"),
        ("4*8GiB", 4, 8 * 2**30, "4x8GiB"),
    ],
)
def test_reads_and_writes(text: str, count: int, memory: int, canonical: str) -> None:
    shape = SimShape.parse(text)
    assert (shape.count, shape.memory_bytes) == (count, memory)
    assert str(shape) == canonical


@every(
    [
        ("0x1", "no unit"),
        ("0x1GiB", "0 simulated GPUs"),
        ("2x", "no memory size after the x"),
        ("x8GiB", "no number of GPUs before the x"),
        ("twox8GiB", "no number of GPUs before the x"),
        ("99x8GiB", "1 to 16"),
        ("2x8", "no unit"),
        ("2x8XiB", "unknown unit 'XiB'"),
        ("2x100MiB", "the minimum is 512 MiB"),
        ("2x-8GiB", "expected a number of GPUs and a memory size"),
        ("2x5TiB", "the maximum is 1 TiB"),
        (f"2x{'9' * 400}TiB", "the maximum is 1 TiB"),
        ("", "no memory size"),
        ("2x8GiB,2x24GiB", "expected a number of GPUs and a memory size"),
    ]
)
def test_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        SimShape.parse(text)
    assert says in str(caught.value)
    assert "2x24GiB" in str(caught.value)  # an example
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@given(st.integers(1, MAX_DEVICES), st.integers(MIN_MEMORY_BYTES // 2**20, 2**20))
def test_the_canonical_text_reads_back(count: int, memory_mib: int) -> None:
    shape = SimShape(count, memory_mib * 2**20)
    assert SimShape.parse(str(shape)) == shape


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        shape = SimShape.parse(text)
    except UsageError:
        return
    assert 1 <= shape.count <= MAX_DEVICES

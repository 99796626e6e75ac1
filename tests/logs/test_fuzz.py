"""A short run of the mutation fuzzer; a long one by hand is described in :mod:`tests.logs.fuzz`."""

from __future__ import annotations

import time

import pytest

from gpuwatch.explain.logs.log_parser import LogParser
from tests.every import every
from tests.logs.fuzz import check, made, run

SEEDS, COUNT = 2, 500


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_damaged_log_breaks_anything(seed: int) -> None:
    assert run(seed, COUNT) == []


def test_the_same_seed_makes_the_same_input() -> None:
    assert made(3, 5) == made(3, 5) != made(3, 6)


def _seconds(line: str) -> float:
    parser = LogParser()
    began = time.process_time()
    for _ in range(5):
        parser.feed(line)
    parser.close()
    return time.process_time() - began


def _takes_at_most(times: float, line: str, other: str) -> bool:
    """Whether one of three tries, of which noise can spoil some, takes at most so many times as long as another."""
    usual = max(min(_seconds(other) for _ in range(3)), 0.002)
    return any(_seconds(line) < times * usual for _ in range(3))


UNITS = (
    "I tensorflow/x.cc:1] Created device ",
    "CUDA out of memory. Tried to allocate ",
    "OOM when allocating tensor with shape[1,",
    "Could not load dynamic library 'a",
    "> # [a] ",
    "device: 0, name: ",
    "Error: a.b.",
    "\x1b[",
    "(pid=",
    '{"log":"device \\\\',
    "\r",
    "1.",
    "  ",
    "/job:a/device:GPU:0",
)


@pytest.mark.thorough
@every(UNITS)
def test_the_time_for_a_line_grows_with_its_length_and_no_faster(unit: str) -> None:
    """Ten times the length may take ten times the time, with room for noise; a hundred times would be quadratic."""
    size = 20_000
    assert _takes_at_most(40, unit * (10 * size // len(unit)), unit * (size // len(unit)))


_NINES = "9" * 5000
HUGE = (
    f"failed to allocate 1B ({_NINES} bytes) from device",
    f"Allocator (GPU_0_bfc) ran out of memory trying to allocate {_NINES}GiB (rounded to {_NINES})",
    f"Created device /device:GPU:{_NINES} with {_NINES} MB memory:  -> device: {_NINES}, name: X, pci bus id: 01:00.0",
    f"Ignoring visible gpu device (device: {_NINES}, name: X, pci bus id: 0000:01:00.0) with core count: {_NINES}",
    f"OOM when allocating tensor with shape[{_NINES},{','.join(['9' * 14] * 9)}] and type float on /device:GPU:0",
    f"OOM when allocating tensor with shape[{','.join(['9' * 14] * 9)}] and type float on /device:GPU:0",
    f"failed call to cuInit: UNKNOWN ERROR ({_NINES})",
    f"Out of memory while trying to allocate {_NINES} bytes.",
    f"GPU_0_bfc cuMemAllocAsync failed to allocate {_NINES}",
    f"CUDA out of memory. Tried to allocate {_NINES}.00 GiB (GPU {_NINES}; {_NINES} GiB total capacity)",
    f"Could not satisfy device specification '/device:GPU:{_NINES}'",
)


def test_huge_numbers_and_deep_nesting_are_only_text() -> None:
    check(
        [
            "Limit: " + "9" * 5000,
            "{" * 100_000,
            '{"log":' + "[" * 50_000,
            *(f"I0504 10:11:12.1 7 x.cc:1] {text}" for text in HUGE),
        ]
    )


def test_a_free_chunk_of_more_digits_than_memory_has_is_none() -> None:
    """Of 400 digits, which Python reads as a number and no float holds."""
    at = "2026-05-04 10:11:12.131415: W tensorflow/core/common_runtime/bfc_allocator.cc:479] "
    check(
        [
            f"{at}Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)",
            f"{at}Free  at 7f0000000000 of size {'9' * 400} next 1",
            f"{at}Sum Total of in-use chunks: 2.00GiB",
            f"{at}OOM when allocating tensor with shape[268435456] and type float on /device:GPU:0",
        ]
    )


@pytest.mark.thorough
@every(HUGE)
def test_a_line_of_digits_takes_no_longer_than_another(text: str) -> None:
    """Patterns that begin with a number could start at each of its digits."""
    other = text.replace(_NINES, "9 " * (len(_NINES) // 2))
    assert _takes_at_most(30, f"x.cc:1] {text}", f"x.cc:1] {other}")

"""A short run of the mutation fuzzer; a long one by hand is described in :mod:`tests.logs.fuzz`."""

from __future__ import annotations

import time

import pytest

from gpuwatch.logs.tensorflow import LogParser
from tests.logs.fuzz import check, made, run


@pytest.mark.parametrize("seed", range(4))
def test_no_damaged_log_breaks_anything(seed: int) -> None:
    assert run(seed, 1000) == []


def test_the_same_seed_makes_the_same_input() -> None:
    assert made(3, 5) == made(3, 5) != made(3, 6)


def _seconds(lines: list[str]) -> float:
    parser = LogParser()
    began = time.process_time()
    for line in lines:
        parser.feed(line)
    parser.close()
    return time.process_time() - began


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


@pytest.mark.parametrize("unit", UNITS)
def test_the_time_for_a_line_grows_with_its_length_and_no_faster(unit: str) -> None:
    """Ten times the length may take ten times the time, with room for noise; a hundred times would be quadratic."""
    size = 20_000
    short, long = unit * (size // len(unit)), unit * (10 * size // len(unit))
    few = max(min(_seconds([short] * 5) for _ in range(3)), 0.002)
    assert min(_seconds([long] * 5) for _ in range(3)) < 40 * few


def test_huge_numbers_and_deep_nesting_are_only_text() -> None:
    check(
        [
            "Limit: " + "9" * 5000,
            "{" * 100_000,
            '{"log":' + "[" * 50_000,
            "failed to allocate 1B (" + "9" * 5000 + " bytes) from device",
        ]
    )

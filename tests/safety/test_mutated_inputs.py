"""Some hundred mutated inputs of each reader; more by hand, see :mod:`tests.safety.mutated_inputs`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.safety.mutated_inputs import READERS, fault, faults
from tests.traces.hostile import Watched

COUNT = 1000
WATCHED = Watched()
CODE = ("allocator snapshot", "TensorFlow profile")
"""Readers of formats that could carry code; others compile the types of our own documents at their first use."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", READERS)
def test_a_reader_refuses_in_one_line_what_it_cannot_read_and_runs_nothing(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    assert [fault(name, start) for start in READERS[name].starts()] == ["" for _ in READERS[name].starts()]
    WATCHED.heard.clear()
    WATCHED.on = name in CODE
    try:
        found = list(faults(name, COUNT, 7))
    finally:
        WATCHED.on = False
    record_property("counted", f"{COUNT} inputs")
    assert not found
    assert not WATCHED.heard

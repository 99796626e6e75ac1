"""Files that want to do harm: nothing is run, and every answer is a value or a sentence, in bounded time and memory."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from gpuwatch.explain.traces import InvalidTrace
from gpuwatch.explain.traces.memory_profiles import torch_profiles
from gpuwatch.explain.traces.safe_pickle import is_pickle, load
from tests.every import every
from tests.traces.hostile import SNAPSHOT, Watched, handmade, problem

WATCHED = Watched()
RUN_CODE = ("reduce", "build", "global", "stack global", "inst", "extension", "persistent")


@every(handmade())
def test_a_hostile_pickle_is_refused_or_harmless(name: str) -> None:
    WATCHED.heard.clear()
    WATCHED.on = True
    try:
        wrong = problem(handmade()[name])
    finally:
        WATCHED.on = False
    assert not wrong
    assert not WATCHED.heard


@pytest.mark.parametrize("name", RUN_CODE)
def test_what_wants_code_to_be_run_is_said(name: str) -> None:
    with pytest.raises(InvalidTrace, match=r"would run code \(\w+\), which this reader never does"):
        load(handmade()[name])


def test_a_bomb_takes_no_memory() -> None:
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from tests.traces.hostile import handmade, problem
print([name for name, data in handmade().items() if problem(data)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_is_read_as_python_reads_it(protocol: int) -> None:
    text = "line\nbreak \\u00e9 é 漢"
    value = {"a": [1, -1, 255, 65536, 1 << 40, -(1 << 60), 2.5, None, True, False, text, "x" * 300, (), (1,)], "b": {}}
    value["c"] = [(1, 2), (1, 2, 3), (1, 2, 3, 4), [[]], {"d": {"e": ()}}, value["b"]]
    assert load(pickle.dumps(value, protocol)) == value


def test_a_snapshot_is_known_by_its_first_bytes() -> None:
    assert is_pickle(SNAPSHOT)
    assert not is_pickle(b"\x80\x04")
    assert not is_pickle(b"2026-01-01 a log line")
    with pytest.raises(InvalidTrace, match="not a snapshot"):
        torch_profiles(pickle.dumps({"a": 1}, 4))

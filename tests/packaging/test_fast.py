"""``pytest -m fast``: given by what a test can reach, and kept by a hook that sees every process that starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LONGEST, gpuwatch
from tests.every import every
from tests.fast import fast_ones, forbid_processes

REPOSITORY = Path(__file__).parents[2]


def _by_a_helper() -> None:
    gpuwatch("--version")


def _by_the_machine(sim_machine: Any) -> None:
    sim_machine("1x1GiB")


def _by_a_dashboard(make_stage: Any) -> None:
    make_stage().app.run_test()


def _by_nobody(tmp_path: Path) -> None:
    tmp_path.mkdir()


def test_a_test_is_slow_by_what_its_helpers_and_fixtures_do(request: pytest.FixtureRequest) -> None:
    def made(function: Callable[..., None]) -> pytest.Function:
        return pytest.Function.from_parent(request.node.parent, name=function.__name__, callobj=function)

    slow = [made(one) for one in (_by_a_helper, _by_the_machine, _by_a_dashboard)]
    fast = made(_by_nobody)
    assert fast_ones([*slow, fast]) == [fast]


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run([sys.executable, "-c", ""]),
        lambda: subprocess.Popen("true", shell=True),
        lambda: os.system("true"),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        os.fork,
        os.forkpty,
    ],
    ids=["run", "shell", "system", "spawn", "fork", "forkpty"],
)
def test_a_fast_test_that_starts_a_process_fails(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match="starts a process"), forbid_processes():
        start()


def test_that_it_is_caught_does_not_help() -> None:
    with pytest.raises(pytest.fail.Exception, match="started processes"), forbid_processes(), suppress(BaseException):
        subprocess.run([sys.executable, "-c", ""])
    with forbid_processes():
        pass
    assert subprocess.run([sys.executable, "-c", ""]).returncode == 0


def test_the_longest_files_are_there() -> None:
    for name in LONGEST:
        assert (REPOSITORY / name).is_file(), "renamed? the order of files goes by it"


def test_all_cases_that_fail_are_told() -> None:
    @every([(1, 2), (2, 2), (3, 2)])
    def alike(one: int, other: int) -> None:
        assert one == other
        pytest.fail("by name")

    with pytest.raises(AssertionError, match="3 of 3 cases") as told:
        alike()
    assert [f"case {number}" in str(told.value) for number in (1, 2, 3)] == [True] * 3
    with pytest.raises(AssertionError, match="no cases"):
        every(())(lambda case: None)()

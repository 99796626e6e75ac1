"""What ``run --placement`` finds in small programs, each with its truth: nothing is lost, nothing invented."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpuwatch.experiment.probing.watch_program
from gpuwatch.sim.libraries import Tier
from tests.conftest import has_cuda_wheel
from tests.forked import start_gpuwatch_forked

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

_SCRIPT = Path(__file__).with_name("run_programs.py")
_WATCHER = Path(gpuwatch.experiment.probing.watch_program.__file__).parents[3] / "probes/_gpuwatch_watch"
_NOT_BELOW_CUDA = frozenset(
    {"keras_fit", "keras_fit_under_gpu", "keras_functional", "gradient", "gradient_in_a_function"}
    | {"keras_text_under_gpu", "mirrored_fit_within_a_scope"}
)
"""On the driver tier nothing computes: Keras cannot train nor read the size of its vocabulary, and TensorFlow aborts
where cuSOLVER finds no real GPU."""


_DEVICES = st.sampled_from(["GPU:0", "GPU:1", "GPU:5", "CPU:0"])


def _nodes(leaves: list[list[str]], devices: Any, kinds: tuple[str, ...], inner: Any = None) -> Any:
    """Lists of nodes; ``inner``: what is in the nodes of these kinds, by kind, where it is something else."""

    def within(nodes: Any) -> Any:
        lists = st.lists(nodes, min_size=1, max_size=3)
        blocks = [st.tuples(st.just(kind), (inner or {}).get(kind, lists)) for kind in kinds]
        return st.one_of(st.tuples(st.just("scope"), devices, lists), *blocks)

    return st.lists(st.recursive(st.sampled_from(leaves), within, max_leaves=12), min_size=1, max_size=3)


_IN_DATA = _nodes([["op"]], _DEVICES, ("branch", "loop", "function"))
_IN_FUNCTIONS = _nodes([["op"], ["product"]], _DEVICES, ("branch", "loop", "function"))
_PROGRAMS = _nodes(
    *([["op"], ["product"]], _DEVICES | st.none(), ("function", "thread", "data")),
    {"function": _IN_FUNCTIONS, "data": _IN_DATA},
)
"""Descriptions of programs (:mod:`tests.placement.generated`)."""


@contextlib.contextmanager
def _started(tier: Tier, python: str, *names: str) -> Iterator[Callable[[str | None], dict[str, Any]]]:
    """A process of TensorFlow with these programs, or all; asked with None it tells one, else what is described."""
    command = ("sim", "--gpus", "2", "--memory", "4GiB", "--tier", tier, "--", python, str(_SCRIPT), str(_WATCHER))
    with start_gpuwatch_forked(*command, *names, environment=dict(os.environ), tier=tier) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def answer(question: str | None) -> dict[str, Any]:
            if question is not None:
                stdin.write(question + "\n")
                stdin.flush()
            for line in stdout:
                if line.startswith("{"):
                    found: dict[str, Any] = json.loads(line)
                    return found
            raise AssertionError(f"it ended: {process.wait()}")

        yield answer
        stdin.close()


def _wrong(answer: dict[str, Any], file: str) -> tuple[Any, ...] | None:
    """What was lost, what was invented, and fallbacks of other files; None if nothing."""
    wanted, allowed = ({tuple(one) for one in answer[key]} for key in ("wanted", "allowed"))
    seen = {(op, asked, actual) for op, asked, actual, _ in answer["seen"]}
    elsewhere = {at for *_, at in answer["seen"] if not at.startswith(file)}
    if answer["error"] or wanted - seen or seen - wanted - allowed or elsewhere:
        return answer["name"], wanted - seen, seen - wanted - allowed, elsewhere, answer["error"]
    return None


def _check(tier: Tier, python: str, without: frozenset[str] = frozenset()) -> None:
    """Every program of :mod:`tests.placement.programs`, in one start of TensorFlow."""
    with _started(tier, python) as ask:
        answers = [ask(None)]
        while answers[-1]["name"] != "the end":
            answers.append(ask(None))
        told = [answer for answer in answers[:-1] if answer["name"] not in without]
        assert len(told) >= 120
        assert not [wrong for answer in told if (wrong := _wrong(answer, "programs.py:"))]
        nodes, unclear = sum(answer["nodes"] for answer in told), sum(answer["unclear"] for answer in told)
        assert unclear < 0.1 * nodes
        assert not [one["name"] for one in told if one["nodes"] > 20 and one["unclear"] > 0.1 * one["nodes"]]


def _check_generated(tier: Tier, python: str) -> None:
    """Nothing is invented, and what is lost is counted."""
    counts = {"wanted": 0, "lost": 0}
    with _started(tier, python, "string") as ask:
        while ask(None)["name"] != "the end":
            pass

        @settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(_PROGRAMS)
        def generated(program: list[Any]) -> None:
            answer = ask(json.dumps(program))
            wanted = {tuple(one) for one in answer["wanted"]}
            lost = wanted - {(op, asked, actual) for op, asked, actual, _ in answer["seen"]}
            counts["wanted"] += len(wanted)
            counts["lost"] += len(lost)
            assert len(lost) <= answer["unclear"], "what is lost is counted"
            answer["wanted"] = [one for one in answer["wanted"] if tuple(one) not in lost]
            assert _wrong(answer, "generated.py:") is None

        generated()
    assert counts["lost"] <= 0.05 * counts["wanted"]


@pytest.mark.slow
def test_on_gpus_that_compute() -> None:
    _check("plugin", sys.executable)


@pytest.mark.long
def test_generated_programs() -> None:
    _check_generated("plugin", sys.executable)


@pytest.mark.long
@pytest.mark.skipif(not has_cuda_wheel(), reason="needs a CUDA build of TensorFlow")
def test_below_cuda() -> None:
    _check("driver", sys.executable, _NOT_BELOW_CUDA)
    _check_generated("driver", sys.executable)


@pytest.mark.long
@pytest.mark.skipif("GPUWATCH_OLD_TENSORFLOW" not in os.environ, reason="GPUWATCH_OLD_TENSORFLOW names no interpreter")
@pytest.mark.parametrize("tier", ["plugin", "driver"])
def test_an_older_tensorflow(tier: Tier) -> None:
    without = frozenset() if tier == "plugin" else _NOT_BELOW_CUDA
    _check(tier, os.environ["GPUWATCH_OLD_TENSORFLOW"], without)
    _check_generated(tier, os.environ["GPUWATCH_OLD_TENSORFLOW"])

"""What ``run --placement`` finds in small programs, each with its truth: nothing is lost, nothing invented."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpuwatch.experiment.probing.watch
from tests.conftest import has_cuda_wheel

pytestmark = pytest.mark.tensorflow

_SCRIPT = Path(__file__).with_name("run_programs.py")
_WATCHER = Path(gpuwatch.experiment.probing.watch.__file__).parents[3] / "probes/_gpuwatch_watch"
_NOT_BELOW_CUDA = frozenset(
    {"keras_fit", "keras_fit_under_gpu", "keras_functional", "gradient", "gradient_in_a_function"}
)
"""On the driver tier Keras has no kernels for its training, and TensorFlow aborts where cuSOLVER finds no real GPU."""


def _run(tier: str, python: str = sys.executable) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "gpuwatch", "sim", "--gpus", "2", "--memory", "4GiB", "--tier", tier]
    done = subprocess.run(
        [*command, "--", python, str(_SCRIPT), str(_WATCHER)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert answers, done.stderr[-3000:]
    return answers


def _judge(answers: list[dict[str, Any]], without: frozenset[str] = frozenset()) -> None:
    wrong = []
    for answer in answers:
        if answer["name"] in without:
            continue
        wanted, allowed = ({tuple(one) for one in answer[key]} for key in ("wanted", "allowed"))
        seen = {(op, asked, actual) for op, asked, actual, _ in answer["seen"]}
        elsewhere = {at for *_, at in answer["seen"] if not at.startswith("programs.py:")}
        if answer["error"] or wanted - seen or seen - wanted - allowed or elsewhere:
            wrong.append((answer["name"], wanted - seen, seen - wanted - allowed, elsewhere, answer["error"]))
    assert not wrong


@pytest.mark.slow
def test_on_gpus_that_compute() -> None:
    answers = _run("plugin")
    _judge(answers)
    assert len(answers) >= 70
    nodes, unclear = sum(answer["nodes"] for answer in answers), sum(answer["unclear"] for answer in answers)
    assert unclear < 0.1 * nodes


@pytest.mark.long
@pytest.mark.skipif(not has_cuda_wheel(), reason="needs a CUDA build of TensorFlow")
def test_below_cuda() -> None:
    _judge(_run("driver"), _NOT_BELOW_CUDA)


@pytest.mark.long
@pytest.mark.skipif("GPUWATCH_OLD_TENSORFLOW" not in os.environ, reason="GPUWATCH_OLD_TENSORFLOW names no interpreter")
def test_an_older_tensorflow() -> None:
    _judge(_run("plugin", os.environ["GPUWATCH_OLD_TENSORFLOW"]))

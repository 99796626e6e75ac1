"""What ``run --placement`` says of programs with several processes: nothing lost, nothing invented."""

from __future__ import annotations

import bisect
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.sim.libraries import Tier
from tests.conftest import has_cuda_wheel
from tests.forked import gpuwatch_forked

_FOLDER = Path(__file__).parent
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here"),
]


def _run(script: str, tier: Tier, folder: Path, *arguments: str) -> dict[str, Any]:
    out = folder / "run.json"
    options = ("--placement", "-q", "--no-save", "--sim", "2x2GiB", "--sim-tier", tier, "-o", str(out))
    command = ("run", *options, "--", sys.executable, str(_FOLDER / script), *arguments)
    done = gpuwatch_forked(*command, environment=dict(os.environ), timeout=500, tier=tier)
    assert done.code == 0, done.err[-2000:]
    run: dict[str, Any] = json.loads(out.read_text())
    assert run["placement_coverage"]["unclear"] <= 0.1 * run["placement_coverage"]["nodes"]
    return run


@pytest.mark.parametrize("tier", ["plugin", pytest.param("driver", marks=pytest.mark.long)])
def test_every_fallback_is_told_with_its_line_and_no_other(tier: Tier, tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    run = _run("in_processes.py", tier, tmp_path, str(truth))
    programs = sorted(json.loads(truth.read_text()), key=lambda one: one[1])
    told: dict[str, set[tuple[str, str, str]]] = {name: set() for name, *_ in programs}
    for entry in run["fallbacks"]:
        file, _, line = entry["scope"].rpartition(":")
        assert file == "programs.py"
        name = programs[bisect.bisect([first for _, first, *_ in programs], int(line)) - 1][0]
        told[name].add((entry["op"], entry["requested"], entry["actual"]))
    for name, _, wanted, allowed in programs:
        known = {tuple(one) for one in wanted if one[0] != "ReadVariableOp"}  # its value is copied where it is used
        assert told[name] - {tuple(one) for one in allowed} == known, name
    assert "program.forked" not in [one["id"] for one in run["findings"]], "TensorFlow had not started its GPUs"
    (compiled,) = (entry for entry in run["fallbacks"] if "XLA" in entry["detail"])
    assert (compiled["op"], compiled["reason"]) == ("MatMul", "placement.together")


@pytest.mark.long
@pytest.mark.parametrize("tier", ["plugin", "driver"])
def test_workers_of_one_strategy(tier: Tier, tmp_path: Path) -> None:
    run = _run("two_workers.py", tier, tmp_path)
    found = {(one["op"], one["requested"], one["actual"], one["count"]) for one in run["fallbacks"]}
    assert found == {(op, "GPU:0", "CPU:0", 2) for op in ("StringJoin", "AsString")}

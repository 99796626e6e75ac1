"""What ``run --placement`` says of programs that request devices: nothing lost, nothing invented."""

from __future__ import annotations

import bisect
import json
import sys
from pathlib import Path

import pytest

from tests.conftest import gpuwatch, has_cuda_wheel

_PROGRAMS = Path(__file__).with_name("placement_programs.py")
pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not has_cuda_wheel(), reason="no CUDA build of TensorFlow here"),
]


@pytest.mark.parametrize("tier", ["plugin", pytest.param("driver", marks=pytest.mark.long)])
def test_every_fallback_is_told_with_its_line_and_no_other(tier: str, tmp_path: Path) -> None:
    truth, out = tmp_path / "truth.json", tmp_path / "run.json"
    options = ("--placement", "-q", "--no-save", "--sim", "2x24GiB", "--sim-tier", tier, "-o", str(out))
    done = gpuwatch("run", *options, "--", sys.executable, str(_PROGRAMS), str(truth), timeout=500)
    assert done.code == 0, done.err[-2000:]
    programs = sorted(json.loads(truth.read_text()), key=lambda one: one[1])
    expected = {name: {tuple(entry) for entry in told} for name, _, told in programs}
    told: dict[str, set[tuple[str, str, str]]] = {name: set() for name in expected}
    run = json.loads(out.read_text())
    for entry in run["fallbacks"]:
        file, _, line = entry["scope"].rpartition(":")
        assert file == _PROGRAMS.name
        name = programs[bisect.bisect([first for _, first, _ in programs], int(line)) - 1][0]
        told[name].add((entry["op"], entry["requested"], entry["actual"]))
    assert told == expected
    coverage = run["placement_coverage"]
    assert coverage["unclear"] <= 0.1 * coverage["nodes"]

"""``gpuwatch run --placement`` on programs such as TensorFlow's guides show: the lesson is told, and nothing false.

Most run with ``-m long`` only: each takes some seconds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forked import gpuwatch_forked
from tests.guides.programs import PROGRAMS, Program

pytestmark = pytest.mark.tensorflow

_ALWAYS = frozenset(
    {
        "a-loop-of-small-ops",
        "an-array-within-the-graph",
        "gpu-3-of-two-in-a-session",
        "growth-too-late",
        "gpu-2-of-two-softly",
        "int-variable-on-the-gpu",
        "mirrored-loop",
        "parameter-server-without-a-cluster",
        "retraced-by-python-numbers",
        "session-invalid-list",
        "slow-generator",
        "words-within-the-step",
    }
)
"""What ``.ci/run`` runs: one program a kind of lesson."""
_SIMULATION = frozenset({"simulation.limit"})
"""Says of a simulated GPU what a real one would do otherwise: neither a lesson nor false."""


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, id=p.name, marks=() if p.name in _ALWAYS else pytest.mark.long) for p in PROGRAMS],
)
def test_the_lesson_is_in_the_answer_and_nothing_false(program: Program, tmp_path: Path) -> None:
    run = _run(program, tmp_path)
    assert run["outcome"]["exit_code"] == program.exit_code
    found = {finding["id"]: finding for finding in run["findings"]}
    assert program.findings <= found.keys(), sorted(found)
    assert program.finds_no not in found
    assert program.says in run["verdict_reason"]
    assert any(program.advises in finding["action"] for finding in run["findings"]) or not program.advises
    accused = {name for name, finding in found.items() if finding["severity"] != "info"}
    assert accused <= program.findings | _SIMULATION, [found[name]["title"] for name in accused]
    moved = {(f["op"], f["requested"]) for f in run["fallbacks"] if f["reason"] not in _SIMULATION and f["requested"]}
    assert moved == program.fallbacks
    counts = {(one["op"], one["actual"], str(one["count"])) for one in run["placements"]}
    counts |= {(one["op"], one["source"], one["destination"], str(one["count"])) for one in run["copies"]}
    assert program.counts <= counts


def _run(program: Program, folder: Path) -> dict[str, Any]:
    script, document = folder / f"{program.name}.py", folder / "run.json"
    script.write_text(program.code)
    done = gpuwatch_forked(
        *("run", "--placement", "--no-save", "--sim", "2x4GiB", "--sim-tier", program.tier, "-q", "-o", str(document)),
        *("--", sys.executable, str(script)),
        environment=dict(os.environ),
        tier=None if program.fresh else "driver" if program.tier == "driver" else "plugin",  # None: it is started
    )
    assert document.exists(), done.err
    answer: dict[str, Any] = json.loads(document.read_text())
    return answer

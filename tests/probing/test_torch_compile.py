"""A program that compiles its optimizer's step behaves under ``gpuwatch run`` as it does alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conftest import torch_pythons
from tests.probing.watched import read, watched

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

_PROGRAM = """
import sys
import torch


class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


layer = torch.nn.Linear(4, 4)
layer(torch.ones(2, 4)).sum().backward()
graphs = []


def backend(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return graph.forward


def run(optimizer, whole):
    step = torch.compile(optimizer.step, backend=backend, fullgraph=whole)
    for _ in range(20):
        step()


if sys.argv[1] == "own":
    run(Own(layer.parameters()), True)
else:
    run(torch.optim.Adam(layer.parameters()), False)
print(graphs, sum(torch._dynamo.utils.counters["graph_break"].values()))
"""


@pytest.mark.parametrize("python", torch_pythons() or [None])
@pytest.mark.parametrize(("optimizer", "steps"), [("own", None), ("adam", 20)])
def test_a_compiled_step_has_the_same_graphs(tmp_path: Path, python: str, optimizer: str, steps: int | None) -> None:
    script, out = tmp_path / "program.py", tmp_path / "run.json"
    script.write_text(_PROGRAM)
    command = [python, str(script), optimizer]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    done = watched("--no-save", "-o", str(out), "--", *command)
    assert (done.returncode, done.stdout.decode()) == (0, alone.stdout)
    throughput = read(out).get("throughput")
    assert (throughput["steps"] if throughput else None) == steps

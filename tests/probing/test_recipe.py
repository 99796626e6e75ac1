"""Recipes: whole programs that speak of nothing but the framework, and that run."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.experiment.probing.probe_scripts import example_code, find_probe, find_probes
from gpuwatch.sim.libraries import Tier
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.every import every
from tests.forked import forked

NAMES = list(find_probes())
ON_TENSORFLOW = [name for name, script in find_probes().items() if script.framework == "tensorflow"]
TRAIN = ("mirrored", "model-parallel", "multi-worker")
"""They train, which is more than matrix products: for simulated GPUs of the plug-in tier."""
SIMILAR = (
    *("growth-env", "misspelt-env", "session-growth", "session-grow-to-limit", "session-soft", "session-visible"),
    *("soft-missing", "no-kernel-soft", "visible-env", "visible-late", "towers"),
)
"""Made of the lines of others: they run with ``-m long`` only."""
WAIT = ("fragmentation", "largest-batch")
"""TensorFlow waits ten seconds for memory before it says that there is none: beside the others."""

PREPARED = {
    # These GPUs have neither NCCL nor cuDNN, which are the defaults that the recipes rightly leave alone.
    "mirrored": "import functools, tensorflow\n"
    "tensorflow.distribute.MirroredStrategy = functools.partial(\n"
    "    tensorflow.distribute.MirroredStrategy, cross_device_ops=tensorflow.distribute.ReductionToOneDevice())\n",
    "model-parallel": "import functools, tensorflow\n"
    "tensorflow.keras.layers.LSTM = functools.partial(tensorflow.keras.layers.LSTM, use_cudnn=False)\n",
}

PRINTS = {
    "growth": ["device:GPU:0"],
    "cpu-only": ["device:CPU:0"],
    "misspelt-env": ["device:GPU:0"],
    "visible-invalid-first": ["device:CPU:0"],
    "visible-api": ["device:GPU:0"],
    "fraction": ["device:GPU:0 may have 1638 MB", "[[11.]]"],
    "grow-to-limit": ["device:GPU:0"],
    "session-grow-to-limit": ["device:GPU:0 may have 1638 MB", "[[11.]]"],
    "growth-and-limit": ["Cannot set memory growth", "device:GPU:0"],
    "mixed-growth": ["Memory growth cannot differ between GPU devices", "device:GPU:0"],
    "late-config": ["memory growth: Physical devices", "logical devices: Virtual", "visible devices: Visible devices"],
    "hard-missing": ["device specification '/job:localhost/replica:0/task:0/device:GPU:7'"],
    "soft-missing": ["device:GPU:0"],
    "no-kernel-hard": ["Could not satisfy device specification"],
    "no-kernel-soft": ["device:CPU:0"],
    "session-no-kernel": ["Cannot assign a device", "VariableV2: CPU"],
    "session-placement": ["product: (MatMul): /job:localhost/replica:0/task:0/device:GPU:1", "[[11.]]"],
    "session-soft": ["moved: (MatMul): /job:localhost/replica:0/task:0/device:GPU:0", "[[11.]]"],
    "session-visible": ["device:GPU:0", "[[11.]]"],
    "local-server": ["Started server with target: grpc://localhost", "device:GPU:1'", "[[11.]]"],
    "virtual": ["device:GPU:0", "device:GPU:1"],
    "towers": ["device:GPU:0", "device:GPU:1", "device:CPU:0"],
    "visible-late": ["device:GPU:0"],
    "fragmentation": ["OOM when allocating tensor"],
    "largest-batch": ["OOM when allocating tensor", "largest batch that fitted: "],
    "contention": ["first may have 1638 MB", "second may have 1638 MB", "second computed [[11.]]"],
    "occupied": ["out of memory"],
    "mirrored": ["2 replicas", "Epoch 3/3"],
    "model-parallel": ["Epoch 3/3", "device:GPU:0 /job:localhost/replica:0/task:0/device:GPU:1"],
    "multi-worker": ["2 replicas, loss "],
}
"""What shows that a recipe did what it is about."""


def undefined(source: str) -> set[str]:
    """Names that a program reads and nothing gives it."""
    nodes = list(ast.walk(ast.parse(source)))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    given = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    given |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    given |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    given |= {node.name for node in nodes if isinstance(node, ast.ExceptHandler) and node.name}
    imports = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    given |= {alias.asname or alias.name.partition(".")[0] for alias in imports}
    return read - given - set(dir(builtins))


@pytest.mark.thorough
@every(NAMES)
def test_a_recipe_is_a_whole_program_of_its_own(name: str) -> None:
    source = example_code(find_probe(name))
    compile(source, name, "exec")
    assert source.startswith("# ")
    assert source.endswith("\n")
    assert not source.endswith("\n\n")
    assert max(map(len, source.splitlines())) <= 120
    for word in ("probe", "gpuwatch", "simulat", "...\n", "$"):
        assert word not in source.lower()
    nodes = list(ast.walk(ast.parse(source)))
    assert not [node for node in nodes if isinstance(node, ast.Constant) and node.value is ...]
    assert undefined(source) == set()
    # Something is done with the settings.
    assert [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "worker")]
    framework = {"tensorflow": "tensorflow as tf", "torch": "torch"}[find_probe(name).framework]
    assert source.count(f"import {framework}\n") == 1


@every(
    [
        ("limit", {"memory_limit": 512}, "limit = 512  # MB"),
        ("growth-and-limit", {"memory_limit": 512}, "limit = 512  # MB"),
        ("virtual", {"memory_limit": 512}, "memory_limit=512)"),
        ("virtual", {"virtual": 3}, "[part] * 3)"),
        ("fragmentation", {"memory_limit": 256}, "(256 << 20) // 16 // 4"),
        ("largest-batch", {"memory_limit": 256}, "memory_limit=256)"),
        ("fraction", {"fraction": 0.3}, "per_process_gpu_memory_fraction=0.3)"),
        ("contention", {"fraction": 0.3}, "per_process_gpu_memory_fraction=0.3,"),
        ("torch-fraction", {"fraction": 0.3}, "set_per_process_memory_fraction(0.3, 0)"),
        ("visible-env", {}, 'os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"'),
        ("visible-env", {"visible": "GPU-1,GPU-0"}, 'os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-1,GPU-0"'),
        ("torch-visible", {"visible": "1,0"}, 'os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"'),
        # As text, whatever it holds.
        ("visible-env", {"visible": 'a"; import this; "'}, r'= "a\"; import this; \""'),
        ("soft-missing", {"missing_device": "/GPU:9"}, 'device = "/GPU:9"'),
        # It is about this value.
        ("cpu-only", {"visible": "1,0"}, 'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"'),
    ]
)
def test_options_reach_the_recipe(name: str, options: dict[str, Any], expected: str) -> None:
    assert expected in example_code(find_probe(name), options)


Ran = tuple[int | None, str]


class Lane:
    """Runs programs one after the other, in forks of an interpreter that has imported TensorFlow.

    On GPUs of its own, or the programs of two lanes would take each other's memory. Lanes of one tier share the import.
    """

    def __init__(self, folder: Path, tier: Tier) -> None:
        self._folder = folder
        self._machine = SimMachine.open(SimShape.parse("2x4GiB"), name=f"recipe-{uuid.uuid4().hex[:12]}")
        self._environment = {**self._machine.environment(os.environ, tier=tier), "TF_CPP_MIN_LOG_LEVEL": "0"}
        self.queue = ThreadPoolExecutor(1)

    def run(self, name: str, source: str) -> Ran:
        """Exit code and output."""
        script = self._folder / f"{name.replace('-', '_')}.py"
        script.write_text(source)
        with forked([str(script)], self._environment) as program:
            try:
                output = "".join(program.communicate(timeout=45))
            finally:
                program.kill()
        return program.returncode, output

    def close(self) -> None:
        self.queue.shutdown(cancel_futures=True)
        self._machine.remove()


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Ran]]]:
    """The recipes of the chosen tests, while they run."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed here")
    folder = tmp_path_factory.mktemp("recipes")
    driver, plugin, waiting = (Lane(folder, tier) for tier in ("driver", "plugin", "driver"))
    chosen: dict[str, Future[Ran]] = {}
    try:
        for item in request.session.items:
            if isinstance(item, pytest.Function) and item.function is test_a_recipe_runs:
                name = item.callspec.params["name"]
                lane = plugin if name in TRAIN else waiting if name in WAIT else driver
                source = PREPARED.get(name, "") + example_code(find_probe(name))
                chosen[name] = lane.queue.submit(lane.run, name, source)
        yield chosen
    finally:
        for lane in (driver, plugin, waiting):
            lane.close()


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in SIMILAR)) for name in ON_TENSORFLOW]
)
def test_a_recipe_runs(name: str, ran: dict[str, Future[Ran]]) -> None:
    code, output = ran[name].result()
    assert code == 0, output
    for text in PRINTS.get(name, []):
        assert text in output, output

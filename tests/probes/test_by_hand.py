"""Each script run by hand, as ``python probes/growth.py``: readable lines, and a truthful end without a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpuwatch.experiment.probing.probe_scripts import find_probes
from tests.conftest import has_driver
from tests.forked import Forked, forked
from tests.probes.by_hand import compare

SCRIPTS = find_probes()
# TensorFlow's allocator tries for ten seconds before it gives up.
SLOW = ("fragmentation", "largest-batch")
NEEDS_GPUS = {
    **dict.fromkeys(["growth-and-limit", "no-kernel-hard", "no-kernel-soft", "session-no-kernel"], 1),
    **dict.fromkeys(["mixed-growth", "session-placement", "mirrored", "towers", "model-parallel"], 2),
}
SIMILAR = (
    *("no-kernel-hard", "no-kernel-soft", "session-no-kernel", "mixed-growth", "session-placement", "towers"),
    *("model-parallel", "async-allocator", "growth", "misspelt-env", "visible-env", "visible-invalid-first", "manual"),
    *("session-soft", "session-visible", "grow-to-limit", "session-grow-to-limit", "visible-late"),
)
"""Without a GPU they go the way of others: they run with ``-m long`` only."""

By = dict[str, list[str]]


def by_hand(name: str, *flags: str, python: str = sys.executable, **environment: str) -> tuple[int, By]:
    """Exit code, and the lines of each kind of event."""
    done = subprocess.run(
        [python, *arguments(name), *flags],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=100,
        check=False,
    )
    return done.returncode, events(done.stdout, done.stderr)


def arguments(name: str) -> list[str]:
    return [str(SCRIPTS[name].path), "--seconds", "0.02", "--size", "64"]


def events(out: str, err: str) -> By:
    lines: By = {}
    for line in out.splitlines():
        kind, _, rest = line.partition(" ")
        lines.setdefault(kind, []).append(rest.strip())
    assert "start" in lines, err[-2000:]
    return lines


def _parameters(framework: str) -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW else [pytest.mark.long] * (name in SIMILAR))
        for name, script in SCRIPTS.items()
        if script.framework == framework
    ]


@pytest.fixture(scope="module")
def waiting(request: pytest.FixtureRequest) -> Iterator[dict[str, Forked]]:
    """Those that wait for memory, begun before the others."""
    chosen = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    started = {name: forked(arguments(name), os.environ) for name in SLOW if name in chosen}
    yield started
    for program in started.values():
        program.kill()
        program.communicate()


@pytest.mark.tensorflow
@pytest.mark.skipif(has_driver(), reason="this machine has a driver: the verdicts are tested with it")
@pytest.mark.parametrize("name", _parameters("tensorflow"))
def test_without_a_gpu(name: str, waiting: dict[str, Forked]) -> None:
    program = waiting.get(name) or forked(arguments(name), os.environ)
    lines = events(*program.communicate(timeout=100))
    assert program.returncode == 0, lines.get("error")
    assert lines["end"] == ["ok=True"]
    if name in NEEDS_GPUS:
        wanted = "1 GPU" if NEEDS_GPUS[name] == 1 else "2 GPUs"
        assert lines["skip"] == [f"reason=needs {wanted}, and TensorFlow has no GPU"]
    elif name == "contention":
        assert lines["skip"][0].endswith("TensorFlow has none")
    elif name == "occupied":
        assert "there is no CUDA driver" in lines["skip"][0]
    else:
        assert "skip" not in lines
        assert "throughput" in lines or name in (*SLOW, "hard-missing")
        assert all("CPU:0" in line for line in lines.get("placement", []))
    if name in SLOW:
        assert "type=ResourceExhaustedError" in lines["error"][0]


@pytest.mark.tensorflow
@pytest.mark.parametrize("workload", ["mlp", "conv", "lstm"])
def test_a_network_learns_and_its_ops_are_counted(workload: str) -> None:
    program = forked([*arguments("auto"), "--workload", workload], os.environ)
    lines = events(*program.communicate(timeout=100))
    assert program.returncode == 0, lines.get("error")
    before, after = (float(line.rpartition("=")[2]) for line in lines["result"])
    assert after < 0.5 * before
    assert any("op=MatMul" in line and "dtype=float32" in line for line in lines["placement"])
    assert "examples_per_second" in lines["throughput"][0]
    assert "batch=" in lines["start"][0]


@pytest.mark.tensorflow
def test_copying_without_a_gpu_is_skipped() -> None:
    program = forked([*arguments("default"), "--workload", "copy"], {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"})
    lines = events(*program.communicate(timeout=100))
    assert lines["skip"][0].endswith("no GPU to copy to")


@pytest.mark.tensorflow
def test_an_option_reaches_the_environment() -> None:
    program = forked([*arguments("visible-env"), "--visible", "1,0"], os.environ)
    lines = events(*program.communicate(timeout=100))
    assert any("asked=1,0" in line for line in lines["setting"])


@pytest.mark.tensorflow
def test_the_loop_by_hand_and_the_probe_measure_the_same_work() -> None:
    """That both run and are of one magnitude; how close they are is for a benchmark to say."""
    found = compare("matmul", size=256, seconds=0.1, rounds=1)
    assert 0.1 < found.ratio < 10


def test_a_missing_framework_is_a_reason_to_skip() -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch is installed here")
    code, lines = by_hand("torch-map")
    assert code == 0
    assert lines["skip"] == [f"reason=PyTorch is not installed in {sys.executable}"]


@pytest.mark.parametrize("name", _parameters("torch"))
def test_torch_says_what_it_could_not_test(name: str) -> None:
    python = os.environ.get("GPUWATCH_TORCH_PYTHON", sys.executable)
    if python == sys.executable and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed here; GPUWATCH_TORCH_PYTHON can name an interpreter that has it")
    code, lines = by_hand(name, python=python, CUDA_VISIBLE_DEVICES="-1,0")
    assert code == 0, lines.get("error")
    (reason,) = lines["skip"]
    assert reason.startswith("reason=PyTorch has no GPU: ")
    if name != "torch-visible":  # which sets the variable itself
        assert "=-1,0 hides every GPU" in reason


_NAMES = """
import keras, tensorflow as tf
from gpuwatch.explain.logs import removed_api
for module, names in removed_api._names_of_tensorflow_1().items():
    old, new = tf.compat.v1, tf
    for part in module.split(".") if module != "tf" else ():
        old, new = getattr(old, part), getattr(new, part, None)
    wrong = [name for name in names if not hasattr(old, name) or hasattr(new, name)]
    assert not wrong, (module, wrong)
try:
    tf.placeholder
except AttributeError as error:
    assert removed_api.find_removed_api(str(error)).name == "tf.placeholder"
v1 = tf.compat.v1
calls = lambda: keras.optimizers.Adam(lr=0.01), lambda: v1.layers.dense, lambda: tf.keras.backend.set_session
for build in calls:
    try:
        build()
    except Exception as error:
        assert removed_api.find_removed_api(str(error)), error
"""


@pytest.mark.tensorflow
def test_removed_names_are_those_of_this_tensorflow() -> None:
    """Each is in ``tf.compat.v1`` and not in ``tf``, and the errors read as they do here."""
    with forked(["-c", _NAMES], os.environ) as program:
        _, error = program.communicate(timeout=120)
    assert program.returncode == 0, error

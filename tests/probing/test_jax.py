"""What is seen of programs that use JAX."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.probing.test_watcher import load
from tests.trials.programs import document

GIB = 1 << 30


class _Device:
    def __init__(self, platform: str, number: int = 0) -> None:
        self.platform, self.name = platform, f"{'cuda' if platform == 'gpu' else platform}:{number}"
        self.device_kind = "NVIDIA H100 80GB HBM3"

    def __str__(self) -> str:
        return self.name

    def memory_stats(self) -> dict[str, int]:
        assert self.platform == "gpu"
        return {"bytes_in_use": GIB, "peak_bytes_in_use": 2 * GIB, "bytes_limit": 60 * GIB}


def _seen(
    monkeypatch: pytest.MonkeyPatch, platforms: dict[str, list[_Device]], factories: list[str], *beside: str
) -> dict[str, Any]:
    """What the watcher reports of a program with these devices, after two looks; ``beside``: other frameworks."""
    watcher = load("_gpuwatch_watcher").Watcher("nowhere", load, None)
    found: dict[str, Any] = {}
    watcher.emit = lambda kind, **data: found.update({kind: data})
    clients = {name: SimpleNamespace(local_devices=lambda found=found: found) for name, found in platforms.items()}
    for name in ("tensorflow", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in beside:
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(__version__="0.10.2"))
    bridge = SimpleNamespace(_backends=clients, _backend_factories=dict.fromkeys(factories))
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    watcher.devices.jax()
    clients.clear()  # as JAX does at the program's end
    watcher.devices.jax()
    return found


def test_before_it_has_started_its_devices_only_its_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _seen(monkeypatch, {}, ["cpu", "tpu"])
    assert found.keys() == {"framework"}
    assert (found["framework"]["name"], found["framework"]["gpu_build"]) == ("jax", None)
    assert _seen(monkeypatch, {}, ["cpu", "tpu"], "tensorflow") == {}, "TensorFlow may be what does the work"


def test_a_build_without_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _seen(monkeypatch, {"cpu": [_Device("cpu")]}, ["cpu", "tpu"])
    assert found["framework"]["gpu_build"] is False
    assert found["devices"]["logical"] == ["cpu:0"]
    assert "memory" not in found


def test_gpus_and_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _seen(
        monkeypatch, {"cpu": [_Device("cpu")], "cuda": [_Device("gpu")]}, ["cpu", "tpu", "cuda"], "tensorflow"
    )
    assert (found["framework"]["name"], found["framework"]["gpu_build"]) == ("jax", True)
    assert found["devices"]["logical"] == ["cpu:0", "cuda:0"]
    assert found["memory"] == {"device": "cuda:0", "current": GIB, "peak": 2 * GIB}
    card = {"cuda_ordinal": 0, "name": "NVIDIA H100 80GB HBM3", "granted_bytes": 60 * GIB}
    assert found["mapping"] == {"framework_device": "cuda:0", **card}


@pytest.mark.parametrize("used", [True, False])
def test_failed_requests_of_jax_are_not_counted_though_it_forgets_its_devices(
    monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    """What is counted as none makes the log's lines about memory those of another run."""
    for name in ("tensorflow", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    watcher = load("_gpuwatch_watcher").Watcher("nowhere", load, None)
    watcher.failures = load("_gpuwatch_failure_counts").Failures()
    watcher.socket, found = object(), {}
    watcher.emit = lambda kind, **data: found.update({kind: data})
    watcher.latest.update({"jax devices": {}} if used else {})
    watcher.last_words()
    assert found["end"]["exhausted"] == (None if used else 0)


PROGRAM = """
import jax, jax.numpy as jnp
w = jnp.ones((64, 64))
for _ in range(20): w = jax.jit(lambda x: x @ x * 1e-3)(w).block_until_ready()
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_a_real_program(tmp_path: Path) -> None:
    script, output = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(PROGRAM)
    subprocess.run(
        [*(sys.executable, "-m", "gpuwatch", "run", "-q", "--no-save", "-o", output, "--"), sys.executable, script],
        check=True,
    )
    run = json.loads(output.read_text())
    assert (run["framework"]["name"], run["framework"]["gpu_build"]) == ("jax", False)
    assert run["devices"]["logical"] == ["cpu:0"]
    found = document("--rounds", "1", "--sim", "1x2GiB", "--", sys.executable, str(script))
    assert {trial["asked"]: trial["not_tried"] for trial in found["trials"]} == {
        "default": "",
        "no-preallocate": "simulated GPUs do not have it",
        "platform-allocator": "simulated GPUs do not have it",
        "fraction=0.5": "the program used no GPU",
    }

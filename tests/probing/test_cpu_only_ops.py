"""Ops of a tf.function that no GPU can compute: told of functions that run on a GPU, not of those on the CPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.probing.test_watcher import load

_CUDA_KERNELS = {"MatMul": True, "Relu": True, "AssignAdd": True, "StringLength": False}


def node(name: str, op: str, device: str, *inputs: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, op=op, device=f"/job:localhost/device:{device}", input=inputs, attr={})


@pytest.mark.parametrize(("trained_on", "is_told"), [("GPU:0", True), ("CPU:1", False)])
def test_a_function_that_runs_on_the_cpu_does_not_leave_the_gpu(trained_on: str, is_told: bool) -> None:
    """As in a step of a MirroredStrategy of CPUs whose metrics are on a GPU that it sees."""
    placed = [
        node("product", "MatMul", trained_on),
        node("relu", "Relu", trained_on, "product"),
        node("length", "StringLength", "CPU:0"),
        node("metric", "AssignAdd", "GPU:0", "length"),
    ]
    ops = SimpleNamespace(has_some_cuda_kernel=_CUDA_KERNELS.get, in_host_memory=lambda *_: False)
    cpu_only_ops = load("_gpuwatch_cpu_only_ops").CpuOnlyOps(ops, SimpleNamespace(functions={}))
    cpu_only_ops.inspect("__inference_step_1", None, placed, set())
    told: list[list[object]] = []
    cpu_only_ops.tell(lambda kind, name, value: told.extend(value))
    assert told == ([["step", 1, {"StringLength": [1, ""]}]] if is_told else [])

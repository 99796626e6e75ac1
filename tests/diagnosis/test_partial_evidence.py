"""Logs that were cut before the numbers: a cause is named only where what is left rules out the others."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts
from gpuwatch.explain.diagnosis.memory.oom_verdict import judge
from tests.every import every

MIB, GIB = 1 << 20, 1 << 30
_TF = "ResourceExhaustedError: OOM when allocating tensor with shape[{}] and type float on /device:GPU:0 by allocator"
_TF_SMALL = f"{_TF.format('10,10')} GPU_0_bfc [Op:MatMul]"
_TORCH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
_CARD = """name: GeForce GTX 1080 Ti major: 6 minor: 1 memoryClockRate(GHz): 1.582
pciBusID: 0000:01:00.0
totalMemory: 10.92GiB freeMemory: 10.76GiB"""
_CREATED = (
    "2024-05-05 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1928] Created device /job:localhost"
    "/replica:0/task:0/device:GPU:0 with {} MB memory:  -> device: 0, name: {}, pci bus id: 0000:01:00.0,"
    " compute capability: 8.6"
)
_CREATED_1 = (
    "2019-05-05 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1433] Found device 0 with properties: \n"
    f"{_CARD}\n2019-05-05 10:00:00.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1115] Created TensorFlow"
    " device (/job:localhost/replica:0/task:0/device:GPU:0 with 10403 MB memory) -> physical GPU (device: 0, name:"
    " GeForce GTX 1080 Ti, pci bus id: 0000:01:00.0, compute capability: 6.1)"
)
_BFC = "2022-06-01 10:05:00.1: W tensorflow/core/common_runtime/bfc_allocator.cc:479]"
_FULL = f"""{_BFC} Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.50GiB (rounded to 1610612736)
{_BFC} Stats:
Limit:                     23425187840
InUse:                     22656581632
"""


@every(
    [
        (_TF_SMALL, "unknown"),
        (f"Epoch 1/10\n312/312 [====] - 14s 44ms/step - loss: 1.2\n{_TF_SMALL}", "unknown"),
        (f"{_TORCH} 20.00 MiB", "unknown"),
        (f"{_TORCH} 20.00 MiB (GPU 0; 10.92 GiB total capacity; ", "unknown"),
        (f"{_TORCH} 2.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 1.56 MiB is free.", "unknown"),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes.", "unknown"),
        (
            "E gpu_cudamallocasync_allocator.cc:288] gpu_async_0 cuMemAllocAsync failed to allocate 1048576 bytes:"
            " CUDA error: out of memory (CUDA_ERROR_OUT_OF_MEMORY)",
            "unknown",
        ),
        # The name tells the least memory only: 22000 MB need not be most of it.
        (f"{_CREATED.format(22000, 'NVIDIA GeForce RTX 3090')}\n{_TF_SMALL}", "unknown"),
        (f"{_TF.format('4096,4096,16')} GPU_0_bfc", "memory.model-too-large"),
        ("RuntimeError: CUDA error: out of memory", "memory.model-too-large"),
        # What TensorFlow got at its start tells who held the rest.
        (f"{_CREATED_1}\n{_TF_SMALL}", "memory.model-too-large"),
        (f"{_CREATED.format(310, 'NVIDIA GeForce RTX 3090')}\n{_TF_SMALL}", "memory.other-process"),
        (f"{_CREATED.format(1024, 'NVIDIA GeForce RTX 3090')}\n{_TF_SMALL}", "memory.limit-too-small"),
        (f"{_CREATED_1}\n{_TF.format('60000,224,224,3')} GPU_0_bfc", "memory.request-too-large"),
        # A second failure follows from the first, whose numbers are there.
        (f"{_FULL}{_TF_SMALL}", "memory.model-too-large"),
        (
            f"{_TORCH} 20.00 MiB. GPU 0 has a total capacity of 23.65 GiB of which 12.06 MiB is free. Process 1201 has"
            " 21.80 GiB memory in use. Process 88 has 1.8",
            "memory.other-process",
        ),
    ]
)
def test_a_cause_needs_evidence(log: str, cause: str) -> None:
    found = explain(log.splitlines(keepends=True))
    assert found.primary == cause
    errors = [one for one in found.findings if one.severity == "error"]
    assert [one.id for one in errors] == [cause]
    assert found.ooms
    assert "this process 0 B" not in " ".join(errors[0].evidence)
    if cause == "unknown":
        assert errors[0].title.startswith("Out of GPU memory; it is not")
        assert "gpuwatch run" in errors[0].action


def test_a_table_of_nvidia_smi_in_the_log_is_evidence_without_a_cause() -> None:
    table = """
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 430.40       Driver Version: 430.40       CUDA Version: 10.1     |
|   0  GeForce RTX 309...  Off  | 00000000:01:00.0 Off |                  N/A |
|  0%   38C    P8    N/A / 120W |  23111MiB / 24268MiB |      0%      Default |
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0      4711      C   /usr/bin/python3                           23011MiB |
+-----------------------------------------------------------------------------+
"""
    found = explain((_TF_SMALL + table).splitlines(keepends=True))
    assert found.primary == "unknown"
    assert any("process 4711 held 22.5 GiB" in line for line in found.findings[0].evidence)


@pytest.mark.parametrize(
    ("known", "cause"),
    [
        (OomFacts(), "unknown"),
        (OomFacts(total_bytes=24 * GIB), "unknown"),
        (OomFacts(total_bytes=24 * GIB, others_bytes=0, held_by_others=False), "memory.model-too-large"),
        (OomFacts(total_bytes=24 * GIB, others_bytes=23 * GIB, held_by_others=True), "memory.other-process"),
        (OomFacts(total_bytes=16 * MIB), "memory.request-too-large"),
    ],
)
def test_what_the_machine_shows_decides(known: OomFacts, cause: str) -> None:
    assert judge(Oom(requested_bytes=32 * MIB), known).cause == cause


def test_host_memory_is_not_a_question_of_the_gpu() -> None:
    assert judge(Oom(requested_bytes=400, allocator="cpu"), OomFacts()).cause == "memory.model-too-large"

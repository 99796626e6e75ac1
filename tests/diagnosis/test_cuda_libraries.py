"""Which CUDA a missing library is of, and what helps."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.run import RunError
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import cuda_version_of, install_advice
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import draft
from tests.every import every

_LOADS = "W tensorflow/stream_executor/dso_loader.cc:60] Could not load dynamic library '{0}'; dlerror: {0}"
_SKIPS = (
    "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1850] Cannot dlopen some GPU libraries. Skipping registering"
)


@every(
    [
        ("libcudart.so.8.0", "8.0"),
        ("libcublas.so.9.0", "9.0"),
        ("libcudart.so.10.0", "10.0"),
        ("libcufft.so.10.0", "10.0"),
        ("libcudart.so.10.1", "10.1"),
        ("libcublas.so.10", "10"),
        ("libcudart.so.11.0", "11"),
        ("libcublasLt.so.11", "11"),
        ("libcudart.so.12", "12"),
        ("cudart64_80.dll", "8.0"),
        ("cudart64_101.dll", "10.1"),
        ("cudart64_110.dll", "11"),
        ("cudart64_12.dll", "12"),
        ("libcudnn.so.8", None),
        ("libcufft.so.10", None),
    ]
)
def test_a_librarys_name_tells_its_cuda(name: str, cuda: str | None) -> None:
    assert cuda_version_of(["libnvinfer.so.7", name]) == cuda


@pytest.mark.parametrize("library", ["libcudart.so.9.0", "libcudart.so.10.0", "libcudart.so.10.1", "libcudart.so.11.0"])
def test_a_tensorflow_older_than_its_cuda_wheels_is_told_the_cuda_that_it_wants(library: str) -> None:
    found = explain([_LOADS.format(library), _SKIPS])
    assert found.primary == "cuda.libraries-missing"
    action = found.findings[0].action or ""
    cuda = cuda_version_of([library])
    assert action.startswith(f"Install CUDA {cuda} ")
    assert "newer TensorFlow" in action


def test_libraries_that_the_wheels_bring_come_with_them() -> None:
    action = explain([_LOADS.format("libcudart.so.12"), _SKIPS]).findings[0].action or ""
    assert action == 'Install them into the same environment: pip install "tensorflow[and-cuda]".'
    assert "[and-cuda]" in install_advice(["libcudnn.so.9"], "2.18.0")


def test_the_version_of_tensorflow_decides_where_it_is_known() -> None:
    assert install_advice(["libcudart.so.11.0"], "2.14.1").startswith("Install them into the same")
    assert "TensorFlow 2.10.0" in install_advice(["libcudnn.so.8"], "2.10.0")
    assert "TensorFlow 2.5.0 needs" in install_advice(["libcudart.so.11.0"], "2.5.0")
    assert "tensorflow" not in install_advice(["libcudart.so.12"], framework="pytorch")


_NO_NCCL = (
    "2026-11-22 04:39:20.1: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2040] Created device "
    "/job:localhost/replica:0/task:0/device:GPU:0 with 14000 MB memory:  -> device: 0, name: Tesla T4, "
    "pci bus id: 0000:00:04.0, compute capability: 7.5\n"
    "Traceback (most recent call last):\n"
    '  File "train.py", line 9, in <module>\n'
    "    model.fit(x, y)\n"
    "tensorflow.python.framework.errors_impl.InternalError: Graph execution error:\n"
    "\n"
    "Detected at node adam/CollectiveReduceV2 defined at (most recent call last):\n"
    "<stack traces unavailable>\n"
    "Collective ops is aborted by: NCCL: Unable to load NCCL library. Multi-GPU collectives will not work.. "
    "Set NCCL_DEBUG=WARN for detail.\n"
    "The error could be from a previous operation. Restart your program to reset.\n"
    "\t [[{{node adam/CollectiveReduceV2}}]] [Op:__inference_multi_step_on_iterator_1191]\n"
)


def test_missing_nccl_ends_the_work_and_is_named() -> None:
    """The GPUs are there and mapped all the same. Also where only the exception is known, of a watched program."""
    facts = parse(_NO_NCCL)
    (found,) = [one for one in diagnose(Evidence(log=facts)) if one.severity == "error"]
    assert (found.id, found.certainty) == ("cuda.libraries-missing", "fact")
    assert "libnccl.so.2" in found.title
    assert any("Unable to load NCCL library" in line for line in found.evidence)
    message = _NO_NCCL.partition("InternalError: ")[2]
    run = draft(verdict="error", errors=(RunError(type="InternalError", message=message),))
    (found,) = [one for one in diagnose(Evidence(log=facts, run=run)) if one.severity == "error"]
    assert found.id == "cuda.libraries-missing"

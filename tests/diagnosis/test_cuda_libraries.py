"""Which CUDA a missing library is of, and what helps."""

from __future__ import annotations

import pytest

from gpuwatch.diagnosis.cuda_libraries import cuda_of, install
from gpuwatch.diagnosis.explain import explain

_LOADS = "W tensorflow/stream_executor/dso_loader.cc:60] Could not load dynamic library '{0}'; dlerror: {0}"
_SKIPS = (
    "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1850] Cannot dlopen some GPU libraries. Skipping registering"
)


@pytest.mark.parametrize(
    ("name", "cuda"),
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
    ],
)
def test_a_librarys_name_tells_its_cuda(name: str, cuda: str | None) -> None:
    assert cuda_of(["libnvinfer.so.7", name]) == cuda


@pytest.mark.parametrize("library", ["libcudart.so.9.0", "libcudart.so.10.0", "libcudart.so.10.1", "libcudart.so.11.0"])
def test_a_tensorflow_older_than_its_cuda_wheels_is_told_the_cuda_that_it_wants(library: str) -> None:
    found = explain([_LOADS.format(library), _SKIPS])
    assert found.primary == "cuda.libraries-missing"
    action = found.findings[0].action or ""
    cuda = cuda_of([library])
    assert action.startswith(f"Install CUDA {cuda} ")
    assert "newer TensorFlow" in action


def test_libraries_that_the_wheels_bring_come_with_them() -> None:
    action = explain([_LOADS.format("libcudart.so.12"), _SKIPS]).findings[0].action or ""
    assert action == 'Install them into the same environment: pip install "tensorflow[and-cuda]".'
    assert "[and-cuda]" in install(["libcudnn.so.9"], "2.18.0")


def test_the_version_of_tensorflow_decides_where_it_is_known() -> None:
    assert install(["libcudart.so.11.0"], "2.14.1").startswith("Install them into the same environment")
    assert install(["libcudnn.so.8"], "2.10.0").startswith("Install the CUDA and cuDNN that TensorFlow 2.10.0")
    assert "TensorFlow 2.5.0 wants" in install(["libcudart.so.11.0"], "2.5.0")
    assert "tensorflow" not in install(["libcudart.so.12"], torch=True)

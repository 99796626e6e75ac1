# ruff: noqa: E501 - texts as they are printed
"""Actions use what the log says, in the terms of the framework that failed."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.explain_log import explain
from tests.every import every

_JAX_OOM = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes."
_UNKNOWN_999 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling"
    " NumCudaDevices() that might have already set an error? Error {}"
)


def _first(text: str) -> Finding:
    return explain(text.split("\n")).findings[0]


@every(
    [
        (_JAX_OOM, "XLA_CLIENT_MEM_FRACTION", "TF_"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED at torch/csrc", "LD_LIBRARY_PATH", "growth"),
        ("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: x\nCould not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
         "XLA_PYTHON_CLIENT_PREALLOCATE=false", "growth"),
        ("ImportError: /env/torch/lib/libtorch_cuda.so: libcudart.so.12: cannot open shared object file: No such file",
         "pytorch.org", "tensorflow"),
        ("onnxruntime: Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open"
         " shared object file: No such file or directory", "ONNX Runtime", "tensorflow"),
        ("RuntimeError: CuPy failed to load libnvrtc.so.12: OSError: libnvrtc.so.12: cannot open shared object file: No"
         " such file or directory", "CuPy", "tensorflow"),
        ("RuntimeError: Unable to load cuSPARSE. Is it installed? (jax_plugins)", "jax[cuda12]", "tensorflow"),
        ("CUDA_SETUP: WARNING! libcudart.so not found in any environmental path.", "bitsandbytes", "tensorflow"),
        ("Could not locate cudnn_ops_infer64_8.dll. Please make sure it is in your library path!",
         "PATH", "tensorflow"),
        ("NVIDIA RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.\nThe current"
         " PyTorch install supports CUDA capabilities sm_50 sm_60 sm_90.", "sm_120", "tensorflow"),
        ("ggml_cuda: ERROR: CUDA kernel x has no device code compatible with CUDA arch 520.", "another GPU", "tensorflow"),
        ("AssertionError: Torch not compiled with CUDA enabled", "pytorch.org", "tensorflow"),
        ("W xla_bridge.py:1] An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed.",
         "jax[cuda12]", "tensorflow"),
        ("Loaded runtime CuDNN library: 9.1.1 but source was compiled with: 9.3.0.  CuDNN library needs to match",
         "cuDNN 9.3.0", ""),
        ("RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (11.8).",
         "CUDA 11.8", ""),
        ("RuntimeError: ('The detected CUDA version (%s) mismatches the version that was used to compilePyTorch (%s).', '11.1',"
         " '12.4')", "toolkit (nvcc) for CUDA 12.4", "Reinstall"),
        ("RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile\nPyTorch (11.8).",
         "toolkit (nvcc) for", "Reinstall"),
        ("NVIDIA-SMI 515.1  Driver Version: 515.1\nFailed to initialize NVML: Driver/library version mismatch",
         "works elsewhere", ""),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "LD_LIBRARY_PATH", "growth"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "smaller batch", "growth"),
        ("RuntimeError: NCCL Error 2: unhandled system error", "NCCL_DEBUG", ""),
        ("CUDA SETUP: Setup Failed!", "bitsandbytes", "tensorflow"),
        ("TensorFlow GPU support is not available on native Windows for TensorFlow >= 2.11.", "WSL2", "uninstall"),
        ("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.", "torchvision",
         "tensorflow"),
        ("Found GPU0 Tesla P40 which is of cuda capability 6.1.\nMinimum and Maximum cuda capability supported by this"
         " version of PyTorch is (7.5) - (12.0)", "PyTorch for 6.1 (this one supports 7.5 to 12.0)", ""),
        ("Found GPU0 Tesla P40 which is of cuda capability 6.1.\n    Minimum and Maximum cuda capability supported by this"
         " version of PyTorch is\n    (7.5) - (12.0)\n", "PyTorch for 6.1 (this one supports 7.5 to 12.0)", ""),
        ("ImportError: libcudart.so.13: cannot open shared object file: No such file or directory", "CUDA 13", ""),
        ("jaxlib.xla_extension.XlaRuntimeError: NOT_FOUND: no supported devices found for platform CUDA", "nvidia-smi",
         ""),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
         "nouveau              2334720  4", "blacklist nouveau", "nvidia-container"),
        (_UNKNOWN_999.format("802: system not yet initialized"), "fabric manager", ""),
        (_UNKNOWN_999.format("999: unknown error"), "nvidia_uvm", ""),
        (_UNKNOWN_999.format("804: forward compatibility was attempted on non supported HW"), "cuda-compat", "Reboot"),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "7"\nRuntimeError: No CUDA GPUs are available',
         "CUDA_VISIBLE_DEVICES=7 where the program sets it", ""),
    ],
)  # fmt: skip
def test_the_action_uses_what_the_log_says(text: str, has: str, lacks: str) -> None:
    found = _first(text)
    assert has in found.action
    assert not lacks or lacks not in found.action


@pytest.mark.parametrize(
    ("text", "certainty"),
    [
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "fact"),
        ("RuntimeError: CUDA error: device kernel image is invalid", "likely"),
        ("[1.1] NVRM: GPU at 0000:65:00.0 has fallen off the bus.", "fact"),
        ("Unable to determine the device handle for GPU 0000:65:00.0: Unknown Error", "likely"),
        ("pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.", "fact"),
        ("[1.1] nouveau 0000:01:00.0: DRM: VRAM: 2048 MiB", "likely"),
        (
            "ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
            "likely",
        ),
        ("Failed to initialize NVML: Unknown Error", "likely"),
    ],
)
def test_only_what_was_said_outright_is_a_fact(text: str, certainty: str) -> None:
    assert _first(text).certainty == certainty


def test_out_of_memory_of_a_gpu_is_not_the_hosts() -> None:
    for text in ("CUDA Error: Out Of Memory", "HIP Error: Out Of Memory", "GPU 0: Out Of Memory"):
        assert "host's memory" not in _first(text).title
    assert "host's memory" in _first("srun: error: gpu01: task 0: Out Of Memory").title


def test_what_proves_a_driver_is_no_missing_driver() -> None:
    no_device = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
    for proof in ("No devices were found", "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0x65:1436)"):
        found = explain([proof, no_device]).findings
        assert [one.id for one in found] == ["driver.bad-state"]


def test_jax_without_a_gpu_claims_nothing_of_the_driver() -> None:
    for text in ("FAILED_PRECONDITION: No visible GPU devices.", "no supported devices found for platform CUDA"):
        assert "driver's library" not in _first(f"RuntimeError: Unable to initialize backend 'cuda': {text}").title
    assert "driver's library" in _first("RuntimeError: No CUDA GPUs are available").title


def test_a_log_that_says_that_no_gpu_is_there_is_not_healthy() -> None:
    for text in ("Num GPUs Available:  0", "GPU available: False, used: False", "[CpuDevice(id=0)]"):
        found = explain([text])
        assert (found.primary, found.findings[0].severity) == ("unknown", "warning")
        assert "gpuwatch doctor" in found.findings[0].action


def test_what_holds_nothing_known_is_unknown_and_no_error() -> None:
    for text in ("", "hello", "usage: train.py [-h]"):
        found = explain([text])
        assert (found.primary, [one.severity for one in found.findings]) == ("unknown", ["info"])


def test_xla_alone_sees_a_gpu() -> None:
    found = explain(["[_DeviceAttributes(/job:localhost/replica:0/task:0/device:XLA_GPU:0, XLA_GPU, 17179869184, 7)]"])
    assert found.primary == "cuda.libraries-missing"
    assert found.findings[0].certainty == "likely"

"""THE table of log texts that mean something by themselves: text to topic.

A topic that is a cause id is what the text means; other topics are evidence for rules. To teach the
parser a message: one row here. A row's text must contain one of :data:`HINTS`, which decide whether
a line is looked at (a test says so).
"""

from __future__ import annotations

HINTS = (
    "evice",
    "emory",
    "rror",
    "CUDA",
    "cuda",
    "CUDNN",
    "No OpKernel",
    "Exception",
    "Colocation",
)
"""Cheap substrings: a line without any of them, and without a C++ source position, is not looked at."""

TOPICS: tuple[tuple[str, str], ...] = (
    # Placement (tensorflow/python/eager, placer.cc, colocation_graph.cc)
    ("Could not satisfy device specification", "placement.device-missing"),
    ("Unable to find any devices for spec", "placement.device-missing"),
    (" unknown device", "placement.device-missing"),
    ("was explicitly assigned to /", "placement.device-missing"),
    ("no devices matching that specification", "placement.device-missing"),
    ("because no supported kernel for", "placement.no-kernel"),
    ("No OpKernel was registered to support Op", "placement.no-kernel"),
    ("Could not find device for node", "placement.no-kernel"),
    ("Failed to place the graph without changing the devices", "placement.no-kernel"),
    # Configuration (tensorflow/python/eager/context.py)
    ("devices cannot be modified after being initialized", "config.too-late"),
    ("must be set before GPUs have been initialized, devices", "config.too-late"),
    ("Memory growth cannot differ between GPU devices", "config.inconsistent"),
    ("Cannot set memory growth on device when virtual devices configured", "config.inconsistent"),
    ("Cannot set memory growth on non-GPU", "config.inconsistent"),
    ("Setting memory limit is required for GPU virtual devices", "config.inconsistent"),
    ("memory limit on CPU virtual devices is currently not supported", "config.inconsistent"),
    ("Setting both virtual devices and memory growth", "config.inconsistent"),
    ("Invalid visible device index", "visibility.bad-ordinal"),
    ("CUDA_ERROR_INVALID_DEVICE: invalid device ordinal", "visibility.bad-ordinal"),
    ("'visible_device_list' listed an invalid", "visibility.bad-ordinal"),
    # Driver and libraries (cuda_driver.cc, cuda_diagnostics.cc, dso_loader.cc, gpu_device.cc)
    ("kernel driver does not appear to be running", "driver.not-running"),
    ("no NVIDIA GPU device is present", "driver.no-device-node"),
    ("-- cannot find working devices in this configuration", "driver.mismatch"),
    ("does not match DSO version", "driver.mismatch"),
    ("driver/library version mismatch", "driver.mismatch"),
    ("Driver/library version mismatch", "driver.mismatch"),
    ("CUDA driver version is insufficient for CUDA runtime version", "driver.too-old"),
    ("Cannot dlopen some GPU libraries", "cuda.libraries-skipped"),
    ("Could not find cuda drivers on your machine", "cuda.cudart-missing"),
    ("source but was compiled with", "cuda.version-mismatch"),
    ("The minimum required Cuda capability is", "build.gpu-unsupported"),
    ("was not built with CUDA kernel binaries compatible", "build.gpu-jit"),
    ("CUDA_ERROR_INVALID_PTX", "build.gpu-unsupported"),
    ("CUDA_ERROR_NO_BINARY_FOR_GPU", "build.gpu-unsupported"),
    ("no kernel image is available for execution", "build.gpu-unsupported"),
    ("CUDA is not enabled", "build.cpu-only"),
    ("CUDA_ERROR_ILLEGAL_ADDRESS", "hardware.fault"),
    ("CUDA_ERROR_LAUNCH_FAILED", "hardware.fault"),
    ("CUDA_ERROR_ECC_UNCORRECTABLE", "hardware.fault"),
    # Memory by other names
    ("Could not create cudnn handle", "memory.masked"),
    ("could not create cudnn handle", "memory.masked"),
    ("failed to create cublas handle", "memory.masked"),
    ("DNN library is not found", "memory.masked"),
    ("DNN library initialization failed", "memory.masked"),
    ("The caller indicates that this is not a failure", "memory.not-a-failure"),
    ("Some requested devices in `tf.distribute.Strategy` are not visible", "distribution.devices-missing"),
    ("allow_growth setting because the TF_FORCE_GPU_ALLOW_GROWTH", "memory.growth-forced"),
    ("orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH", "memory.growth-forced"),
)


def topics_of(text: str) -> tuple[str, ...]:
    """The topics whose texts occur in ``text``, each once, in the order of the table."""
    found: list[str] = []
    for needle, topic in TOPICS:
        if needle in text and topic not in found:
            found.append(topic)
    return tuple(found)

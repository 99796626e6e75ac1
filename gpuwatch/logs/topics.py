"""THE table of log texts that mean something by themselves: text to topic.

A topic that is a cause id is what the text means; other topics are evidence for rules. To teach the
parser a message: one row here. A row's text should contain one of :func:`hinted`, which decides whether
a line is looked at; lines of C++ and of exceptions always are (a test says so).
"""

from __future__ import annotations

import re


def hinted(line: str) -> bool:
    """Whether a line without a C++ source position is looked at: cheap substrings; a loop over them takes longer."""
    if not line.isascii():
        line = line.encode("utf-8", "replace").decode("latin-1")  # one byte a character, which is searched faster
    return (
        "rror" in line
        or "evice" in line
        or "emory" in line
        or "uda" in line
        or "CUD" in line  # CUDA, CUDNN
        or "NV" in line  # NVIDIA, NVML
        or "core dumped" in line
        or "xception" in line
        or "Colocation" in line
        or "E. Process" in line
        or "registering GPU" in line
        or "NCCL" in line
        or "DNN" in line
        or "BLAS" in line
        or "(0) " in line  # the first of "2 root error(s)"
        or "undefined symbol" in line
        or "sm_" in line
        or "no longer supports" in line
        or ".so" in line
        or "bad_alloc" in line
        or "Killed" in line
        or "KeyboardInterrupt" in line
        or "Fail to find" in line
    )


_REMOVED = {
    "tensorflow": (
        "placeholder",
        "get_default_graph",
        "get_default_session",
        "global_variables_initializer",
        "reset_default_graph",
        "InteractiveSession",
        "train.AdamOptimizer",
        "contrib",
        "app",
        "flags",
        "log",
        "variable_scope",
    ),
    "tensorflow._api.v2.config": ("gpu", "GPUOptions"),
    "keras.backend": ("set_session", "get_session", "tensorflow_backend"),
    "tensorflow.keras.backend": ("set_session", "get_session"),
    "tensorflow.python.keras.backend": ("set_session", "get_session"),
}
"""What TensorFlow 1 and Keras 2 had, by module."""

TOPICS: tuple[tuple[str, str], ...] = (
    # Placement (tensorflow/python/eager, placer.cc, colocation_graph.cc)
    ("Could not satisfy device specification", "placement.device-missing"),
    ("Unable to find any devices for spec", "placement.device-missing"),
    (" unknown device.", "placement.device-missing"),
    ("was explicitly assigned to /", "placement.device-missing"),
    ("doesn't exist in the list of available devices", "placement.device-missing"),
    ("no devices matching that specification", "placement.device-missing"),
    ("because no supported kernel for", "placement.no-kernel"),
    ("No OpKernel was registered to support Op", "placement.no-kernel"),
    ("Could not find device for node", "placement.no-kernel"),
    ("node was colocated with a group of nodes that required incompatible device", "placement.no-kernel"),
    ("connects colocation groups with incompatible assigned devices", "placement.no-kernel"),
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
    ("CUDA_ERROR_INVALID_DEVICE", "visibility.bad-ordinal"),
    ("invalid device ordinal", "visibility.bad-ordinal"),
    ("Attempting to deserialize object on CUDA device", "visibility.bad-ordinal"),
    ("all CUDA-capable devices are busy or unavailable", "mode.exclusive"),
    ("is/are busy or unavailable", "mode.exclusive"),
    ("CUDA_ERROR_DEVICE_UNAVAILABLE", "mode.exclusive"),
    ("E. Process |", "mode.exclusive"),
    ("'visible_device_list' listed an invalid", "visibility.bad-ordinal"),
    ("AssertionError: Invalid device id", "visibility.bad-ordinal"),
    ("device < num_gpus INTERNAL ASSERT FAILED", "visibility.bad-ordinal"),
    ("nvidia-container-cli: device error", "visibility.bad-ordinal"),
    ("No CUDA GPUs are available", "visibility.none-available"),
    ("CUDA error: no CUDA-capable device is detected", "visibility.none-available"),
    ("No visible GPU devices", "visibility.none-available"),
    ("no supported devices found for platform CUDA", "visibility.none-available"),
    # Driver and libraries (cuda_driver.cc, cuda_diagnostics.cc, dso_loader.cc, gpu_device.cc)
    ("kernel driver does not appear to be running", "driver.not-running"),
    ("no NVIDIA GPU device is present", "driver.no-device-node"),
    ("-- cannot find working devices in this configuration", "driver.mismatch"),
    ("does not match DSO", "driver.mismatch"),
    ("driver/library version mismatch", "driver.mismatch"),
    ("Driver/library version mismatch", "driver.mismatch"),
    ("NVIDIA driver on your system is too old", "driver.too-old"),
    ("Found no NVIDIA driver on your system", "driver.not-running"),
    ("Failed to initialize NVML: Unknown Error", "container.lost-devices"),
    # nvidia-smi, the kernel's log, containers
    ("couldn't communicate with the NVIDIA driver", "driver.not-running"),
    ("NVIDIA Driver was not detected", "driver.not-running"),
    ("couldn't find libnvidia-ml.so", "driver.not-running"),
    ("NVMLError_LibraryNotFound: NVML", "driver.not-running"),
    ("NVMLError_DriverNotLoaded", "driver.not-running"),
    ("Unknown runtime specified nvidia", "driver.not-running"),
    ("unknown or invalid runtime name: nvidia", "driver.not-running"),
    ("nvml error: driver not loaded", "driver.not-running"),
    ("NVRM: No NVIDIA GPU found", "driver.not-running"),
    ("could not select device driver", "driver.not-running"),
    ("NVML: GPU access blocked", "driver.bad-state"),
    ("NVRM: RmInitAdapter failed", "driver.bad-state"),
    ("NVRM: API mismatch", "driver.mismatch"),
    ("container was built for NVIDIA Driver Release", "driver.too-old"),
    ("requirement error: unsatisfied condition: cuda", "driver.too-old"),
    ("NVRM: Xid", "hardware.fault"),
    ("Unable to determine the device handle for GPU", "hardware.fault"),
    # PyTorch's cudaGetDeviceCount, JAX
    ("Error 802: system not yet initialized", "driver.bad-state"),
    ("cudaGetDeviceCount() returned cudaErrorNotSupported", "driver.not-running"),
    ("Error 999: unknown error", "driver.bad-state"),
    # PyTorch before 1.8, which gives the number
    ("cuda runtime error (3)", "driver.bad-state"),
    ("cuda runtime error (30)", "driver.bad-state"),
    ("cuda runtime error (35)", "driver.too-old"),
    ("cuda runtime error (38)", "visibility.none-available"),
    ("cuda runtime error (39)", "hardware.fault"),
    ("cuda runtime error (77)", "hardware.fault"),
    ("cuda runtime error (100)", "visibility.none-available"),
    ("cuda runtime error (700)", "hardware.fault"),
    ("cuda runtime error (802)", "driver.bad-state"),
    ("cuda runtime error (803)", "driver.mismatch"),
    ("cuda runtime error (804)", "driver.mismatch"),
    ("cuda runtime error (999)", "driver.bad-state"),
    ("Error 803: system has unsupported display driver", "driver.mismatch"),
    ("Error 804: forward compatibility", "driver.mismatch"),
    ("CUDA driver initialization failed, you might not have", "driver.bad-state"),
    ("CUDA error: unknown error", "driver.bad-state"),
    ("failed to get device attribute", "driver.bad-state"),
    ("API call is not supported in the installed CUDA driver", "driver.too-old"),
    ("fatal   : Unsupported .version", "cuda.version-mismatch"),
    ("Error: DLL load failed: ", "cuda.libraries-missing"),
    ("Error: DLL load failed while importing _pywrap", "cuda.libraries-missing"),
    ("find a suitable version of ptxas", "cuda.libraries-missing"),
    ("CUDA error: the provided PTX was compiled with", "driver.too-old"),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "driver.too-old"),
    ("a CUDA-enabled jaxlib is not installed", "build.cpu-only"),
    ("cuDNN version incompatibility: PyTorch was compiled", "cuda.version-mismatch"),
    ("CUDA backend failed to initialize: Found c", "cuda.version-mismatch"),
    ("CUDA backend failed to initialize: Found CUDA version", "cuda.version-mismatch"),
    ("undefined symbol: cu", "cuda.version-mismatch"),
    ("undefined symbol: nvrtc", "cuda.version-mismatch"),
    ("in cudnn DSO; dlerror", "cuda.version-mismatch"),
    ("PyTorch no longer supports this GPU", "build.gpu-unsupported"),
    ("does not support target 'sm_", "build.gpu-unsupported"),
    ("Value 'sm_", "build.gpu-unsupported"),
    *((f"'sm_{arch}' is not a recognized processor", "build.gpu-unsupported") for arch in (100, 101, 103, 120, 121)),
    ("failed with 'CUDA_ERROR_INVALID_HANDLE'", "build.gpu-unsupported"),
    ("Status: device kernel image is invalid", "build.gpu-unsupported"),
    ("CUDA device but torch.cuda.is_available() is False", "build.cpu-only"),
    ("CUDA unknown error - this may be due to", "driver.bad-state"),
    # Creating a context, before 2.18 and since
    ("CtxRetain: CUDA_ERROR_UNKNOWN", "driver.bad-state"),
    ("CUDA error: : CUDA_ERROR_UNKNOWN", "driver.bad-state"),
    ("Torch not compiled with CUDA enabled", "build.cpu-only"),
    ("is not compatible with the current PyTorch installation", "build.gpu-unsupported"),
    ("Skipping registering GPU devices", "cuda.libraries-skipped"),
    ("Loaded cuDNN version", "device.used"),
    ("ynamic library libcublas", "device.used"),
    ("initialized for platform CUDA", "device.used"),
    ("successful NUMA node read from SysFS", "device.used"),  # said of each GPU that the driver counts
    ("DirectML: creating device on adapter", "device.used"),
    ("Metal device set to", "device.used"),
    ("This TensorFlow binary is optimized", "tensorflow.started"),
    ("this TensorFlow binary was not compiled to use", "tensorflow.started"),
    ("oneDNN custom operations are on", "tensorflow.started"),
    ("CUDA driver version is insufficient for CUDA runtime version", "driver.too-old"),
    ("Cannot dlopen some GPU", "cuda.libraries-skipped"),
    ("Could not find cuda drivers on your machine", "cuda.cudart-missing"),
    ("Can't find libdevice directory", "cuda.libdevice-unfound"),
    ("but source was compiled with", "cuda.version-mismatch"),
    ("The minimum required Cuda capability is", "build.gpu-unsupported"),
    ("was not built with CUDA kernel binaries compatible", "build.gpu-jit"),
    ("CUDA_ERROR_INVALID_PTX", "build.gpu-unsupported"),
    ("CUDA_ERROR_NO_BINARY_FOR_GPU", "build.gpu-unsupported"),
    ("no kernel image is available for execution", "build.gpu-unsupported"),
    ("CUDA is not enabled", "build.cpu-only"),
    ("CUDA_ERROR_ILLEGAL_ADDRESS", "hardware.fault"),
    ("CUDA_ERROR_LAUNCH_FAILED", "hardware.fault"),
    ("CUDA_ERROR_LAUNCH_TIMEOUT", "hardware.fault"),
    ("CUDA_ERROR_MISALIGNED_ADDRESS", "hardware.fault"),
    ("CUDA error: the launch timed out", "hardware.fault"),
    ("Error: GPU sync failed", "hardware.fault"),
    ("CUDA_ERROR_ECC_UNCORRECTABLE", "hardware.fault"),
    ("CUDA_ERROR_ILLEGAL_INSTRUCTION", "hardware.fault"),
    ("an illegal memory access was encountered", "hardware.fault"),
    ("CUDA error: an illegal instruction was encountered", "hardware.fault"),
    ("CUDA error: unspecified launch failure", "hardware.fault"),
    ("CUDA error: misaligned address", "hardware.fault"),
    ("uncorrectable ECC error encountered", "hardware.fault"),
    # Memory by other names
    ("Could not create cudnn handle", "memory.masked"),
    ("could not create cudnn handle", "memory.masked"),
    ("failed to create cublas handle", "memory.masked"),
    ("DNN library is not found", "memory.masked"),
    ("DNN library initialization failed", "memory.masked"),
    ("cuDNN failed to initialize", "memory.masked"),
    ("CUDNN_STATUS_NOT_INITIALIZED", "memory.masked"),
    ("CUDNN_STATUS_ALLOC_FAILED", "memory.masked"),
    ("CUBLAS_STATUS_NOT_INITIALIZED", "memory.masked"),
    ("CUBLAS_STATUS_ALLOC_FAILED", "memory.masked"),
    ("when calling `cublasCreate", "memory.masked"),
    ("GEMM launch failed", "memory.masked"),
    ("GEMMBatched launch failed", "memory.masked"),
    ("GEMMStridedBatched launch failed", "memory.masked"),
    ("GEMV launch failed", "memory.masked"),
    ("StreamExecutor without BLAS support", "memory.masked"),
    ("StreamExecutor without DNN support", "memory.masked"),
    ("Fail to find the dnn implementation", "memory.masked"),
    ("CUDNN_STATUS_EXECUTION_FAILED", "memory.library-failed"),
    ("CUDNN_STATUS_INTERNAL_ERROR", "memory.library-failed"),
    ("CUDNN_STATUS_MAPPING_ERROR", "memory.library-failed"),
    ("Failed to call ThenRnn", "memory.library-failed"),
    ("cuDNN launch failure", "memory.library-failed"),
    ("No algorithm worked!", "memory.masked"),
    ("Cuda failure 'out of memory'", "memory.masked"),
    ("Cuda failure 2 'out of memory'", "memory.masked"),
    ("Error: No available memory for the cache blocks", "memory.limit-too-small"),
    ("larger than the maximum number of tokens that can be stored in KV cache", "memory.limit-too-small"),
    ("larger than the available KV cache memory", "memory.limit-too-small"),
    ("is less than desired GPU memory utilization", "memory.other-process"),
    ("The caller indicates that this is not a failure", "memory.not-a-failure"),
    # Failures that have no cause id of their own
    ("operation timeout: WorkNCCL", "ended.nccl-timeout"),
    ("NCCL operations have failed or timed out", "ended.nccl-timeout"),
    ("Error invoking NCCL", "ended.nccl"),
    ("NCCL error in", "ended.nccl"),
    ("ncclInvalidUsage", "ended.nccl"),
    ("ncclSystemError", "ended.nccl"),
    ("ncclInternalError", "ended.nccl"),
    ("ncclUnhandledCudaError", "ended.nccl"),
    ("ncclRemoteError", "ended.nccl"),
    ("device-side assert triggered", "ended.assert"),
    ("Cannot re-initialize CUDA in forked subprocess", "ended.fork"),
    ("CUDA error: initialization error", "ended.fork"),
    ("CUDA_ERROR_NOT_INITIALIZED", "ended.fork"),
    ("oom-kill event", "ended.host-memory"),
    ("oom_kill event", "ended.host-memory"),
    ("Out of memory: Kill", "ended.host-memory"),
    (": Out Of Memory", "ended.host-memory"),
    ("Error: [Errno 12] Cannot allocate memory", "ended.host-memory"),
    ("an instance of 'std::bad_alloc'", "ended.host-memory"),
    ("insufficient shared memory (shm)", "ended.shared-memory"),
    ("Unexpected Event status: 1", "ended.fatal"),
    ("Unknown flag in XLA_FLAGS", "ended.xla-flags"),
    ("Unknown flags in XLA_FLAGS", "ended.xla-flags"),
    ("Unknown flag in TF_XLA_FLAGS", "ended.xla-flags"),
    ("Unknown flags in TF_XLA_FLAGS", "ended.xla-flags"),
    ("(core dumped)", "ended.crash"),
    ("are out of shared memory", "ended.shared-memory"),
    ("Error: DataLoader worker (pid", "ended.worker"),
    ("Some requested devices in `tf.distribute.Strategy` are not visible", "distribution.devices-missing"),
    ("we expect the following devices to be available", "distribution.devices-missing"),
    ("MisconfigurationException: You requested gpu", "distribution.devices-missing"),
    ("Error: ProcessGroupNCCL is only supported with GPUs", "distribution.devices-missing"),
    ("has no attribute 'Session'", "api.removed"),
    ("has no attribute 'ConfigProto'", "api.removed"),
    ("has no attribute 'GPUOptions'", "api.removed"),
    ("has no attribute 'multi_gpu_model'", "api.removed"),
    ("cannot import name 'multi_gpu_model'", "api.removed"),
    ("has no attribute 'per_process_gpu_memory_fraction'", "api.removed"),
    ("Error: No module named 'tensorflow.contrib", "api.removed"),
    ("Error: No module named 'keras.utils.training_utils'", "api.removed"),
    ('rror: Protocol message GPUOptions has no "per_process_memory_fraction"', "api.removed"),
    *(
        (f"Error: module '{module}' has no attribute '{name}'", "api.removed")
        for module, names in _REMOVED.items()
        for name in names
    ),
    ("TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed", "environment.growth-unread"),
    ("allow_growth setting because the TF_FORCE_GPU_ALLOW_GROWTH", "memory.growth-forced"),
    ("orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH", "memory.growth-forced"),
)


# Few lines contain any of these, so most rows are never compared.
_GATES = (
    "evice",
    "CUDA",
    "emory",
    "attribute",
    "NVIDIA",
    "kernel",
    "GPU",
    "DNN",
    "Cuda",
    "cudnn",
    "NV",
    "rror",
    "BLAS",
    "GEMM",
    "cu",
    "",
)


def _gated() -> tuple[tuple[str, tuple[tuple[int, str, str], ...]], ...]:
    rows: dict[str, list[tuple[int, str, str]]] = {gate: [] for gate in _GATES}
    for rank, (needle, topic) in enumerate(TOPICS):
        gate = next(gate for gate in _GATES if gate in needle)
        rows[gate].append((rank, needle, topic))
    return tuple((gate, tuple(entries)) for gate, entries in rows.items() if entries)


_GATED = _gated()


_SPECIFICATION = re.compile(r"device specification '(\S{1,200}?)'.{0,400}All available devices \[([^\]]*)")


NOISE = ("Failed to determine cuDNN version", "link the cuDNN plugin)")
"""What 2.21 says of a cuDNN that cannot be asked for its version, whatever follows; folds may part the two."""


def topics_of(text: str) -> tuple[str, ...]:
    """The topics whose texts occur in ``text``, each once, in the order of the table."""
    found: list[tuple[int, str]] = []
    for gate, rows in _GATED:
        if gate in text:
            found += [(rank, topic) for rank, needle, topic in rows if needle in text]
    if not found or NOISE[0] in text or NOISE[1] in text:
        return ()
    found.sort()
    topics = dict.fromkeys(topic for _, topic in found)
    if "placement.device-missing" in topics and _device_is_there(text):
        # Eager TensorFlow uses one sentence for a device that is missing and for a kernel that is.
        topics = {topic if topic != "placement.device-missing" else "placement.no-kernel": None for topic in topics}
    return tuple(topics)


def _device_is_there(text: str) -> bool:
    """Whether the device that could not be satisfied is in the list of available ones."""
    match = _SPECIFICATION.search(text)
    return match is not None and f"{match[1]}," in f"{match[2]},"

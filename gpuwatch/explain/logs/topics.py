"""The table of log texts: text to topic.

A topic that is a cause id is the text's meaning; other topics are evidence for rules. To recognise another message, add
a row. Its text must contain one of the substrings in :func:`hinted`, or be in a C++ line or an exception, which are
always parsed (a test checks this).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuwatch.explain.logs import cuda_errors, topics_machine, topics_programs
from gpuwatch.explain.logs.removed_api import may_be_removed, removed

Needle = str | tuple[str, ...]
"""A text, or several that must all be in the line."""


_ASCII = str.maketrans(
    "\u2018\u2019\u201a\u2032\u201c\u201d\u201e\u2033\u00ab\u00bb\u00a0\u2010\u2011\u2013\u2014", '\'\'\'\'"""""" ----'
)
"""Typographic quotes and dashes to plain ones."""


def plain(text: str) -> str:
    """The text with plain quotes and dashes."""
    return text if text.isascii() else text.translate(_ASCII)


def folded(text: str) -> str:
    """Lower case with plain quotes and dashes, as the tables' texts are compared."""
    return plain(text).lower()


def hinted(line: bytes) -> bool:
    """Whether a line without a C++ source position is parsed. Written without a loop, which would be slower.

    ``line`` is UTF-8, with or without its digits; it is searched as Latin-1, which is faster.
    """
    text = line.decode("latin-1").lower()
    return (
        "rror" in text
        or "evice" in text
        or "emory" in text
        or "cud" in text  # CUDA, cuDNN
        or "nvi" in text  # NVIDIA
        or "nvm" in text  # NVML
        or "nvrm" in text
        or "nvl" in text
        or "nvs" in text
        or "nvb" in text  # nvbandwidth
        or "multicast" in text  # the fabric manager
        or "nvcc" in text
        or "nvenc" in text
        or "pu:" in text
        or "gpu" in text
        or "fail" in text
        or "unable" in text
        or "support" in text
        or "core dumped" in text
        or "xception" in text
        or "colocation" in text
        or "e. process" in text
        or "nccl" in text
        or "dnn" in text
        or "blas" in text
        or "() " in text  # "(0) ", the first of "2 root error(s)"
        or "symbol" in text
        or "sm_" in text
        or ".so" in text
        or ".dll" in text
        or "library" in text
        or "bad_alloc" in text
        or "oom" in text
        or "retry" in text
        or "killed" in text
        or "terminat" in text
        or "fault" in text
        or "abort" in text
        or "illegal" in text
        or "corrupt" in text
        or " peer" in text
        or "(): " in text  # glibc: "free(): invalid pointer"
        or "***" in text
        or "panicked" in text
        or "crash" in text
        or "command" in text
        or "can't open" in text
        or "cancelled" in text
        or "exit" in text
        or "died" in text
        or "root cause" in text
        or "term_" in text
        or "bytes fail" in text
        or "interrupt" in text
        or "nouveau" in text
        or "kernel" in text
        or "jax" in text
        or "slowdown" in text
        or "module" in text
        or "adapters" in text
        or "platform" in text
        or "assertion" in text
        or "instance" in text
        or "+c" in text  # torch 2.7.1+cpu, +cu126
        or "docker" in text
        or "kube" in text
        or "singularity" in text
        or "nv files" in text
        or "--nproc" in text
        or "local_rank" in text
        or "_vram" in text
        or "root@" in text
        or "wsl" in text
        or "microsoft" in text
        or "outside the" in text
        or "% |" in text
        or "initializing torch" in text
        or "tfrt" in text
        or "err!" in text
        or "running on" in text
        or "ignoring inp" in text  # nohup
        or "w backend" in text  # "Using TensorFlow backend."
        or "$ " in text
        or (".py" in text and ("+ " in text or "running" in text or "executing" in text or "launching" in text))
        or "/var/f" in text  # a Mac's temporary folder
        or "homebrew" in text
        or "startup comp" in text
        or "gui go to" in text
        or "to quit" in text
        or "remapp" in text
        or "page blacklist" in text
        or "xla" in text
    )


_TENSORFLOW: tuple[tuple[Needle, str], ...] = (
    # Placement (tensorflow/python/eager, placer.cc, colocation_graph.cc)
    ("Could not satisfy device specification", "placement.device-missing"),
    ("Unable to find any devices for spec", "placement.device-missing"),
    (" unknown device.", "placement.device-missing"),
    ("was explicitly assigned to /", "placement.device-missing"),
    ("doesn't exist in the list of available devices", "placement.device-missing"),
    ("no devices matching that specification", "placement.device-missing"),
    ("because no supported kernel for", "placement.no-kernel"),
    ("No OpKernel was registered to support Op", "placement.no-kernel"),
    ("OpKernel for 'GPU' devices compatible with node", "placement.no-kernel"),
    ("OpKernel for GPU devices compatible with node", "placement.no-kernel"),
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
    ("rotocol message GPUOptions has no ", "config.inconsistent"),
    ("rotocol message ConfigProto has no ", "config.inconsistent"),
    ("Invalid visible device index", "visibility.bad-ordinal"),
    ("Attempting to deserialize object on CUDA device", "visibility.bad-ordinal"),
    ("E. Process |", "mode.exclusive"),
    ("'visible_device_list' listed an invalid", "visibility.bad-ordinal"),
    ("AssertionError: Invalid device id", "visibility.bad-ordinal"),
    ("device < num_gpus INTERNAL ASSERT FAILED", "visibility.bad-ordinal"),
    ("nvidia-container-cli: device error", "visibility.bad-ordinal"),
    ("No visible GPU devices", "visibility.none-available"),
    ("no supported devices found for platform CUDA", "visibility.none-available"),
    # Driver and libraries (cuda_driver.cc, cuda_diagnostics.cc, dso_loader.cc, gpu_device.cc)
    ("kernel driver does not appear to be running", "driver.not-running"),
    ("no NVIDIA GPU device is present", "driver.no-device-node"),
    ("-- cannot find working devices in this configuration", "driver.mismatch"),
    ("does not match DSO", "driver.mismatch"),
    ("driver/library version mismatch", "driver.mismatch"),
    ("Driver/library version mismatch", "driver.mismatch"),
    # nvidia-smi, the kernel's log, containers
    ("couldn't communicate with the NVIDIA driver", "driver.not-running"),
    ("NVIDIA Driver was not detected", "driver.not-running"),
    ("couldn't find libnvidia-ml.so", "driver.not-running"),
    ("NVMLError_DriverNotLoaded", "driver.not-running"),
    ("Unknown runtime specified nvidia", "driver.not-running"),
    ("unknown or invalid runtime name: nvidia", "driver.not-running"),
    ("nvml error: driver not loaded", "driver.not-running"),
    ("NVRM: No NVIDIA GPU found", "driver.not-running"),
    ("could not select device driver", "driver.not-running"),
    ("NVML: GPU access blocked", "driver.bad-state"),
    ("NVRM: API mismatch", "driver.mismatch"),
    ("container was built for NVIDIA Driver Release", "driver.too-old"),
    ("requirement error: unsatisfied condition: cuda", "driver.too-old"),
    # PyTorch's cudaGetDeviceCount, JAX
    ("cudaGetDeviceCount() returned cudaErrorNotSupported", "driver.not-running"),
    ("CUDA driver initialization failed, you might not have", "driver.bad-state"),
    ("failed to get device attribute", "driver.bad-state"),
    ("Unable to load NCCL library", "cuda.nccl-missing"),
    ("cuDNN version incompatibility: PyTorch was compiled", "cuda.version-mismatch"),
    ("CUDA backend failed to initialize: Found c", "cuda.version-mismatch"),
    ("in cudnn DSO; dlerror", "cuda.version-mismatch"),
    ("does not support target 'sm_", "build.gpu-unsupported"),
    ("Value 'sm_", "build.gpu-unsupported"),
    *((f"'sm_{arch}' is not a recognized processor", "build.gpu-unsupported") for arch in (100, 101, 103, 120, 121)),
    ("CUDA unknown error - this may be due to", "driver.bad-state"),
    # Creating a context, before 2.18 and since
    ("Skipping registering GPU devices", "cuda.libraries-skipped"),
    ("Loaded cuDNN version", "device.used"),
    ("ynamic library libcublas", "device.used"),
    ("initialized for platform CUDA", "device.used"),
    ("successful NUMA node read from SysFS", "device.used"),  # printed for each GPU that the driver lists
    ("DirectML: creating device on adapter", "device.used"),
    ("Metal device set to", "device.used"),
    ("This TensorFlow binary is optimized", "tensorflow.started"),
    ("this TensorFlow binary was not compiled to use", "tensorflow.started"),
    ("oneDNN custom operations are on", "tensorflow.started"),
    ("Cannot dlopen some GPU", "cuda.libraries-skipped"),
    ("Could not find cuda drivers on your machine", "cuda.cudart-missing"),
    ("Can't find libdevice directory", "cuda.libdevice-unfound"),
    ("The minimum required Cuda capability is", "build.gpu-unsupported"),
    ("was not built with CUDA kernel binaries compatible", "build.gpu-jit"),
    ("CUDA is not enabled", "build.cpu-only"),
    ("Error: GPU sync failed", "ended.kernel"),
    # Memory by other names
    # gpuwatch/sim/csrc: its own line, and PyTorch's message that contains it.
    ("the simulated driver lacks", "simulation.limit"),
    ("Could not create cudnn handle", "memory.masked"),
    ("could not create cudnn handle", "memory.masked"),
    ("failed to create cublas handle", "memory.masked"),
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
    ("No DNN in stream executor", "memory.masked"),
    ("Fail to find the dnn implementation", "memory.masked"),
    ("CUDNN_STATUS_EXECUTION_FAILED", "memory.library-failed"),
    ("CUDNN_STATUS_INTERNAL_ERROR", "memory.library-failed"),
    ("CUDNN_STATUS_MAPPING_ERROR", "memory.library-failed"),
    ("Failed to call ThenRnn", "memory.library-failed"),
    ("cuDNN launch failure", "memory.library-failed"),
    ("No algorithm worked!", "memory.masked"),
    ("Cuda failure 'out of memory'", "memory.masked"),
    ("Cuda failure 2 'out of memory'", "memory.masked"),
    ("larger than the maximum number of tokens that can be stored in KV cache", "memory.limit-too-small"),
    ("larger than the available KV cache memory", "memory.limit-too-small"),
    ("is less than desired GPU memory utilization", "memory.other-process"),
    ("The caller indicates that this is not a failure", "memory.not-a-failure"),
    # Failures that have no cause id of their own
    (("NET/IB", "ompletion", "with error"), "ended.network"),
    (("NCCL WARN", "Call to ibv_", "failed"), "ended.network"),
    (("NCCL WARN", "Call to connect", "failed"), "ended.network"),
    (("NCCL WARN", "onnect to", "No route to host"), "ended.network"),
    ("operation timeout: WorkNCCL", "ended.nccl-timeout"),
    ("NCCL operations have failed or timed out", "ended.nccl-timeout"),
    ("Error invoking NCCL", "ended.nccl"),
    ("Duplicate GPU detected", "ended.same-gpu"),
    (("NCCL error", " unhandled "), "ended.nccl"),
    (("NCCL error", " invalid "), "ended.nccl"),
    (("NCCL error", ": internal error"), "ended.nccl-internal"),
    ("NCCL error in", "ended.nccl-internal"),
    ("ncclInvalidUsage", "ended.nccl"),
    ("ncclSystemError", "ended.nccl"),
    ("ncclInternalError", "ended.nccl-internal"),
    ("ncclUnhandledCudaError", "ended.nccl"),
    ("ncclRemoteError", "ended.peer"),
    (("NCCL error", "remote process exited"), "ended.peer"),
    ("Connection closed by remote peer", "ended.peer"),
    (("Call to recv from", " failed : "), "ended.peer"),
    (("Call to send to", " failed : "), "ended.peer"),
    (("gloo/transport", "Connection closed by peer"), "ended.peer"),
    (("gloo/transport", "Connection reset by peer"), "ended.peer"),
    (("gloo/transport", "Broken pipe"), "ended.peer"),
    (("gloo/transport", "Timed out waiting"), "ended.nccl-timeout"),
    (("retrieving ncclUniqueId from", "but store->get"), "ended.peer"),
    (("Connection was likely closed", "remote server shutdown"), "ended.peer"),
    (("Horovod has been shut down", "one of the ranks"), "ended.peer"),
    (("Collective ops is aborted by", "failed to connect"), "ended.peer"),
    ("DistNetworkError: failed to recv, got 0 bytes", "ended.peer"),
    ("Cannot re-initialize CUDA in forked subprocess", "ended.fork"),
    ("oom-kill event", "ended.host-memory"),
    ("oom_kill event", "ended.host-memory"),
    ("oom-kill:constraint=", "ended.host-memory"),
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
    ("TF_FORCE_GPU_ALLOW_GROWTH environment variable is set but could not be parsed", "environment.growth-unread"),
    ("allow_growth setting because the TF_FORCE_GPU_ALLOW_GROWTH", "memory.growth-forced"),
    ("orig_value setting because the TF_FORCE_GPU_ALLOW_GROWTH", "memory.growth-forced"),
)


_INFERRED: tuple[tuple[Needle, str], ...] = (
    ("Error: DLL load failed: ", "cuda.libraries-missing"),
    ("Error: DLL load failed while importing _pywrap", "cuda.libraries-missing"),
    ("failed with 'CUDA_ERROR_INVALID_HANDLE'", "build.gpu-unsupported"),
)

_SLURM_OOM = ": Out Of Memory"
_GPU_WORD = re.compile(r"cuda|gpu|\bhip\b")
_CASED: tuple[tuple[str, str], ...] = (
    (_SLURM_OOM, "ended.host-memory"),
    ("Out of memory: Kill", "ended.host-memory"),
    ("cgroup out of memory: Kill", "ended.host-memory"),
)
"""Case-sensitive texts."""

INFERRED: tuple[tuple[Needle, str], ...] = (
    *_INFERRED,
    *topics_machine.INFERRED,
    *topics_programs.INFERRED,
    *topics_machine.ENVIRONMENTS,
)
"""Rows whose text suggests a cause, while similar causes remain possible."""
OUTRIGHT: tuple[tuple[Needle, str], ...] = (*_TENSORFLOW, *topics_machine.OUTRIGHT, *topics_programs.OUTRIGHT)
"""Rows whose text names its cause explicitly."""
TOPICS: tuple[tuple[Needle, str], ...] = (*_CASED, *OUTRIGHT, *INFERRED)

# Rows are only compared if the line contains their gate: few lines contain many gates.
_GATES = (
    "nvrm", "nvml", "nvidia", "amdgpu", "jax", "torch", "tensorflow", "attribute", "could not", "initializ", "availab",
    "librar", "launch", "driver", "version", "capab", "compil", "memory", "undefined", "allocat", "unable to", "cannot",
    "cudnn", "cublas", "nccl", "failed to", "_status_", "xla", "found", "kernel", "memory", "instance", "support",
    "slowdown", "device", "gpu", "cuda", "rror", "fail", "not ", "is ", "cu", "",
)  # fmt: skip

_Row = tuple[int, tuple[str, ...], str]


def _parts(needle: Needle) -> tuple[str, ...]:
    return tuple(part.lower() for part in ((needle,) if isinstance(needle, str) else needle))


def _gated(rows: Iterable[tuple[Needle, str]]) -> tuple[tuple[str, tuple[_Row, ...]], ...]:
    gated: dict[str, list[_Row]] = {gate: [] for gate in _GATES}
    for rank, (needle, topic) in enumerate(rows):
        parts = _parts(needle)
        gate = next(gate for gate in _GATES if any(gate in part for part in parts))
        gated[gate].append((rank, parts, topic))
    return tuple((gate, tuple(entries)) for gate, entries in gated.items() if entries)


_GATED = _gated((*OUTRIGHT, *INFERRED))
_GATED_OUTRIGHT = _gated(OUTRIGHT)
_OUTRIGHT_CODES = ("no_binary_for_gpu", "no kernel image is available", "cuda driver version is insufficient")
"""CUDA's errors that have only one meaning."""


_SPECIFICATION = re.compile(r"device specification '(\S{1,200}?)'.{0,400}All available devices \[([^\]]*)")


NOISE = ("Failed to determine cuDNN version", "link the cuDNN plugin)")
"""TensorFlow 2.21 prints this for a cuDNN without a version query; a wrapped line has only one of the two."""


def topics_of(text: str) -> tuple[str, ...]:
    """The topics whose texts occur in ``text``, in the order of the tables, then those of CUDA's errors."""
    lower = folded(text)
    found = _rows_in(lower, _GATED)
    if "cud" in lower or "an illegal" in lower or "kernel" in lower or "error" in lower or "driver" in lower:
        found += _of_cuda(lower, found)
    found += [topic for needle, topic in _CASED if needle in text and not _of_a_gpu(needle, lower)]
    if may_be_removed(lower) and removed(text) is not None:
        found.append("api.removed")
    if not found or NOISE[0] in text or NOISE[1] in text:
        return ()
    topics = dict.fromkeys(found)
    if "placement.device-missing" in topics and _device_is_there(text):
        # Eager TensorFlow prints the same sentence for a missing device and a missing kernel.
        topics = {topic if topic != "placement.device-missing" else "placement.no-kernel": None for topic in topics}
    if "build.cpu-only" in topics and "available platform names" in text.lower() and "TPU" in text:
        return ("device.used",)  # JAX on a TPU needs no build for GPUs
    return tuple(topics)


def outright(text: str, topic: str) -> bool:
    """Whether ``text`` names ``topic`` explicitly."""
    lower = folded(text)
    if topic in _rows_in(lower, _GATED_OUTRIGHT) or (topic == "api.removed" and removed(text) is not None):
        return True
    return topic in cuda_errors.topics(lower) and any(code in lower for code in _OUTRIGHT_CODES)


def _of_a_gpu(needle: str, lower: str) -> bool:
    """Whether "Out Of Memory" is said of a GPU: Slurm writes it so too, of a task on a host named gpu01."""
    return (
        needle == _SLURM_OOM
        and _GPU_WORD.search(lower) is not None
        and not any(word in lower for word in ("srun", "slurm", "task"))
    )


def _rows_in(lower: str, gated: tuple[tuple[str, tuple[_Row, ...]], ...]) -> list[str]:
    found: list[tuple[int, str]] = []
    for gate, rows in gated:
        if gate in lower:
            found += [
                (rank, topic)
                for rank, parts, topic in rows
                if parts[0] in lower and (len(parts) == 1 or all(part in lower for part in parts))
            ]
    found.sort()
    return [topic for _, topic in found]


def _of_cuda(lower: str, known: list[str]) -> list[str]:
    """Topics of the CUDA errors in the line; cuInit's errors and OOMs have their own parsers."""
    if "failed call to cuinit" in lower:
        return []
    return [topic for topic in cuda_errors.topics(lower) if topic != cuda_errors.OUT_OF_MEMORY and topic not in known]


def _device_is_there(text: str) -> bool:
    """Whether the requested device is in the list of available ones."""
    match = _SPECIFICATION.search(text)
    return match is not None and f"{match[1]}," in f"{match[2]},"

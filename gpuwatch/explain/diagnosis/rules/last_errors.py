"""What the operating system, a compiler or a cluster's description refused: texts of the error that ended a program.

They say something only of the last error: a program can handle a full disk, and torch.compile goes on without a
compiler if told to.
"""

from __future__ import annotations

from gpuwatch.explain.logs.reported_ends import NO_COMPILER, NO_CUDA_COMPILER, NOT_COMPILED

Words = tuple[str, str]
"""Title and action."""

SHARED_MEMORY = (
    "Workers of the DataLoader ran out of shared memory",
    "Start the container with --ipc=host or a larger --shm-size, or use fewer workers.",
)
HOST_MEMORY = (
    "The host's memory (RAM) was used up, not the GPU's",
    "Keep less data in memory (read it in batches), use fewer workers, or give the job more memory (--mem, limits"
    " of a container).",
)
_DISK_FULL = (
    'The disk is full: the "device" without space is a disk, not the GPU',
    "Look at df -h and df -i for the folder in that line (checkpoints, caches, /tmp); make room or write elsewhere.",
)
_QUOTA = (
    "The disk quota is used up",
    "Look at quota -s for the folder in that line; move caches (HF_HOME, TORCH_HOME, KERAS_HOME) elsewhere.",
)
_OPEN_FILES = (
    "The process has too many files open",
    "Raise the limit (ulimit -n), or use fewer workers; PyTorch:"
    " torch.multiprocessing.set_sharing_strategy('file_system').",
)
_COMPILER = (
    "A C or C++ compiler is missing, which torch.compile, Triton and extensions need; the GPU is not the problem",
    "Install one (Debian and Ubuntu: apt install build-essential; conda: conda install -c conda-forge gxx; Windows:"
    " Visual Studio's Build Tools for C++), or set CC and CXX to one that is not in PATH.",
)
_CUDA_COMPILER = (
    "nvcc, CUDA's compiler, is missing, which extensions need to be built; the GPU is not the problem",
    "Install the CUDA toolkit of the framework's CUDA version (conda install -c nvidia cuda-toolkit) and set CUDA_HOME"
    " to it, or install a prebuilt wheel of the package.",
)
_NINJA = (
    "ninja is missing, which PyTorch needs to compile extensions; the GPU is not the problem",
    "Install it: pip install ninja.",
)
_COMPILE = (
    "The compiler failed; its own message stands before this error",
    "Read the compiler's first line with 'error': a missing Python.h needs python3-dev, and 'cannot find -lcuda' needs"
    " the folder of libcuda.so in LIBRARY_PATH (it belongs to the driver).",
)
_TF_CONFIG = (
    "Set TF_CONFIG in every process before TensorFlow is imported: the cluster (worker, ps, chief: lists of host:port)"
    " and its own task (type, index). On one machine MirroredStrategy needs none."
)
_NO_CLUSTER = ("The strategy has no cluster, or one without parameter servers or workers", _TF_CONFIG)
_NO_TASK = ("The task of this process is not in the strategy's cluster", _TF_CONFIG)
_COORDINATOR = (
    "A dataset of ParameterServerStrategy was iterated by the coordinator itself, as fit() of Keras 3 does: only its"
    " workers can",
    "Use ClusterCoordinator.create_per_worker_dataset and schedule in a loop of your own, or Keras 2 (pip install"
    " tf_keras, TF_USE_LEGACY_KERAS=1). On one machine MirroredStrategy does the same work.",
)
_THREADS = (
    "The system refused the program another thread or process",
    "Look at its limits: ulimit -u (processes and threads), ulimit -v (address space), and a container's pids limit"
    " (docker --pids-limit, pids.max of its cgroup).",
)
_UNMAPPED = (
    "A library could not be mapped into the process's memory",
    "Look at ulimit -v (its address space), at free host memory, and at whether the environment's file system is"
    " mounted noexec.",
)
OF_ADDRESS_SPACE = (_THREADS, _UNMAPPED, HOST_MEMORY)
"""What a limit of the address space can be the reason of."""
ADDRESS_SPACE = (
    "The process's address space is limited (ulimit -v), and what it needed did not fit",
    "Raise the limit (ulimit -v, resource.setrlimit(RLIMIT_AS)): libraries of CUDA alone map some GiB.",
)
ENDS: dict[str, Words] = {NO_COMPILER: _COMPILER, NO_CUDA_COMPILER: _CUDA_COMPILER, NOT_COMPILED: _COMPILE}
"""The same, as pip and setuptools report them, by topic."""
_COMPILERS = ("gcc", "g++", "cc", "c++", "cl", "cl.exe", "clang", "clang++")

LAST_ERRORS: tuple[tuple[tuple[str, ...], Words], ...] = (
    (("unable to write to file </torch_",), SHARED_MEMORY),
    (("no space left on device: '/dev/shm",), SHARED_MEMORY),
    (("[errno 28]", "'/dev/shm"), SHARED_MEMORY),
    (("no space left on device",), _DISK_FULL),
    (("oserror: [errno 28]",), _DISK_FULL),
    (("disk quota exceeded",), _QUOTA),
    (("oserror: [errno 122]",), _QUOTA),
    (("too many open files",), _OPEN_FILES),
    (("oserror: [errno 24]",), _OPEN_FILES),
    (("oserror: [errno 12]",), HOST_MEMORY),
    (("std::bad_alloc",), HOST_MEMORY),
    (("memoryerror",), HOST_MEMORY),
    (("pthread_create", "fail"), _THREADS),
    (("can't start new thread",), _THREADS),
    (("resource temporarily unavailable", "thread"), _THREADS),
    (("[errno 11] resource temporarily unavailable",), _THREADS),
    (("failed to map segment from shared object",), _UNMAPPED),
    (("failed to find c compiler",), _COMPILER),
    (("no working c++ compiler found",), _COMPILER),
    (("invalidcxxcompiler",), _COMPILER),
    (("unable to find vcvarsall.bat",), _COMPILER),
    (("command '['where', 'cl']'",), _COMPILER),
    *((("filenotfounderror: [errno 2]", f": '{name}'"), _COMPILER) for name in _COMPILERS),
    *((("filenotfounderror: [errno 2]", f"/{name}'"), _COMPILER) for name in _COMPILERS),
    (("filenotfounderror: [errno 2]", "nvcc'"), _CUDA_COMPILER),
    (("ninja is required to load c++ extensions",), _NINJA),
    (("error compiling objects for extension",), _COMPILE),
    (("error building extension",), _COMPILE),
    (("valueerror: cluster spec must be non-empty in",), _NO_CLUSTER),
    (("valueerror: there must be at least one ps",), _NO_CLUSTER),
    (("valueerror: there must be at least one worker",), _NO_CLUSTER),
    (("valueerror: disallowed task type found in cluster spec",), _NO_TASK),
    (("valueerror: unrecognized task_type",), _NO_TASK),
    (("valueerror: `task_type`", "not found in cluster_spec"), _NO_TASK),
    (("valueerror: the `task_id`", "exceeds the maximum id"), _NO_TASK),
    (("clustercoordinator.create_per_worker_dataset",), _COORDINATOR),
    (("cppcompileerror",), _COMPILE),
    (("c++ compile error",), _COMPILE),
)
"""Texts in lower case, which must all be in the error, to title and action. Errors of the operating system have their
number in every language."""


def refused(error: str) -> Words | None:
    """Title and action for the last error, as ``type: message``."""
    lower = error.lower()
    return next((words for texts, words in LAST_ERRORS if all(text in lower for text in texts)), None)


def not_compiled() -> Words:
    """Title and action for a command of a compiler that failed."""
    return _COMPILE

"""The simulated libraries: their tiers, names, sources and aliases. :mod:`gpuwatch.sim.library_cache` compiles them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gpuwatch.core.parsing import parse_integer

Tier = Literal["driver", "plugin"]
"""How frameworks reach the simulated GPUs: through NVIDIA's libraries, or a plug-in for TensorFlow that computes."""

CONTROL_LIBRARY: Final = "libgpuwatchsim.so"
PLUGIN_LIBRARY: Final = "libgpuwatchplugin.so"
RENAME_LIBRARY: Final = "libgpuwatchrename.so"
PROC_LIBRARY: Final = "libgpuwatchproc.so"
"""Preloaded on the driver tier: provides /proc/driver/nvidia/version, and the simulated CUDA runtime to PyTorch."""
NVML_LIBRARY: Final = "libnvidia-ml.so.1"
DRIVER_LIBRARY: Final = "libcuda.so.1"
DRIVER_FILE: Final = "libcuda.so.580.00"
"""The file it links to: TensorFlow compares the version in its name with the kernel module's (versions.h)."""
TENSORFLOW_LIBRARY: Final = "libtensorflow_framework.so.2"

RUNTIMES: Final = (12, 13)
"""Major versions of CUDA whose runtime is simulated for PyTorch."""


@dataclass(frozen=True, slots=True)
class Library:
    """One shared library: its file name (and soname), its sources, and what it is linked against."""

    name: str
    sources: tuple[str, ...]
    needs: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()
    versioned: bool = False
    """Its symbols are versioned with its soname, as NVIDIA's are and programs linked against those expect."""
    exports: tuple[str, ...] = ()
    """Its only symbols for others; empty: all that are not hidden. A C++ runtime that is linked in would be seen."""


DRIVER_LIBRARIES: Final = (
    Library(CONTROL_LIBRARY, ("state.c", "state_script.c", "visible.c")),
    Library(
        NVML_LIBRARY,
        ("nvml.c", "nvml_accounting.c", "nvml_events.c", "nvml_gpm.c", "nvml_links.c", "nvml_mig.c"),
        (CONTROL_LIBRARY,),
    ),
    Library(DRIVER_LIBRARY, ("cuda.c", "cuda_memory.c"), (CONTROL_LIBRARY,)),
    *(
        Library(
            f"{name}.so.{major}",
            sources,
            (DRIVER_LIBRARY, CONTROL_LIBRARY),
            macros=(f"-DCUDART_MAJOR={major}",),
            versioned=True,
        )
        for name, sources in (
            ("libcudart", ("cudart.c", "cudart_kernel.c", "cudart_memory.c")),
            ("libcublas", ("cublas.c", "gemm.c")),
        )
        for major in RUNTIMES
    ),
    Library("libcublasLt.so.12", ("cublaslt.c",)),
    Library("libcudnn.so.9", ("cudnn.c",)),
    Library("libgpuwatchsim-empty.so", ("empty.c",)),
    Library(PROC_LIBRARY, ("procfs.c", "load_cudart.c")),
)
PLUGIN_LIBRARIES: Final = (
    Library(
        PLUGIN_LIBRARY,
        (
            "plugin_device.cc",
            "plugin_host.c",
            "plugin_kernel.cc",
            "plugin_move.cc",
            "plugin_network.cc",
            "gemm.c",
        ),
        (TENSORFLOW_LIBRARY, CONTROL_LIBRARY),
        exports=("SE_InitPlugin", "TF_InitKernel", "gpuwatch_plugin_*"),
    ),
    Library(RENAME_LIBRARY, ("plugin_rename.c",)),
)
# Shared with the driver tier. Without libcuda: TensorFlow must not find two kinds of GPUs.
PLUGIN_SHARES: Final = (CONTROL_LIBRARY, NVML_LIBRARY, "libnvidia-ml.so")
# Other names that frameworks look for: old sonames, and libraries of which nothing is called (an empty one will do).
_EMPTY: Final = "libgpuwatchsim-empty.so"
ALIASES: Final = {
    "libnvidia-ml.so": NVML_LIBRARY,
    "libcuda.so": DRIVER_LIBRARY,
    # TensorFlow 2.15 and later (CUDA 12)
    "libcufft.so.11": _EMPTY,
    "libcusolver.so.11": _EMPTY,
    "libcusparse.so.12": _EMPTY,
    "libcudnn.so.8": "libcudnn.so.9",
    # TensorFlow 2.10 to 2.14 (CUDA 11)
    "libcudart.so.11.0": "libcudart.so.12",
    "libcublas.so.11": "libcublas.so.12",
    "libcublasLt.so.11": "libcublasLt.so.12",
    "libcufft.so.10": _EMPTY,
    "libcurand.so.10": _EMPTY,
    "libcusparse.so.11": _EMPTY,
}


def runtime_obstacle(cuda_version: str | None) -> str | None:
    """Why a PyTorch build for this version of CUDA cannot use simulated GPUs; None if it can."""
    major = (cuda_version or "").partition(".")[0]
    if (number := parse_integer(major)) is None or number in RUNTIMES:
        return None
    return f"the simulated driver lacks the runtime of CUDA {major}: it has CUDA {' and '.join(map(str, RUNTIMES))}"

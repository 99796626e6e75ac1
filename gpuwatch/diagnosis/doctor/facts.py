"""Everything that a check may look at. Frozen: a check is a pure function of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuwatch.diagnosis.rules.visibility import meant_by
from gpuwatch.diagnosis.visible_devices import read_visible
from gpuwatch.model.doctor import DriverAnswer, FrameworkLook, System
from gpuwatch.model.run import Run
from gpuwatch.model.snapshot import Device, Snapshot

if TYPE_CHECKING:
    from gpuwatch.logs.facts import LogFacts

PRODUCTS = {"tensorflow": "TensorFlow", "torch": "PyTorch"}

CUDA_ERRORS = {
    2: "out of memory",
    3: "not initialized",
    34: "stub library",
    46: "device unavailable",
    100: "no device",
    101: "invalid device",
    303: "shared object initialisation failed",
    802: "system not yet initialised",
    803: "the versions of library and kernel module differ",
    804: "forward compatibility is not supported on this card",
    805: "the connection to MPS failed",
    999: "unknown error",
}
"""CUresult to words (cuda.h)."""

_GPU_VARIABLE = re.compile(
    r"^(?:CUDA_|CUDNN_|NVIDIA_|NCCL_|XLA_|PYTORCH_|TORCH_|KERAS_|TF_(?!VAR_|TOKEN_|CLI_|LOG|INPUT|DATA_DIR|WORKSPACE)"
    r"|LD_LIBRARY_PATH$|LD_PRELOAD$|CONDA_PREFIX$|VIRTUAL_ENV$|SLURM_JOB_GPUS$|SLURM_JOB_ID$)"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was gathered. None means "not looked at, or not answered in time"; the parts say which."""

    system: System | None = None
    driver: DriverAnswer | None = None
    snapshot: Snapshot | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    look: FrameworkLook | None = None
    run: Run | None = None
    log: LogFacts | None = None
    simulated: bool = False
    asked: bool = False
    """Whether the user named the framework or the interpreter: that it is not there is then an error."""
    deadline: float = 3.0
    """Seconds that each look had that imported no framework."""

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The physical GPUs, as NVML lists them."""
        return self.snapshot.devices if self.snapshot is not None else ()

    @property
    def nvml_answers(self) -> bool:
        """Whether NVML told the driver's version."""
        return self.snapshot is not None and self.snapshot.driver is not None

    @property
    def usable(self) -> bool:
        """Whether the framework got at least one GPU."""
        return self.run is not None and any("GPU" in name for name in self.run.devices.logical)

    @property
    def visible(self) -> str | None:
        """CUDA_VISIBLE_DEVICES."""
        return self.environment.get("CUDA_VISIBLE_DEVICES")

    @property
    def hidden(self) -> bool:
        """Whether CUDA_VISIBLE_DEVICES leaves no GPU of this machine."""
        devices = self.gpus if self.nvml_answers else None
        return self.visible is not None and read_visible(self.visible, devices).hides_all

    @property
    def product(self) -> str:
        """The framework's name, with its version where it is known."""
        if self.run is not None and self.run.framework is not None:
            name, version = self.run.framework.name, self.run.framework.version
            return f"{PRODUCTS.get(name, name)} {version or ''}".strip()
        return PRODUCTS.get(self.look.name, self.look.name) if self.look is not None else "the framework"

    @property
    def has_driver_trace(self) -> bool:
        """Whether anything of NVIDIA's driver is on this machine."""
        system = self.system
        if self.nvml_answers or (self.driver is not None and self.driver.libcuda and self.driver.libcuda.path):
            return True
        return system is not None and (system.kernel_module is not None or bool(system.device_files))


def relevant(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that bear on GPUs, and those that are one of them misspelt; nothing else leaves the machine."""
    return {name: value for name, value in sorted(environment.items()) if _GPU_VARIABLE.match(name) or meant_by(name)}


def several(count: int, one: str, many: str = "") -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def cuda_version(number: int) -> str:
    """``12.8`` of 12080."""
    return f"{number // 1000}.{number % 1000 // 10}"


def took(seconds: float | None) -> str:
    """``1.5 s``; what is too short to matter is not measured out."""
    if seconds is None:
        return "a time that was not told"
    return f"{seconds:.1f} s" if seconds >= 0.1 else "less than 0.1 s"

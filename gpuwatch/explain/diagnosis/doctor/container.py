"""Checks of containers and WSL.

Sources: NVIDIA Container Toolkit ("Specialized configurations": NVIDIA_VISIBLE_DEVICES and
NVIDIA_DRIVER_CAPABILITIES), CUDA on WSL user guide.
"""

from __future__ import annotations

from gpuwatch.core.model.driver_advice import (
    DRIVER_CAPABILITIES_ACTION,
    INSTALL_DRIVER_IN_WINDOWS,
    PASS_GPUS_TO_CONTAINER,
)
from gpuwatch.explain.diagnosis.doctor.check import Answer, Facts, check, fail, ok, skip, warn
from gpuwatch.explain.diagnosis.doctor.driver import action_unless_no_card

_NO_GPU_VALUES = ("", "void", "none")


@check("container.kind", "Container")
def container_kind(facts: Facts) -> Answer | None:
    """Whether this is a container, which only has the GPUs that it was started with."""
    if facts.system is None:
        return skip("not checked in time")
    if facts.system.container is None:
        return ok("none")
    if facts.simulated or facts.nvml_answers or facts.system.device_files:
        return ok(facts.system.container)
    return warn(f"{facts.system.container}, without GPUs", action_unless_no_card(facts, PASS_GPUS_TO_CONTAINER))


def _variable(facts: Facts, name: str) -> str | None:
    """A variable that only containers read; None elsewhere."""
    return facts.environment.get(name) if facts.system is not None and facts.system.container is not None else None


@check("container.visible-devices", "NVIDIA_VISIBLE_DEVICES")
def nvidia_visible_devices(facts: Facts) -> Answer | None:
    """Only read by the container runtime at the start."""
    if (value := _variable(facts, "NVIDIA_VISIBLE_DEVICES")) is None:
        return None
    if value.strip().lower() in _NO_GPU_VALUES and not facts.nvml_answers:
        return fail(f"NVIDIA_VISIBLE_DEVICES={value}: the container was started without GPUs", PASS_GPUS_TO_CONTAINER)
    return ok(f"NVIDIA_VISIBLE_DEVICES={value}")


@check("container.capabilities", "NVIDIA_DRIVER_CAPABILITIES")
def capabilities(facts: Facts) -> Answer | None:
    """Which driver libraries the runtime puts into the container."""
    if (value := _variable(facts, "NVIDIA_DRIVER_CAPABILITIES")) is None:
        return None
    given = {part.strip() for part in value.split(",")}
    missing = [] if "all" in given else [part for part in ("compute", "utility") if part not in given]
    if not missing:
        return ok(f"NVIDIA_DRIVER_CAPABILITIES={value}")
    means = {"compute": "libcuda", "utility": "NVML, which TensorFlow 2.21 and later need"}
    lacking = " and ".join(f"{part} ({means[part]})" for part in missing)
    return fail(f"NVIDIA_DRIVER_CAPABILITIES={value} lacks {lacking}", DRIVER_CAPABILITIES_ACTION)


@check("container.wsl", "WSL")
def wsl(facts: Facts) -> Answer | None:
    """The driver belongs to Windows; its Linux library has a folder of its own."""
    if facts.system is None or not facts.system.wsl:
        return None
    if not facts.system.wsl_libraries:
        return fail("/usr/lib/wsl/lib/libcuda.so.1 does not exist", INSTALL_DRIVER_IN_WINDOWS)
    return ok("libraries of the Windows driver in /usr/lib/wsl/lib; NUMA lines in logs are harmless there")

"""A finding: one cause, with its evidence and one action."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]
Certainty = Literal["fact", "likely"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that was recognised.

    ``certainty`` is ``fact`` where a driver or framework said it, ``likely`` where it is inferred.
    """

    id: str
    """A cause id such as ``driver.missing`` (:data:`CAUSES`)."""
    severity: Severity
    certainty: Certainty
    title: str
    evidence: tuple[str, ...] = ()
    """Log lines and numbers, as they were seen."""
    action: str = ""
    """What to do, in one sentence."""
    device_uuid: str | None = None
    pid: int | None = None
    since: datetime.datetime | None = None
    """When it was first seen, where somebody watched; None for a finding from one look or a log."""
    until: datetime.datetime | None = None
    """When it was last seen, once it is past."""


# The order is the order of primary causes: what ended the work first, then why no GPU was usable,
# then warnings, then healthy.
CAUSES: dict[str, str] = {
    "memory.model-too-large": "The work needs more GPU memory than the device has left for it",
    "memory.request-too-large": "One request is larger than the allocator's whole limit",
    "memory.fragmented": "Enough memory is free, but in no block that is large enough",
    "memory.other-process": "Another process holds the memory",
    "memory.context-failed": "No room was left to create a CUDA context",
    "memory.masked": "A library failed to start for want of memory",
    "memory.limit-too-small": "The memory limit that was set is too small for the work",
    "placement.device-missing": "A device was asked for that the framework does not have",
    "placement.no-kernel": "The op has no kernel for the device or type that was asked for",
    "config.too-late": "A setting came after the framework had initialised its devices",
    "config.inconsistent": "Settings that exclude each other, or differ between GPUs",
    "api.removed": "Code written for an older version of the framework",
    "distribution.devices-missing": "A distribution strategy asked for devices that do not exist",
    "visibility.hidden": "CUDA_VISIBLE_DEVICES hides every GPU",
    "visibility.bad-ordinal": "CUDA_VISIBLE_DEVICES ends at an entry that is not valid",
    "visibility.renumbered": "GPU numbers differ from those of nvidia-smi",
    "visibility.misspelt": "An environment variable is misspelt and has no effect",
    "driver.missing": "No NVIDIA driver answers on this machine",
    "driver.mismatch": "The driver's library and kernel module are of different versions",
    "driver.too-old": "The driver is older than the framework's CUDA needs",
    "driver.bad-state": "The driver is there but does not start",
    "container.lost-devices": "The container has lost its GPU devices",
    "container.pid-namespace": "Processes belong to another PID namespace",
    "cuda.libraries-missing": "CUDA libraries that the framework needs cannot be loaded",
    "cuda.version-mismatch": "A CUDA library is of another version than the framework needs",
    "build.cpu-only": "The framework was built without GPU support",
    "build.gpu-unsupported": "The framework's build has no code for this GPU",
    "mode.exclusive": "The GPU is in an exclusive or prohibited compute mode",
    "mig.misuse": "MIG instances are addressed in a way that CUDA does not support",
    "hardware.fault": "The GPU reports a hardware fault",
    "throttle.thermal": "The GPU is throttled because it is hot",
    "throttle.power": "The GPU is throttled at its power limit",
    "pcie.degraded": "The PCIe link runs below what both ends can do",
    "idle.memory-held": "A process holds GPU memory and has been idle",
    "input.bound": "The GPU waits for its input",
    "simulation.limit": "Only the simulated GPU cannot do it, as far as is known",
    "healthy": "Nothing wrong was found",
    "unknown": "Something failed that gpuwatch does not recognise",
}

"""A finding: one cause, with its evidence and one action."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

Severity = Literal["error", "warning", "info"]
Certainty = Literal["fact", "likely"]

SEVERITY_ORDER: dict[str, int] = {"error": 0, "warning": 1, "info": 2}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A recognised cause.

    ``certainty`` is ``fact`` if a driver or framework reported it, ``likely`` if it is inferred.
    """

    id: str
    """A cause id such as ``driver.missing`` (:data:`CAUSES`)."""
    severity: Severity
    certainty: Certainty
    title: str
    evidence: tuple[str, ...] = ()
    """Log lines and numbers as observed."""
    action: str = ""
    """What to do, in one sentence."""
    device_uuid: str | None = None
    pid: int | None = None
    since: datetime.datetime | None = None
    """When it was first seen; None for a finding from a single sample or a log."""
    last: datetime.datetime | None = None
    """When it was last seen, if it is no longer, but for too short a time to be over."""
    until: datetime.datetime | None = None
    """When it was last seen, if it is over."""


# In the order of primary causes: what ended the work, then why no GPU was usable, then warnings, then healthy.
CAUSES: dict[str, str] = {
    "memory.model-too-large": "Out of memory: the program needs more GPU memory than is left",
    "memory.growing": "Out of memory: memory in use grew step by step, the program probably keeps tensors",
    "memory.request-too-large": "Out of memory: one request exceeds the allocator's whole limit",
    "memory.fragmented": "Out of memory: GPU memory is fragmented, no free block is large enough",
    "memory.other-process": "Another process holds the GPU memory",
    "memory.context-failed": "Out of memory: no room for a CUDA context",
    "memory.masked": "A CUDA library failed to initialize, probably out of memory",
    "memory.limit-too-small": "Out of memory: the memory limit that was set is too small",
    "placement.device-missing": "The requested device does not exist",
    "placement.no-kernel": "The op has no kernel for the requested device or type",
    "placement.together": "The op runs where its variable or table is, not where it was requested",
    "config.too-late": "A setting came too late: the devices were already initialized",
    "config.inconsistent": "Settings conflict, or differ between GPUs",
    "api.removed": "The code uses an API that this framework version removed",
    "distribution.devices-missing": "A distribution strategy uses devices that do not exist",
    "visibility.hidden": "CUDA_VISIBLE_DEVICES hides every GPU",
    "visibility.bad-ordinal": "CUDA_VISIBLE_DEVICES contains an invalid entry",
    "visibility.renumbered": "GPU numbers differ from nvidia-smi's",
    "visibility.misspelt": "An environment variable is misspelt and has no effect",
    "driver.missing": "No NVIDIA driver found",
    "driver.mismatch": "Driver/library version mismatch",
    "driver.too-old": "The driver is too old for the framework's CUDA version",
    "driver.bad-state": "The driver is installed but does not start",
    "container.lost-devices": "The container has lost access to its GPUs",
    "container.pid-namespace": "GPU processes are in another PID namespace (container)",
    "cuda.libraries-missing": "CUDA libraries cannot be loaded",
    "cuda.version-mismatch": "CUDA library version mismatch",
    "build.cpu-only": "CPU-only build: the framework has no GPU support",
    "build.gpu-unsupported": "The framework's build has no code for this GPU",
    "mode.exclusive": "The GPU is in exclusive or prohibited compute mode",
    "mig.misuse": "MIG instances are addressed in a way that CUDA does not support",
    "hardware.fault": "The GPU reports a hardware fault",
    "throttle.thermal": "Thermal throttling: the driver lowers the clocks because of heat",
    "throttle.power": "Power throttling: the power limit or power brake holds the clocks down",
    "pcie.degraded": "The PCIe link runs below its maximum speed or width",
    "idle.memory-held": "An idle process holds GPU memory",
    "input.bound": "The GPU is starved for input",
    "program.error": "The program's own error, not the GPU's",
    "program.stalled": "The program made no more steps while it ran",
    "function.retraced": "A tf.function is traced again and again",
    "function.eager": "TensorFlow runs the program's steps eagerly, op by op",
    "function.constant": "A large array is a constant of a tf.function's graph",
    "program.forked": "The program forked after TensorFlow had started its GPUs",
    "simulation.limit": "A limit of the simulated GPU, as far as known not of real ones",
    "healthy": "No problems found",
    "unknown": "An error that gpuwatch does not recognise",
}

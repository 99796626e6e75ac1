"""What simulated GPUs say on a program's stderr when they cannot do what it asked for (csrc has the same words)."""

from __future__ import annotations

from typing import Final

NOT_CARRIED: Final = "gpuwatch: this program's settings of GPU memory and devices are not honoured on simulated GPUs: "
"""Said by the plug-in tier (plugin_device.cc) in a program whose Python does not run the simulation's hook."""
NOT_COMPUTED: Final = (
    "gpuwatch: these simulated GPUs compute matrix products alone, and this program runs other kernels"
)
"""Said by the driver tier (cuda.c) when a program launches a kernel, which does nothing."""


def limit_of(line: str) -> str | None:
    """The sentence of a line that tells of a limit of the simulation; None for any other line."""
    if line.startswith((NOT_CARRIED, NOT_COMPUTED)):
        return line.removeprefix("gpuwatch: ").rstrip()
    return None


def computes(limits: tuple[str, ...]) -> bool:
    """Whether numbers of a program with these limits mean something."""
    return not any(limit.startswith(NOT_COMPUTED.removeprefix("gpuwatch: ")) for limit in limits)

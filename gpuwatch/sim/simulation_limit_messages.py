"""Lines that simulated GPUs print to a program's stderr if they cannot do what it asked for (the same as in csrc)."""

from __future__ import annotations

from typing import Final

SETTINGS_IGNORED: Final = "gpuwatch: GPU memory and device settings of this program are ignored on simulated GPUs: "
"""Printed by the plug-in tier (plugin_device.cc) in a program whose Python does not run the simulation's hook."""
KERNELS_NOT_COMPUTED: Final = (
    "gpuwatch: these simulated GPUs compute only matrix products, and this program runs other kernels"
)
"""Printed by the driver tier (cuda.c) when a program launches a kernel, which does nothing."""

NO_XLA: Final = "simulated GPUs have no XLA: "
"""Start of the note about an explicit ``jit_compile=True`` (_gpuwatch_simulated_gpus.py)."""


def simulation_limit(line: str) -> str | None:
    """The limit of the simulation that a line reports; None for any other line."""
    if line.startswith((SETTINGS_IGNORED, KERNELS_NOT_COMPUTED)):
        return line.removeprefix("gpuwatch: ").rstrip()
    return None


def results_are_meaningful(limits: tuple[str, ...]) -> bool:
    """Whether the results of a program with these limits mean anything."""
    return not any(limit.startswith(KERNELS_NOT_COMPUTED.removeprefix("gpuwatch: ")) for limit in limits)

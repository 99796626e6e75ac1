"""Which simulated GPUs a probe gets: the tier that can show what the probe is about.

The driver tier (stub libraries of the CUDA driver beneath a CUDA build) has TensorFlow's own GPU
code and lines, but computes nothing besides matrix products. The plug-in tier computes, with any
build, but is no CUDA device: TensorFlow ignores some settings there.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuwatch.probing.interpreter import Interpreter
from gpuwatch.probing.locate import ProbeScript

Tier = Literal["driver", "plugin"]

# TensorFlow's own CUDA lines are what these are about.
_DRIVER_GROUPS = ("memory", "visibility", "placement")
_COMPUTING = ("mlp", "conv", "lstm")


class Choice(msgspec.Struct, frozen=True):
    """The tier of one run, or why it cannot be run on simulated GPUs."""

    tier: Tier | None = None
    skipped: str = ""


def choose_tier(script: ProbeScript, interpreter: Interpreter, forced: Tier | None, workload: str | None) -> Choice:
    """The tier for ``script`` in ``interpreter``; ``forced`` is what the user insists on."""
    if script.framework != "tensorflow":
        return Choice()
    cuda = interpreter.gpu_build is not False
    tier: Tier
    if forced is not None:
        tier = forced
    elif script.tier == "driver":
        tier = "driver"
    elif script.tier == "plugin" or script.group not in _DRIVER_GROUPS or (workload or script.workload) in _COMPUTING:
        tier = "plugin"
    else:
        tier = "driver" if cuda else "plugin"
    if tier == "driver" and not cuda:
        return Choice(
            skipped=f"{interpreter.path} has a CPU build of TensorFlow: simulated GPUs are plug-in devices there, "
            "which do not have what this configuration sets"
        )
    return Choice(tier)

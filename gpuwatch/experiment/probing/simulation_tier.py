"""Chooses the tier of simulated GPUs for a probe or a program.

The driver tier (stub libraries of the CUDA driver under a CUDA build) runs TensorFlow's own GPU code and prints its
log lines, but computes only matrix products. The plug-in tier computes, with any build, but its devices are not CUDA
devices: they lack CUDA's allocators and driver errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from gpuwatch.experiment.probing.interpreter import Interpreter, find_framework, interpreter_of_command
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.sim.libraries import runtime_obstacle

Tier = Literal["driver", "plugin"]

# These are about what TensorFlow's CUDA code does and logs.
_DRIVER_GROUPS = ("memory", "visibility", "placement")
_RENAMED_SINCE = (2, 16)
"""CUDA builds of TensorFlow from this version on work with the plug-in tier: it renames their CUDA kernels, through a
symbol that came with 2.16 (sim/csrc/plugin_rename.c). In earlier builds they would collide with the plug-in's."""
_COMPUTING = ("mlp", "conv", "lstm")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:.*;[ \t]*)?(?:import|from)[ \t]+(?:\w+[ \t]*,[ \t]*)*(torch|tensorflow|keras)\b")
_MAX_COMMAND_WORDS = 8
"""Words of a command line that are searched for the script."""
_MAX_SCRIPT_CHARS = 1 << 20


class Choice(msgspec.Struct, frozen=True):
    """The tier of a run, or why it is skipped on simulated GPUs."""

    tier: Tier | None = None
    skipped: str = ""


def plugin_obstacle(command: Sequence[str]) -> str:
    """Why the plug-in tier cannot work for the user's own program; empty if it can."""
    python = interpreter_of_command(command)
    if python is None:
        return ""
    named = _frameworks_named(command)
    found = find_framework(python, "tensorflow") if "torch" not in named or "tensorflow" in named else None
    if found is None and "tensorflow" not in named:
        torch = find_framework(python, "torch")
        if torch is not None and not pytorch_obstacle(torch):
            return (
                "PyTorch's device map, properties, memory and copies work on simulated GPUs; other kernels, such as "
                "those in a training loop, are refused"
            )
    if found is None or not found.gpu_build or found.version is None:
        return ""
    numbers = tuple(int(part) for part in re.findall(r"\d+", found.version)[:2])
    if numbers >= _RENAMED_SINCE:
        return ""
    return f"TensorFlow {found.version} is too old for simulated GPUs that compute: its CUDA build needs 2.16 or later"


def _frameworks_named(command: Sequence[str]) -> set[str]:
    """The frameworks that a program's script (a word that is a file, or the text after -c) imports."""
    texts = []
    for before, word in zip(("", *command), command[:_MAX_COMMAND_WORDS], strict=False):
        if before == "-c":
            texts.append(word)
            break
        with suppress(OSError, ValueError), open(word, encoding="utf-8", errors="replace") as script:  # noqa: PTH123
            texts.append("" if "\0" in (text := script.read(_MAX_SCRIPT_CHARS)) else text)
    found = {name for text in texts for name in _IMPORT.findall(text)}
    return {"tensorflow" if name == "keras" else name for name in found}


def choose_tier(script: ProbeScript, interpreter: Interpreter, forced: Tier | None, workload: str | None) -> Choice:
    """The tier for ``script`` in ``interpreter``; ``forced``: the one that the user chose."""
    if script.framework != "tensorflow":
        return _pytorch(interpreter, forced)
    cuda = interpreter.gpu_build is not False
    tier: Tier
    computes = (workload or script.workload) in _COMPUTING
    own_lines = script.tier == "driver-first" or script.group in _DRIVER_GROUPS
    if forced is not None:
        tier = forced
    elif script.tier == "driver":
        tier = "driver"
    elif script.tier == "plugin" or computes or not own_lines:
        tier = "plugin"
    else:
        tier = "driver" if cuda else "plugin"
    if tier == "driver" and not cuda:
        return Choice(
            skipped=f"{interpreter.path} has a CPU build of TensorFlow, where simulated GPUs are plug-in devices: "
            "they do not support what this configuration sets"
        )
    return Choice(tier)


def pytorch_obstacle(interpreter: Interpreter) -> str | None:
    """Why an interpreter's PyTorch cannot use simulated GPUs; None if it can."""
    if interpreter.gpu_build is False:
        return f"{interpreter.path} has a CPU build of PyTorch"
    return runtime_obstacle(interpreter.cuda_version)


def _pytorch(interpreter: Interpreter, forced: Tier | None) -> Choice:
    """PyTorch has only the driver tier; a CPU build runs without a tier, and reports itself that it has no GPU."""
    if interpreter.gpu_build is False:
        return Choice()
    if forced == "plugin":
        return Choice(skipped="PyTorch has simulated GPUs only on the driver tier, but --sim-tier plugin was given")
    obstacle = pytorch_obstacle(interpreter)
    return Choice(skipped=obstacle) if obstacle else Choice("driver")

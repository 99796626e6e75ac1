"""Chooses the tier of simulated GPUs for a probe or a program.

The driver tier (stub libraries of the CUDA driver under a CUDA build) runs TensorFlow's own GPU code and prints its
log lines, but computes only matrix products. The plug-in tier computes, with any build, but its devices are not CUDA
devices: they lack CUDA's allocators and driver errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from gpuwatch.experiment.probing.interpreter import Interpreter, find_framework, interpreter_of_command
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.sim.libraries import Tier, runtime_obstacle

# These are about what TensorFlow's CUDA code does and logs.
_DRIVER_GROUPS = ("memory", "visibility", "placement")
_MIN_PLUGIN_VERSION = (2, 16)
"""CUDA builds of TensorFlow from this version on work with the plug-in tier: it renames their CUDA kernels, through a
symbol that came with 2.16 (sim/csrc/plugin_rename.c). In earlier builds they would collide with the plug-in's."""
_COMPUTING_WORKLOADS = ("mlp", "conv", "lstm")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:.*;[ \t]*)?(?:import|from)[ \t]+(?:\w+[ \t]*,[ \t]*)*(torch|tensorflow|keras)\b")
_MAX_COMMAND_WORDS = 8
"""Words of a command line that are searched for the script."""
_MAX_SCRIPT_CHARS = 1 << 20


class TierChoice(msgspec.Struct, frozen=True):
    """The tier of a run, or why it is skipped on simulated GPUs."""

    tier: Tier | None = None
    skipped: str = ""


def plugin_obstacle(command: Sequence[str]) -> str:
    """Why the plug-in tier cannot work for the user's own program; empty if it can."""
    python = interpreter_of_command(command)
    if python is None:
        return ""
    imported_frameworks = _imported_frameworks(command)
    tensorflow = (
        find_framework(python, "tensorflow")
        if "torch" not in imported_frameworks or "tensorflow" in imported_frameworks
        else None
    )
    if tensorflow is None and "tensorflow" not in imported_frameworks:
        pytorch = find_framework(python, "torch")
        if pytorch is not None and not pytorch_obstacle(pytorch):
            return (
                "PyTorch's device map, properties, memory and copies work on simulated GPUs; other kernels, such as "
                "those in a training loop, are refused"
            )
    if tensorflow is None or not tensorflow.gpu_build or tensorflow.version is None:
        return ""
    version = tuple(int(part) for part in re.findall(r"\d+", tensorflow.version)[:2])
    if version >= _MIN_PLUGIN_VERSION:
        return ""
    requirement = "its CUDA build needs 2.16 or later"
    return f"TensorFlow {tensorflow.version} is too old for simulated GPUs that compute: {requirement}"


def _imported_frameworks(command: Sequence[str]) -> set[str]:
    """The frameworks that a program's script (a word that is a file, or the text after -c) imports."""
    sources = []
    for previous_word, word in zip(("", *command), command[:_MAX_COMMAND_WORDS], strict=False):
        if previous_word == "-c":
            sources.append(word)
            break
        with suppress(OSError, ValueError), open(word, encoding="utf-8", errors="replace") as script:  # noqa: PTH123
            sources.append("" if "\0" in (text := script.read(_MAX_SCRIPT_CHARS)) else text)
    frameworks = {name for text in sources for name in _IMPORT.findall(text)}
    return {"tensorflow" if name == "keras" else name for name in frameworks}


def choose_tier(script: ProbeScript, interpreter: Interpreter, forced: Tier | None, workload: str | None) -> TierChoice:
    """The tier for ``script`` in ``interpreter``; ``forced``: the one that the user chose."""
    if script.framework != "tensorflow":
        return _choose_pytorch_tier(interpreter, forced)
    is_cuda_build = interpreter.gpu_build is not False
    tier: Tier
    workload_computes = (workload or script.workload) in _COMPUTING_WORKLOADS
    needs_cuda_log = script.tier == "driver-first" or script.group in _DRIVER_GROUPS
    if forced is not None:
        tier = forced
    elif script.tier == "driver":
        tier = "driver"
    elif script.tier == "plugin" or workload_computes or not needs_cuda_log:
        tier = "plugin"
    else:
        tier = "driver" if is_cuda_build else "plugin"
    if tier == "driver" and not is_cuda_build:
        return TierChoice(
            skipped=f"{interpreter.path} has a CPU build of TensorFlow, where simulated GPUs are plug-in devices: "
            "they do not support what this configuration sets"
        )
    return TierChoice(tier)


def pytorch_obstacle(interpreter: Interpreter) -> str | None:
    """Why an interpreter's PyTorch cannot use simulated GPUs; None if it can."""
    if interpreter.gpu_build is False:
        return f"{interpreter.path} has a CPU build of PyTorch"
    return runtime_obstacle(interpreter.cuda_version)


def _choose_pytorch_tier(interpreter: Interpreter, forced: Tier | None) -> TierChoice:
    """PyTorch has only the driver tier; a CPU build runs without a tier, and reports itself that it has no GPU."""
    if interpreter.gpu_build is False:
        return TierChoice()
    if forced == "plugin":
        return TierChoice(skipped="PyTorch has simulated GPUs only on the driver tier, but --sim-tier plugin was given")
    obstacle = pytorch_obstacle(interpreter)
    return TierChoice(skipped=obstacle) if obstacle else TierChoice("driver")

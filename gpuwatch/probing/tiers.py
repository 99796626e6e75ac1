"""Which simulated GPUs a probe gets: the tier that can show what the probe is about.

The driver tier (stub libraries of the CUDA driver beneath a CUDA build) has TensorFlow's own GPU
code and lines, but computes nothing besides matrix products. The plug-in tier computes, with any
build, but is no CUDA device: CUDA's own allocators and failures of its driver are not to be had there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from gpuwatch.probing.interpreter import Interpreter, framework_of, python_of
from gpuwatch.probing.locate import ProbeScript
from gpuwatch.sim.build import runtime_obstacle

Tier = Literal["driver", "plugin"]

# TensorFlow's own CUDA lines are what these are about.
_DRIVER_GROUPS = ("memory", "visibility", "placement")
_RENAMED_SINCE = (2, 16)
"""Builds of TensorFlow for CUDA that the plug-in tier can live with (:func:`gpuwatch.sim.build.plugin_obstacle`)."""
_COMPUTING = ("mlp", "conv", "lstm")
_IMPORT = re.compile(r"(?m)^[ \t]*(?:.*;[ \t]*)?(?:import|from)[ \t]+(?:\w+[ \t]*,[ \t]*)*(torch|tensorflow|keras)\b")
_WORDS = 8
"""Of a command line, in which the script is looked for behind the interpreter and its options."""
_MOST_TEXT = 1 << 20


class Choice(msgspec.Struct, frozen=True):
    """The tier of one run, or why it cannot be run on simulated GPUs."""

    tier: Tier | None = None
    skipped: str = ""


def plugin_obstacle(command: Sequence[str]) -> str:
    """Why GPUs that compute cannot work for the user's own program; empty where nothing speaks against it."""
    python = python_of(command)
    if python is None:
        return ""
    named = _frameworks_named(command)
    found = framework_of(python, "tensorflow") if "torch" not in named or "tensorflow" in named else None
    if found is None and "tensorflow" not in named:
        torch = framework_of(python, "torch")
        if torch is not None and not pytorch_obstacle(torch):
            return "PyTorch finds simulated GPUs as a driver alone"
    if found is None or not found.gpu_build or found.version is None:
        return ""
    numbers = tuple(int(part) for part in re.findall(r"\d+", found.version)[:2])
    if numbers >= _RENAMED_SINCE:
        return ""
    return f"the CUDA kernels of TensorFlow {found.version} cannot make way for others, as those of 2.16 and later can"


def _frameworks_named(command: Sequence[str]) -> set[str]:
    """The frameworks that a program imports by its own text: its script (a word that is a file), or that of -c."""
    texts = []
    for before, word in zip(("", *command), command[:_WORDS], strict=False):
        if before == "-c":
            texts.append(word)
            break
        with suppress(OSError, ValueError), open(word, encoding="utf-8", errors="replace") as script:  # noqa: PTH123
            texts.append("" if "\0" in (text := script.read(_MOST_TEXT)) else text)
    found = {name for text in texts for name in _IMPORT.findall(text)}
    return {"tensorflow" if name == "keras" else name for name in found}


def choose_tier(script: ProbeScript, interpreter: Interpreter, forced: Tier | None, workload: str | None) -> Choice:
    """The tier for ``script`` in ``interpreter``; ``forced`` is what the user insists on."""
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
            skipped=f"{interpreter.path} has a CPU build of TensorFlow: simulated GPUs are plug-in devices there, "
            "which do not have what this configuration sets"
        )
    return Choice(tier)


def pytorch_obstacle(interpreter: Interpreter) -> str | None:
    """Why an interpreter's PyTorch has no simulated GPUs, or None."""
    if interpreter.gpu_build is False:
        return f"{interpreter.path} has a CPU build of PyTorch"
    return runtime_obstacle(interpreter.cuda_version)


def _pytorch(interpreter: Interpreter, forced: Tier | None) -> Choice:
    """PyTorch has no plug-ins: a CUDA build meets a simulated driver, and a CPU build says itself that it is one."""
    if interpreter.gpu_build is False:
        return Choice()
    if forced == "plugin":
        return Choice(skipped="simulated GPUs reach PyTorch as a driver alone, and the plug-in tier was asked for")
    obstacle = pytorch_obstacle(interpreter)
    return Choice(skipped=obstacle) if obstacle else Choice("driver")

"""Command lines that show or repeat what is on the screen. Pure, no Textual."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.session.probe_runs import Parameters
from gpuwatch.ui.settings.preferences import Preferences

_VALUES = ("interval", "theme", "tab", "layout", "gpu_order", "sort", "filter")
_LISTS = ("columns", "gpu_fields", "graphs")
_FLAGS = ("ascii", "gpm", "notify", "own_collector", "read_only", "descending", "tree")
"""Preferences that have an option of the same name."""
_OF_LIVE = ("interval", "gpm", "notify", "own_collector", "read_only")
"""Those that mean nothing for a recording."""


def command_line(parts: Iterable[str]) -> str:
    """``gpuwatch`` with these arguments, quoted for a shell."""
    return shlex.join(["gpuwatch", *parts])


def simulated(environment: Mapping[str, str] = os.environ) -> list[str]:
    """``--sim`` with the machine of this process, if its GPUs are simulated."""
    from gpuwatch.sim.machines import as_option

    machine = as_option(environment)
    return ["--sim", machine] if machine else []


def dashboard_command(preferences: Preferences) -> list[str]:
    """The dashboard's options for every preference that is not at its default; thresholds have no option."""
    default, parts = Preferences(), []
    for name in (*_VALUES, *_LISTS, *_FLAGS):
        value: Any = getattr(preferences, name)
        if value == getattr(default, name) or value is None:
            continue
        option = name.replace("_", "-")
        if name in _FLAGS:
            parts.append(f"--{option}" if value else f"--no-{option}")
        elif name in _LISTS:
            parts += [f"--{option}", ",".join(value)]
        else:
            parts += [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]
    return parts


def replay_command(path: Path, moment: float, speed: float, preferences: Preferences) -> list[str]:
    """``replay`` of a file from a moment on, in seconds since the epoch, with the same view."""
    when = datetime.datetime.fromtimestamp(moment).isoformat(timespec="seconds")
    parts = ["replay", str(path), "-t", when]
    if speed != 1:
        parts += ["--speed", f"{speed:g}"]
    default = Preferences()
    live = {name: getattr(default, name) for name in _OF_LIVE}
    return parts + dashboard_command(replace(preferences, **live))


def probe_command(scripts: Mapping[str, ProbeScript], wanted: Collection[str], parameters: Parameters) -> list[str]:
    """``probe`` with these configurations, whole groups by their name, and the parameters."""
    parts = ["probe"]
    if wanted and set(scripts) == set(wanted):
        parts.append("--all")
    else:
        for group in dict.fromkeys(script.group for script in scripts.values()):
            members = [script.name for script in scripts.values() if script.group == group]
            chosen = [name for name in members if name in wanted]
            if chosen == members and len(members) > 1:
                parts += ["--group", group]
            else:
                parts += [part for name in chosen for part in ("--config", name)]
    parts += ["--seconds", f"{parameters.seconds:g}"]
    for option, value in (
        ("--workload", parameters.workload),
        ("--memory-limit", parameters.memory_limit),
        ("--fraction", parameters.fraction),
        ("--virtual", parameters.virtual),
        ("--visible", parameters.visible),
        ("--gpu", parameters.gpu),
        ("--python", parameters.python),
    ):
        if value not in (None, ""):
            parts += [option, f"{value:g}" if isinstance(value, float) else str(value)]
    return parts


def report_command(path: Path) -> list[str]:
    """``report`` of a saved run."""
    return ["report", str(path)]


def cause_command(cause: str) -> list[str]:
    """``cause`` with the page of a finding; without one, all causes."""
    return ["cause", cause] if cause else ["cause"]

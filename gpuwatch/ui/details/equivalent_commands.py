"""Command lines that show or repeat what is on the screen. Pure, no Textual."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.session.background_probes import ProbeParameters
from gpuwatch.ui.settings.preferences import Preferences

_OPTIONS = (
    *("interval", "theme", "tab", "layout", "gpu_order", "sort", "filter", "columns", "gpu_fields", "graphs"),
    *("ascii", "gpm", "notify", "own_collector", "read_only", "descending", "tree"),
)
"""Preferences that have an option of the same name."""
_LIVE_ONLY = ("interval", "gpm", "notify", "own_collector", "read_only")
"""Those that mean nothing for a recording."""


def sim_option(environment: Mapping[str, str] = os.environ) -> list[str]:
    """``--sim`` with the machine of this process, if its GPUs are simulated."""
    from gpuwatch.sim.find_machines import sim_option_of

    machine = sim_option_of(environment)
    return ["--sim", machine] if machine else []


def dashboard_command(preferences: Preferences) -> list[str]:
    """The dashboard's options for every preference that is not at its default; thresholds have no option."""
    default = Preferences()
    values = ((name, getattr(preferences, name)) for name in _OPTIONS)
    return [part for name, value in values if value != getattr(default, name) for part in _option(name, value)]


def _option(name: str, value: object) -> list[str]:
    """The option of a field with a value; nothing without one."""
    option = name.replace("_", "-")
    if value in (None, ""):
        return []
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    shown = ",".join(value) if isinstance(value, tuple) else f"{value:g}" if isinstance(value, float) else str(value)
    return [f"--{option}", shown]


def replay_command(path: Path, moment: float, speed: float, preferences: Preferences) -> list[str]:
    """``replay`` of a file from a moment on, in seconds since the epoch, with the same view."""
    when = datetime.datetime.fromtimestamp(moment).isoformat(timespec="seconds")
    parts = ["replay", str(path), "-t", when]
    if speed != 1:
        parts += ["--speed", f"{speed:g}"]
    default = Preferences()
    live = {name: getattr(default, name) for name in _LIVE_ONLY}
    return parts + dashboard_command(replace(preferences, **live))


def probe_command(
    scripts: Mapping[str, ProbeScript], wanted: Collection[str], parameters: ProbeParameters
) -> list[str]:
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
    for name in ("seconds", "workload", "memory_limit", "fraction", "virtual", "visible", "gpu", "python"):
        parts += _option(name, getattr(parameters, name))
    return parts

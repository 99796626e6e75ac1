"""Which programs use the GPUs of a trial: nothing starts there unless the user says so (``--share``)."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.core.formatting.units import memory
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.trials.trial_settings import Setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup

_MAX_COMMAND_CHARS = 60
_MAX_NAMED = 3


def why_in_use(setup: TrialSetup, setting: Setting) -> str:
    """Why a setting is not run on GPUs that others use; empty if nobody does."""
    used = occupants(setup, setting.variables)
    return f"{used} (--share runs there anyway)" if used else ""


def occupants(setup: TrialSetup, variables: Mapping[str, str]) -> str:
    """``GPU 0 is used by python serve.py (pid 12, alice, 12.1 GiB)``; empty if nobody is on the program's GPUs.

    ``variables``: what the program gets besides those of the setup. Graphics (a desktop) does not count.
    """
    machine = setup.machine
    if machine is None:
        return ""
    seen = setup.visible(variables)
    mine = {entry.uuid for entry in seen.map} if not seen.unsure else {device.uuid for device in machine.devices}
    tenants = group_by(
        (process for process in machine.processes if process.type != "G"), lambda process: process.device_uuid
    )
    return "; ".join(
        f"GPU {device.index} is used by {_processes_named(tenants[device.uuid])}"
        for device in machine.devices
        if device.uuid in mine and device.uuid in tenants
    )


def _processes_named(processes: list[Process]) -> str:
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0))
    shown = []
    for process in processes[:_MAX_NAMED]:
        amount = process.number("gpu_memory_bytes")
        facts = (f"pid {process.pid}", process.user, None if amount is None else memory(amount))
        command = shorten(process.command or process.name or "a process", _MAX_COMMAND_CHARS)
        shown.append(f"{command} ({', '.join(filter(None, facts))})")
    rest = len(processes) - _MAX_NAMED
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")

"""GPUs that other programs use: nothing starts there unless the user says so."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.core.formatting.text import shorten
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.model.snapshot import Process
from gpuwatch.experiment.trials.settings import Setting
from gpuwatch.experiment.trials.trial_setup import TrialSetup

_COMMAND = 60
_NAMED = 3


def of_others(setup: TrialSetup, setting: Setting) -> str:
    """Why a setting is not run on GPUs that others use; empty if nobody does."""
    taken = occupied(setup, setting.variables)
    return f"{taken} (--share runs there all the same)" if taken else ""


def occupied(setup: TrialSetup, variables: Mapping[str, str]) -> str:
    """``GPU 0 is used by python serve.py (pid 12, alice, 12.1 GiB)``; empty if nobody is on the program's GPUs.

    ``variables``: what the program gets besides those of the setup. Graphics (a desktop) does not count.
    """
    machine = setup.machine
    if machine is None:
        return ""
    seen = setup.visible(variables)
    mine = {entry.uuid for entry in seen.map} if not seen.unsure else {device.uuid for device in machine.devices}
    tenants: dict[int, list[Process]] = {}
    for process in machine.processes:
        if process.type != "G" and process.device_uuid in mine:
            device = machine.device(process.device_uuid)
            tenants.setdefault(-1 if device is None else device.index, []).append(process)
    return "; ".join(f"GPU {index} is used by {_named(of)}" for index, of in sorted(tenants.items()))


def _named(processes: list[Process]) -> str:
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0))
    shown = [
        f"{shorten(process.command or process.name or 'a process', _COMMAND)}"
        f" ({', '.join(filter(None, (f'pid {process.pid}', process.user, _held(process))))})"
        for process in processes[:_NAMED]
    ]
    rest = len(processes) - _NAMED
    return ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")


def _held(process: Process) -> str:
    amount = process.number("gpu_memory_bytes")
    return memory(amount) if amount is not None else ""

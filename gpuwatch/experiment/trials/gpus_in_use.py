"""Which programs use the GPUs of a trial: nothing starts there unless the user says so (``--share``)."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.core.formatting.sentences import and_more
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.trials.trial_settings import TrialSetting
from gpuwatch.experiment.trials.trial_setup import TrialSetup

_MAX_COMMAND_CHARS = 60
_MAX_NAMED = 3


def why_in_use(setup: TrialSetup, setting: TrialSetting) -> str:
    """Why a setting is not run on GPUs that others use; empty if nobody does."""
    used = describe_gpu_users(setup, setting.variables)
    return f"{used} (--share runs there anyway)" if used else ""


def describe_gpu_users(setup: TrialSetup, variables: Mapping[str, str]) -> str:
    """``GPU 0 is used by python serve.py (pid 12, alice, 12.1 GiB)``; empty if nobody is on the program's GPUs.

    ``variables``: what the program gets besides those of the setup. Graphics (a desktop) does not count.
    """
    machine = setup.machine
    if machine is None:
        return ""
    visible = setup.visible(variables)
    program_uuids = (
        {entry.uuid for entry in visible.map} if not visible.unsure else {device.uuid for device in machine.devices}
    )
    processes_by_gpu = group_by(
        (process for process in machine.processes if process.type != "G"), lambda process: process.device_uuid
    )
    return "; ".join(
        f"GPU {device.index} is used by {_describe_processes(processes_by_gpu[device.uuid])}"
        for device in machine.devices
        if device.uuid in program_uuids and device.uuid in processes_by_gpu
    )


def _describe_processes(processes: list[Process]) -> str:
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0))
    descriptions = []
    for process in processes[:_MAX_NAMED]:
        held_bytes = process.number("gpu_memory_bytes")
        facts = (f"pid {process.pid}", process.user, None if held_bytes is None else memory(held_bytes))
        command = shorten(process.command or process.name or "a process", _MAX_COMMAND_CHARS)
        descriptions.append(f"{command} ({', '.join(filter(None, facts))})")
    return ", ".join(descriptions) + and_more(len(processes) - _MAX_NAMED)

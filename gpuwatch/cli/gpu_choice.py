"""``--gpu``: GPUs chosen by index or UUID."""

from __future__ import annotations

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.snapshot import Snapshot


def check_gpus(gpu: str | None) -> None:
    """Rejects a malformed ``--gpu`` list, on any machine."""
    wanted = [entry.strip() for entry in gpu.split(",")] if gpu is not None else []
    if not all(wanted):
        raise UsageError(f"--gpu {gpu}: an entry is empty", hint="list GPUs by index or UUID, for example 0,1")
    twice = next((entry for entry in wanted if wanted.count(entry) > 1), None)
    if twice is not None:
        raise UsageError(f"--gpu {gpu}: GPU {twice} is listed twice", hint="list each GPU once")


def visible_gpus(gpu: str, machine: Snapshot | None) -> tuple[str, ...]:
    """UUIDs of the chosen GPUs, in their order; UsageError for one that is not here."""
    devices = () if machine is None else machine.devices
    chosen = []
    for wanted in gpu.split(","):
        wanted = wanted.strip()
        found = [d for d in devices if (str(d.index) == wanted if wanted.isdigit() else d.uuid.startswith(wanted))]
        if len(found) != 1 or not wanted:
            known = ", ".join(f"{d.index} {d.uuid}" for d in devices) or "none"
            raise UsageError(f"--gpu {wanted}: no such GPU", hint=f"GPUs here: {known}")
        if found[0].uuid in chosen:
            raise UsageError(f"--gpu {gpu}: GPU {found[0].index} is listed twice", hint="list each GPU once")
        chosen.append(found[0].uuid)
    return tuple(chosen)

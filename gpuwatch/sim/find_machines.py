"""The simulated machines of this user, and which of them are in use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.sim import library_cache
from gpuwatch.sim.environment import ENV_SHAPE, ENV_STATE
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from gpuwatch.sim.state_files import PRIVATE, SHARED, STATE_SUFFIX, in_use, state_folder, state_name

_STATE_FILE_NAME: Final = re.compile(rf"(?P<name>.+)-(?P<shape>[^-]+?)\.v\d+\.\d+{re.escape(STATE_SUFFIX)}")


@dataclass(frozen=True, slots=True)
class FoundMachine:
    """A machine, by its state file."""

    name: str | None
    """None: the machine shared by all users of its shape."""
    shape: SimShape
    in_use: bool
    foreign: bool = False
    """Made by another version of gpuwatch with a different state layout, so that it cannot be used from here."""

    def __str__(self) -> str:
        return f"{self.name} ({self.shape})" if self.name else str(self.shape)

    @property
    def private(self) -> bool:
        """Whether it belongs to one command, and is chosen only by name."""
        return self.name is not None and self.name.startswith(f"{PRIVATE}-")


def find_machines() -> tuple[FoundMachine, ...]:
    """All machines, those in use first; those of other versions of gpuwatch only if they are in use."""
    libraries, found = library_cache.ensure_built(), []
    for path in sorted(state_folder().glob(f"*{STATE_SUFFIX}")):
        parts = _STATE_FILE_NAME.fullmatch(path.name)
        if parts is None:
            continue
        try:
            shape = SimShape.parse(parts["shape"])
        except GpuwatchError:
            continue  # not our file
        used, foreign = in_use(path), path.name != state_name(shape, parts["name"], libraries)
        if used or not foreign:
            found.append(FoundMachine(None if parts["name"] == SHARED else parts["name"], shape, used, foreign))
    return tuple(sorted(found, key=lambda machine: not machine.in_use))


def sim_option_of(environment: Mapping[str, str]) -> str:
    """The machine that an environment names, as ``--sim`` takes it: ``2x24GiB@demo``; empty without one."""
    shape = environment.get(ENV_SHAPE, "")
    parts = _STATE_FILE_NAME.fullmatch(Path(environment.get(ENV_STATE, "")).name)
    named = parts is not None and parts["name"] != SHARED and not parts["name"].startswith(f"{PRIVATE}-")
    return f"{shape}@{parts['name']}" if shape and parts is not None and named else shape


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """The chosen machine, whether it is in use, and the alternatives."""

    machine: SimMachine
    in_use: bool
    others: str
    """Which machines are in use."""


def choose_machine(shape: SimShape | None, name: str | None) -> MachineChoice:
    """The machine with this shape or name, or the only one in use.

    With a shape it is created if it does not exist: what is done to it waits for its first user.

    Raises:
        UsageError: no such machine, none in use, or several that match.
    """
    found_machines = find_machines()
    in_use_text = _machines_in_use_text(found_machines)
    usable = tuple(machine for machine in found_machines if not machine.foreign)
    if shape is not None:
        used = any(machine.in_use for machine in usable if machine.name == name and machine.shape == shape)
        return MachineChoice(SimMachine.open(shape, name=name), used, in_use_text)
    if name is not None:
        matching = [machine for machine in usable if machine.name == name]
        if not matching:
            raise UsageError(f"no such simulated machine: {name!r}", hint=in_use_text)
    else:
        matching = [machine for machine in usable if machine.in_use and not machine.private]
        if not matching:
            foreign = f"; {in_use_text}" if found_machines and found_machines[0].in_use else ""
            raise UsageError(
                f"no simulated machine is in use{foreign}",
                hint="start one in another terminal: gpuwatch --sim 2x24GiB; or choose one with --sim",
            )
    if len(matching) > 1:
        raise UsageError(
            f"several simulated machines match: {', '.join(map(str, matching))}",
            hint="choose one with --sim NxSIZE or --name",
        )
    (only,) = matching
    return MachineChoice(SimMachine.open(only.shape, name=only.name), only.in_use, in_use_text)


def _machines_in_use_text(machines: tuple[FoundMachine, ...]) -> str:
    usable_names = [str(machine) for machine in machines if machine.in_use and not machine.foreign]
    foreign = [str(machine) for machine in machines if machine.in_use and machine.foreign]
    text = f"in use now: {', '.join(usable_names)}" if usable_names else "none is in use now"
    if foreign:
        text += f"; by another version of gpuwatch, and unusable from here: {', '.join(foreign)}"
    return text

"""The simulated machines of this user: which there are, and which of them somebody uses."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.sim.machine import SHARED, SimMachine, state_folder
from gpuwatch.sim.shape import SimShape

_SUFFIX = ".state"


@dataclass(frozen=True, slots=True)
class Found:
    """A machine, by its state file."""

    name: str | None
    """None: the one that all who ask for its shape share."""
    shape: SimShape
    in_use: bool

    def __str__(self) -> str:
        return f"{self.name} ({self.shape})" if self.name else str(self.shape)


def machines() -> tuple[Found, ...]:
    """All of them, those in use first."""
    found = []
    for path in sorted(state_folder().glob(f"*{_SUFFIX}")):
        name, _, shape = path.name.removesuffix(_SUFFIX).rpartition("-")
        try:
            parsed = SimShape.parse(shape)
        except GpuwatchError:
            continue  # not of ours
        found.append(Found(None if name == SHARED else name, parsed, _in_use(path)))
    return tuple(sorted(found, key=lambda machine: not machine.in_use))


def choose(shape: SimShape | None, name: str | None) -> tuple[SimMachine, bool]:
    """The machine that is meant, and whether somebody uses it.

    With a shape alone it is made when it is not there: what is done to it awaits its first user.

    Raises:
        UsageError: no such machine, none in use, or several and it is not said which.
    """
    there = machines()
    if shape is not None and name is None:
        used = any(machine.in_use for machine in there if machine.name is None and machine.shape == shape)
        return SimMachine.open(shape), used
    if name is not None:
        meant = [m for m in there if m.name == name and shape in (None, m.shape)]
        if not meant:
            of_shape = f" of {shape}" if shape else ""
            raise UsageError(f"there is no simulated machine {name!r}{of_shape}", hint=_those(there))
    else:
        meant = [machine for machine in there if machine.in_use]
        if not meant:
            raise UsageError(
                "nobody uses a simulated machine now",
                hint="start one in another terminal: gpuwatch --sim 2x24GiB; or name one with --sim",
            )
    if len(meant) > 1:
        raise UsageError(
            f"several simulated machines could be meant: {', '.join(map(str, meant))}",
            hint="choose one with --sim NxSIZE or --name",
        )
    (only,) = meant
    return SimMachine.open(only.shape, name=only.name), only.in_use


def _those(there: tuple[Found, ...]) -> str:
    used = [str(machine) for machine in there if machine.in_use]
    return f"in use now: {', '.join(used)}" if used else "none is in use now"


def _in_use(path: Path) -> bool:
    """Whoever has a machine open holds a shared lock on its file (state.c)."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False

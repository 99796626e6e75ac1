"""The simulated machines of this user: which there are, and which of them somebody uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.sim import build
from gpuwatch.sim.machine import SimMachine
from gpuwatch.sim.shape import SimShape
from gpuwatch.sim.state_files import PRIVATE, SHARED, STATE_SUFFIX, in_use, layout, state_folder

_NAME: Final = re.compile(
    rf"(?P<name>.+)-(?P<shape>[^-]+?)(?:\.v(?P<layout>\d+\.\d+))?{re.escape(STATE_SUFFIX)}"  # before layouts: none
)


@dataclass(frozen=True, slots=True)
class Found:
    """A machine, by its state file."""

    name: str | None
    """None: the one that all who ask for its shape share."""
    shape: SimShape
    in_use: bool
    foreign: bool = False
    """Of another version of gpuwatch, whose state has another layout: it cannot be reached from here."""

    def __str__(self) -> str:
        return f"{self.name} ({self.shape})" if self.name else str(self.shape)

    @property
    def private(self) -> bool:
        """Whether one command has it for itself: it is meant where it is named, alone."""
        return self.name is not None and self.name.startswith(f"{PRIVATE}-")


def machines() -> tuple[Found, ...]:
    """All of them, those in use first; of other versions of gpuwatch those alone that are in use."""
    ours, found = layout(build.ensure_built()), []
    for path in sorted(state_folder().glob(f"*{STATE_SUFFIX}")):
        parts = _NAME.fullmatch(path.name)
        if parts is None:
            continue
        try:
            shape = SimShape.parse(parts["shape"])
        except GpuwatchError:
            continue  # not of ours
        used, foreign = in_use(path), parts["layout"] != ours
        if used or not foreign:
            found.append(Found(None if parts["name"] == SHARED else parts["name"], shape, used, foreign))
    return tuple(sorted(found, key=lambda machine: not machine.in_use))


@dataclass(frozen=True, slots=True)
class Choice:
    """The machine that is meant."""

    machine: SimMachine
    in_use: bool
    others: str
    """Where nobody uses it: which machines are in use instead."""


def choose(shape: SimShape | None, name: str | None) -> Choice:
    """The machine that is meant, and whether somebody uses it.

    With a shape it is made when it is not there: what is done to it awaits its first user.

    Raises:
        UsageError: no such machine, none in use, or several and it is not said which.
    """
    every = machines()
    there = tuple(machine for machine in every if not machine.foreign)
    if shape is not None:
        used = any(machine.in_use for machine in there if machine.name == name and machine.shape == shape)
        return Choice(SimMachine.open(shape, name=name), used, _those(every))
    if name is not None:
        meant = [machine for machine in there if machine.name == name]
        if not meant:
            raise UsageError(f"there is no simulated machine {name!r}", hint=_those(every))
    else:
        meant = [machine for machine in there if machine.in_use and not machine.private]
        if not meant:
            foreign = f"; {_those(every)}" if every and every[0].in_use else ""
            raise UsageError(
                f"nobody uses a simulated machine now{foreign}",
                hint="start one in another terminal: gpuwatch --sim 2x24GiB; or name one with --sim",
            )
    if len(meant) > 1:
        raise UsageError(
            f"several simulated machines could be meant: {', '.join(map(str, meant))}",
            hint="choose one with --sim NxSIZE or --name",
        )
    (only,) = meant
    return Choice(SimMachine.open(only.shape, name=only.name), only.in_use, _those(every))


def _those(there: tuple[Found, ...]) -> str:
    ours = [str(machine) for machine in there if machine.in_use and not machine.foreign]
    foreign = [str(machine) for machine in there if machine.in_use and machine.foreign]
    text = f"in use now: {', '.join(ours)}" if ours else "none is in use now"
    if foreign:
        text += f"; of another version of gpuwatch, out of reach from here: {', '.join(foreign)}"
    return text

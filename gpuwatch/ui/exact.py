"""Device maps that are known exactly: by whom, and how that is put in words.

A real driver does not tell which of a process's own numbers a GPU has: the environment makes it likely.
It becomes a fact where the process sees one GPU only and the driver lists it on that one, and on simulated
GPUs, whose driver wrote down what it gave to the process.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.errors import GpuwatchError
from gpuwatch.model.snapshot import Mapped, Process, Snapshot

if TYPE_CHECKING:
    from gpuwatch.sim.machine import SimMachine

Told = tuple[tuple[int, str], ...]
"""A process's own number, and the UUID behind it, as a driver gave them."""


class Known(NamedTuple):
    """A map, and what it rests on."""

    map: tuple[Mapped, ...]
    how: str
    """One line for a person; empty where there is no map."""


@lru_cache(maxsize=1)
def _simulated() -> SimMachine | None:
    from gpuwatch.sim.machine import SimMachine

    return SimMachine.from_environment(os.environ)


def told_by_driver(pid: int) -> Told:
    """What the driver of simulated GPUs gave to a process; nothing on real ones, or before it asked."""
    try:
        machine = _simulated()
        return machine.ordinals(pid) if machine is not None else ()
    except (GpuwatchError, OSError):
        return ()  # the simulated machine is gone: what the environment says is left


def known_map(rows: tuple[Process, ...], told: Told, snapshot: Snapshot | None) -> Known:
    """The best map of a process that is known."""
    first = rows[0] if rows else None
    if first is None:
        return Known((), "")
    by_environment = tuple(sorted(first.device_map, key=lambda one: one.ordinal))
    if told and snapshot is not None:
        exact = tuple(
            Mapped(ordinal=ordinal, uuid=uuid, index=device.index, certainty="fact")
            for ordinal, uuid in sorted(told)
            if (device := snapshot.device(uuid)) is not None
        )
        differs = {one.ordinal: one.uuid for one in by_environment} != {one.ordinal: one.uuid for one in exact}
        how = "fact: the simulated driver gave them to it"
        if by_environment and differs and any(one.uuid not in dict(told).values() for one in by_environment):
            how += "; its environment alone would give others"
        return Known(exact, how)
    if not by_environment:
        return Known((), "")
    if all(one.certainty == "fact" for one in by_environment):
        return Known(by_environment, "fact: said by the driver or the framework")
    here = {row.device_uuid for row in rows if row.device_uuid is not None}
    if len(by_environment) == 1 and here == {by_environment[0].uuid} and first.cuda_visible_devices is not None:
        only = by_environment[0]
        exact = (Mapped(ordinal=only.ordinal, uuid=only.uuid, index=only.index, certainty="fact"),)
        return Known(exact, "fact: it sees one GPU only, and the driver lists it there")
    return Known(by_environment, "likely: from its environment; the program may choose among them")

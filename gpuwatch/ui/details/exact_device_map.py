"""A process's device map, and how certain it is.

A real driver does not report which of a process's own device numbers a GPU has: the environment makes it
likely. It is a fact if the process sees only one GPU and the driver lists it there, and on simulated GPUs,
whose driver records the devices it gave to a process.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuwatch.core.model.snapshot import Mapped, Process, Snapshot
from gpuwatch.machine.collector.host_access import DeviceNumbers


class Known(NamedTuple):
    """A device map and its source."""

    map: tuple[Mapped, ...]
    how: str
    """The source in one line; empty if there is no map."""


def known_map(rows: tuple[Process, ...], numbers: DeviceNumbers, snapshot: Snapshot | None) -> Known:
    """The most certain map of a process."""
    first = rows[0] if rows else None
    if first is None:
        return Known((), "")
    by_environment = tuple(sorted(first.device_map, key=lambda mapping: mapping.ordinal))
    if numbers and snapshot is not None:
        exact = tuple(
            Mapped(ordinal=ordinal, uuid=uuid, index=device.index, certainty="fact")
            for ordinal, uuid in sorted(numbers)
            if (device := snapshot.device(uuid)) is not None
        )
        differs = {mapping.ordinal: mapping.uuid for mapping in by_environment} != {
            mapping.ordinal: mapping.uuid for mapping in exact
        }
        how = "fact: reported by the simulated driver"
        if by_environment and differs and any(mapping.uuid not in dict(numbers).values() for mapping in by_environment):
            how += "; its environment alone suggests others"
        return Known(exact, how)
    if not by_environment:
        return Known((), "")
    if all(mapping.certainty == "fact" for mapping in by_environment):
        return Known(by_environment, "fact: reported by the driver or the framework")
    here = {row.device_uuid for row in rows if row.device_uuid is not None}
    if len(by_environment) == 1 and here == {by_environment[0].uuid} and first.cuda_visible_devices is not None:
        only = by_environment[0]
        exact = (Mapped(ordinal=only.ordinal, uuid=only.uuid, index=only.index, certainty="fact"),)
        return Known(exact, "fact: it sees only one GPU, and the driver lists it there")
    return Known(by_environment, "likely: from its environment; the program may select among them")

"""Events of processes that start using a device, stop using it, or exit, with their peak memory and run time."""

from __future__ import annotations

import msgspec

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import memory
from gpuwatch.history.machine_event import ASLEEP, BAD_STATES, MachineEvent, of_process, span, who
from gpuwatch.model.reading import number
from gpuwatch.model.snapshot import Device, Process, Snapshot

_Key = tuple[str | None, int, float | None]


class _User(msgspec.Struct):
    """A process on a device."""

    row: Process
    since: float
    """When it was first seen on this device."""
    last: float
    peak: float | None


class ProcessEvents:
    """Tracks processes by device. A device that does not answer keeps its processes until it does."""

    def __init__(self) -> None:
        self._here: dict[str, dict[_Key, _User]] = {}
        self._rows: tuple[Process, ...] | None = None
        self._read: list[str] = []
        """UUIDs of the devices whose process lists could be read in the last sample."""
        self._stayed: float | None = None
        """Time of the last sample in which nothing had changed."""

    def look(self, snapshot: Snapshot, at: float) -> tuple[list[MachineEvent], dict[str, float]]:
        """The events, and the memory of processes that have exited, in bytes by device UUID."""
        read = [device.uuid for device in snapshot.devices if lists_processes(device)]
        if snapshot.processes is self._rows and read == self._read:
            self._stayed = at
            return [], {}
        if self._stayed is not None:
            for uuid in self._read:
                for one in self._here[uuid].values():
                    one.last = self._stayed
            self._stayed = None
        self._rows, self._read = snapshot.processes, read
        found: list[MachineEvent] = []
        started: list[MachineEvent] = []
        freed: dict[str, float] = {}
        rows: dict[str | None, list[Process]] = {}
        for row in snapshot.processes:
            rows.setdefault(row.device_uuid, []).append(row)
        for uuid in read:
            now = {row.key: row for row in rows.get(uuid, ())}
            known = self._here.get(uuid)
            here = self._here[uuid] = {}
            for key, gone in (known or {}).items():
                if key not in now:
                    freed[uuid] = freed.get(uuid, 0.0) + (gone.row.number("gpu_memory_bytes") or 0.0)
                    found.append(_exited(gone, at, snapshot))
            for key, row in now.items():
                held = number(row.readings.get("gpu_memory_bytes"))
                user = known.get(key) if known is not None else None
                if user is None:
                    user = _User(row, at, at, held)
                    if known is not None:
                        text = f"started using GPU {row.device_index}{_named(row)}"
                        started.append(of_process(row, at, "process.started", text))
                user.row, user.last = row, at
                if held is not None:
                    user.peak = max(user.peak or 0.0, held)
                here[key] = user
        return found + started, freed


def _exited(user: _User, at: float, snapshot: Snapshot) -> MachineEvent:
    row = user.row
    rows = (*snapshot.processes, *snapshot.bystanders)
    if any((other.pid, other.create_time) == (row.pid, row.create_time) for other in rows):
        what = f"stopped using GPU {row.device_index}"
    else:
        what = f"on GPU {row.device_index} exited"
    ran = row.run_seconds(user.last)
    parts = []
    if ran is not None:
        parts.append(f"after {span(ran)}")
    elif user.last > user.since:
        parts.append(f"(seen for {span(user.last - user.since)})")
    held = row.number("gpu_memory_bytes")
    if held:
        parts.append(f"{memory(held)} freed")
    if user.peak:
        parts.append(f"peak {memory(user.peak)}")
    return of_process(row, at, "process.exited", f"{what} {', '.join(parts)}".rstrip() + _named(row))


def _named(row: Process) -> str:
    """User and command, or why they are unknown."""
    if row.command or row.name:
        return f": {who(row)}"
    return f" ({printable(row.note)})" if row.note else " (nothing but its pid is readable)"


def lists_processes(device: Device) -> bool:
    """Whether its process list was read; a list that failed, or of a suspended GPU, is empty though nothing exited."""
    unread = device.missing.get("memory.unexplained_bytes")
    return (
        device.state not in BAD_STATES
        and device.state != ASLEEP
        and (unread is None or "list of processes" not in unread.detail)
    )

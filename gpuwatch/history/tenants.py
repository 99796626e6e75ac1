"""Who came to a device and who went from it, with what they held at most and how long they ran."""

from __future__ import annotations

import msgspec

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import size
from gpuwatch.history.happened import ASLEEP, BAD_STATES, Happened, of_process, span, who
from gpuwatch.model.snapshot import Device, Process, Snapshot

_Key = tuple[str | None, int, float | None]


class _Tenant(msgspec.Struct):
    row: Process
    since: float
    """When it was first seen here."""
    told: float
    """When :attr:`row` was read: it is not renewed while nothing but its run time changes."""
    last: float
    peak: float | None


class Tenants:
    """Processes by device. A device that does not answer keeps its own until it does."""

    def __init__(self) -> None:
        self._here: dict[str, dict[_Key, _Tenant]] = {}
        self._told: list[str] = []
        """UUIDs of the devices whose lists of processes were read at the last look."""
        self._stayed: float | None = None
        """Until when everybody has stayed since."""

    def look(self, snapshot: Snapshot, at: float) -> tuple[list[Happened], dict[str, float]]:
        """What happened, and the bytes that left each device (by UUID) with those who went."""
        found: list[Happened] = []
        left: dict[str, float] = {}
        if self._stayed is not None:
            for uuid in self._told:
                for one in self._here[uuid].values():
                    one.last = self._stayed
            self._stayed = None
        self._told = []
        rows: dict[str, list[Process]] = {device.uuid: [] for device in snapshot.devices}
        for row in snapshot.processes:
            if row.device_uuid in rows:
                rows[row.device_uuid].append(row)
        came: list[Happened] = []
        for device in snapshot.devices:
            if not tells(device):
                continue
            now = {row.key: row for row in rows[device.uuid]}
            self._told.append(device.uuid)
            known = self._here.get(device.uuid)
            here = self._here[device.uuid] = {}
            for key, gone in (known or {}).items():
                if key not in now:
                    held = gone.row.number("gpu_memory_bytes") or 0.0
                    left[device.uuid] = left.get(device.uuid, 0.0) + held
                    found.append(_went(gone, at))
            for key, row in now.items():
                held_now = row.number("gpu_memory_bytes")
                tenant = known.get(key) if known is not None else None
                if tenant is None:
                    tenant = _Tenant(row, at, at, at, held_now)
                    if known is not None:
                        came.append(of_process(row, at, "process.came", f"came{_named(row)}"))
                if row is not tenant.row:
                    tenant.row, tenant.told = row, at
                tenant.last = at
                if held_now is not None:
                    tenant.peak = max(tenant.peak or 0.0, held_now)
                here[key] = tenant
        return found + came, left

    def told_by(self, snapshot: Snapshot) -> bool:
        """Whether the same devices tell of their processes as at the last look."""
        return self._told == [device.uuid for device in snapshot.devices if tells(device)]

    def stay(self, at: float) -> None:
        """Everybody is where they were, with what they held."""
        self._stayed = at


def _went(tenant: _Tenant, at: float) -> Happened:
    row = tenant.row
    ran = row.number("run_seconds")
    if ran is not None:
        ran += tenant.last - tenant.told
    parts = []
    if ran is not None:
        parts.append(f"after {span(ran)}")
    elif tenant.last > tenant.since:
        parts.append(f"after {span(tenant.last - tenant.since)} here")
    held = row.number("gpu_memory_bytes")
    if held:
        parts.append(f"{size(held)} freed")
    if tenant.peak:
        parts.append(f"peak {size(tenant.peak)}")
    return of_process(row, at, "process.went", f"went {', '.join(parts)}".rstrip() + _named(row))


def _named(row: Process) -> str:
    """Whose it is and what it runs, or why that cannot be told."""
    if row.command or row.name:
        return f": {who(row)}"
    return f" ({printable(row.note)})" if row.note else ", of which no more than its number can be read"


def tells(device: Device) -> bool:
    """Whether its list of processes was read: one that failed, or of a GPU that sleeps, is empty, and nobody went."""
    unread = device.missing.get("memory.unexplained_bytes")
    return (
        device.state not in BAD_STATES
        and device.state != ASLEEP
        and (unread is None or "list of processes" not in unread.detail)
    )

"""What happened between two looks at the machine, one line each. Pure: no clock, nothing is asked.

An event tells what was seen to change; ``certainty`` is ``likely`` where it is concluded (time until
memory is full) and ``fact`` where the driver or the collector said it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from gpuwatch.formatting.text import printable, shorten
from gpuwatch.formatting.units import size
from gpuwatch.model.snapshot import Device, Process, Snapshot

Severity = Literal["error", "warning", "info", "good"]

CAPACITY = 500
NEARLY_FULL = 0.95
_WELL_AGAIN = 0.90
_SOON_FULL = 600.0
"""Seconds to full from which it is told."""
_TREND = 30.0
"""Seconds over which memory is watched growing."""
_SLOW_REASONS = frozenset({"hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"})
"""Clock event reasons that take away what was paid for; a power cap and idling are everyday."""
_WORDS = {
    "hw-slowdown": "hardware slowdown",
    "sw-thermal": "heat",
    "hw-thermal": "heat (hardware)",
    "hw-power-brake": "the power brake",
}
_BAD = frozenset({"lost", "reset-required", "failed"})


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """One event."""

    at: float
    """Seconds since the epoch."""
    kind: str
    """``process.came``, ``process.went``, ``throttle.began``, ``device.lost`` and so on."""
    text: str
    severity: Severity = "info"
    certainty: Literal["fact", "likely"] = "fact"
    device_uuid: str | None = None
    pid: int | None = None


class FeedSeen(msgspec.Struct, frozen=True):
    """What is watched of the feed: its state, for how long it waits, how often it was replaced."""

    state: str = "ok"
    waiting: float = 0.0
    replaced: int = 0
    detail: str = ""


class Watcher:
    """Compares each snapshot with the one before; keeps what lasts (a throttle's onset, a lost device)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.events: deque[Happened] = deque(maxlen=capacity)
        self.count = 0
        """All that ever happened; :attr:`events` forgets the oldest."""
        self._before: Snapshot | None = None
        self._slow: dict[str, tuple[float, frozenset[str]]] = {}
        self._away: dict[str, float] = {}
        self._known: dict[str, Device] = {}
        self._full: set[str] = set()
        self._memory: dict[str, deque[tuple[float, float]]] = {}
        self._filling: set[str] = set()
        self._stalled: float | None = None
        self._replaced = 0

    def look(self, snapshot: Snapshot) -> list[Happened]:
        """What happened since the snapshot before; nothing on the first."""
        at = snapshot.taken_at.timestamp()
        found: list[Happened] = []
        before, self._before = self._before, snapshot
        found += self._devices(before, snapshot, at)
        for device in snapshot.devices:
            found += self._throttle(device, at, first=before is None)
            found += self._memory_of(device, at)
        if before is not None:
            found += _processes(before, snapshot, at)
        self._keep(found)
        return found

    def feed(self, seen: FeedSeen, at: float) -> list[Happened]:
        """What became of the collector and the driver."""
        found: list[Happened] = []
        if seen.replaced > self._replaced:
            self._replaced = seen.replaced
            text = printable(seen.detail) or "the collector did not answer and was replaced"
            found.append(Happened(at=at, kind="collector.replaced", text=text, severity="warning"))
        if seen.state == "not-answering" and self._stalled is None:
            self._stalled = at - seen.waiting
            text = "the driver, or the collector that asks it, does not answer"
            found.append(Happened(at=at, kind="collector.stalled", text=text, severity="error"))
        elif seen.state == "ok" and self._stalled is not None:
            text = f"the driver answers again, after {_span(at - self._stalled)}"
            self._stalled = None
            found.append(Happened(at=at, kind="collector.answers", text=text, severity="good"))
        self._keep(found)
        return found

    def _keep(self, found: Iterable[Happened]) -> None:
        for one in found:
            self.events.append(one)
            self.count += 1

    def _devices(self, before: Snapshot | None, snapshot: Snapshot, at: float) -> list[Happened]:
        found: list[Happened] = []
        here = {device.uuid: device for device in snapshot.devices}
        for uuid, known in self._known.items():
            if uuid not in here and uuid not in self._away:
                self._away[uuid] = at
                found.append(_of(known, at, "device.lost", "is not listed any more", "error"))
        for uuid, device in here.items():
            bad = device.state in _BAD
            if bad and uuid not in self._away:
                self._away[uuid] = at
                detail = f": {printable(device.state_detail)}" if device.state_detail else ""
                found.append(_of(device, at, "device.lost", f"{device.state}{detail}", "error"))
            elif not bad and uuid in self._away:
                since = self._away.pop(uuid)
                found.append(_of(device, at, "device.back", f"is back, after {_span(at - since)}", "good"))
            elif before is not None and uuid not in self._known:
                found.append(_of(device, at, "device.new", "has appeared", "good"))
            self._known[uuid] = device
        return found

    def _throttle(self, device: Device, at: float, *, first: bool) -> list[Happened]:
        reasons = device.get("clocks.event_reasons")
        if not isinstance(reasons, str):
            return []  # unknown is neither an onset nor an end
        now = frozenset(reasons.split("+")) & _SLOW_REASONS
        begun = self._slow.get(device.uuid)
        if now and begun is None:
            self._slow[device.uuid] = (at, now)
            since = " already when gpuwatch began" if first else ""
            return [_of(device, at, "throttle.began", f"is slowed by {_reasons(now)}{since}", "warning")]
        if now and begun is not None:
            self._slow[device.uuid] = (begun[0], begun[1] | now)
        elif begun is not None:
            del self._slow[device.uuid]
            text = f"is slowed no more; {_reasons(begun[1])} lasted {_span(at - begun[0])}"
            return [_of(device, at, "throttle.ended", text, "good")]
        return []

    def _memory_of(self, device: Device, at: float) -> list[Happened]:
        used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        uuid = device.uuid
        if used is None or not total:
            self._memory.pop(uuid, None)
            return []
        past = self._memory.setdefault(uuid, deque())
        if past and used < past[-1][1]:
            past.clear()  # something was freed: what follows is another story
            self._filling.discard(uuid)
        past.append((at, used))
        while at - past[0][0] > _TREND:
            past.popleft()
        if used / total >= NEARLY_FULL and uuid not in self._full:
            self._full.add(uuid)
            self._filling.add(uuid)
            return [_of(device, at, "memory.full", f"memory is nearly full: {size(used)} of {size(total)}", "warning")]
        if used / total < _WELL_AGAIN and uuid in self._full:
            self._full.discard(uuid)
            return [_of(device, at, "memory.free", f"memory is free again: {size(total - used)}", "good")]
        seconds = _to_full(past, used, total)
        if seconds is not None and uuid not in self._filling:
            self._filling.add(uuid)
            text = f"memory grows and would be full in {_span(seconds)}: {size(used)} of {size(total)}"
            return [_of(device, at, "memory.filling", text, "warning", "likely")]
        return []


def _to_full(past: deque[tuple[float, float]], used: float, total: float) -> float | None:
    """Seconds until memory is full if it goes on growing as it did, steadily, for long enough to say so."""
    begun, first = past[0]
    lasted = past[-1][0] - begun
    steps = sum(later[1] > earlier[1] for earlier, later in zip(past, list(past)[1:], strict=False))
    if lasted < _TREND * 0.6 or used <= first or steps < 5 or used / total < 0.5:
        return None
    seconds = (total - used) / ((used - first) / lasted)
    return seconds if seconds < _SOON_FULL else None


def _processes(before: Snapshot, snapshot: Snapshot, at: float) -> list[Happened]:
    """Who came and who went, on the devices that answered both times."""
    then, now = _on_devices(before), _on_devices(snapshot)
    answering = {device.uuid for device in snapshot.devices if _tells(device)}
    answered = {device.uuid for device in before.devices if _tells(device)}
    found = []
    for key, row in then.items():
        if key not in now and row.device_uuid in answering:
            held = row.number("gpu_memory_bytes")
            freed = f", {size(held)} freed" if held else ""
            text = f"GPU {row.device_index}: {row.pid} went{freed}: {_who(row)}"
            found.append(_about(row, at, "process.went", text))
    for key, row in now.items():
        if key not in then and row.device_uuid in answered:
            found.append(_about(row, at, "process.came", f"GPU {row.device_index}: {row.pid} came: {_who(row)}"))
    return found


def _tells(device: Device) -> bool:
    """Whether its list of processes was read: a list that failed is empty, and nobody went."""
    unread = device.missing.get("memory.unexplained_bytes")
    return device.state not in _BAD and (unread is None or "list of processes" not in unread.detail)


def _on_devices(snapshot: Snapshot) -> Mapping[object, Process]:
    return {row.key: row for row in snapshot.processes if row.device_uuid is not None}


def _who(row: Process) -> str:
    command = printable(row.command or row.name or "")
    program, _, rest = command.partition(" ")
    short = shorten(f"{program.rpartition('/')[2]} {rest}".strip(), 60)
    user = f"{printable(row.user)}'s " if row.user else ""
    return f"{user}{short or 'process'}"


def _about(row: Process, at: float, kind: str, text: str) -> Happened:
    return Happened(at=at, kind=kind, text=text, device_uuid=row.device_uuid, pid=row.pid)


def _of(
    device: Device,
    at: float,
    kind: str,
    text: str,
    severity: Severity,
    certainty: Literal["fact", "likely"] = "fact",
) -> Happened:
    text = f"GPU {device.index} {text}"
    return Happened(at=at, kind=kind, text=text, severity=severity, certainty=certainty, device_uuid=device.uuid)


def _reasons(names: frozenset[str]) -> str:
    return ", ".join(_WORDS[name] for name in sorted(names))


def _span(seconds: float) -> str:
    """``8 s``, ``3 min``, ``2.5 h``."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def ago(seconds: float) -> str:
    """How long something is past, for a line: ``8 s ago``."""
    return f"{_span(seconds)} ago"

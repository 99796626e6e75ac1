"""What happened between two looks at the machine, one line each. Pure: no clock, nothing is asked.

An event tells what was seen to change; ``certainty`` is ``likely`` where it is concluded (time until
memory is full) and ``fact`` where the driver or the collector said it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from gpuwatch.formatting.text import printable
from gpuwatch.history.counters import Counters
from gpuwatch.history.filling import Filling
from gpuwatch.history.happened import ASLEEP, BAD_STATES, of_device, span
from gpuwatch.history.happened import Happened as Happened
from gpuwatch.history.happened import ago as ago
from gpuwatch.history.reported import Reported
from gpuwatch.history.tenants import Tenants
from gpuwatch.history.throttling import Throttling
from gpuwatch.model.snapshot import Device, Snapshot

CAPACITY = 1000
_STANDS = 60.0
"""Seconds for which a warning stands whose end is not seen."""
_REPLACED = ("collector.replaced", None)
_UNTIL_ENDED = frozenset({"throttle.began", "collector.stalled"})
_ENDS = {
    "throttle.ended": ("throttle.began",),
    "device.back": ("device.lost",),
    "collector.answers": ("collector.stalled",),
    "memory.full": ("memory.filling",),
    "memory.free": ("memory.filling",),
}


class FeedSeen(msgspec.Struct, frozen=True):
    """What is watched of the feed: its state, for how long it waits, how often it was replaced."""

    state: str = "ok"
    waiting: float = 0.0
    replaced: int = 0
    detail: str = ""
    blame: str = ""
    """What is wrong with the collector itself; empty while it is the driver that is waited for."""


class Watcher:
    """Compares each snapshot with the one before; keeps what lasts (a throttle's onset, a lost device)."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.events: deque[Happened] = deque(maxlen=capacity)
        self.count = 0
        """All that ever happened; :attr:`events` forgets the oldest."""
        self.throttling = Throttling()
        self._tenants = Tenants()
        self._filling = Filling()
        self._counters = Counters()
        self._reported = Reported()
        self._looked = False
        self._away: dict[str, float] = {}
        self._known: dict[str, Device] = {}
        self._stalled: float | None = None
        self._replaced = 0
        self._blame = ""
        self._standing: dict[tuple[str, str | None], Happened] = {}

    def standing(self, at: float) -> tuple[Happened, ...]:
        """Warnings and errors that still hold, or were told less than a minute ago and have not ended."""
        if not self._standing:
            return ()
        for key, one in list(self._standing.items()):
            if one.kind not in _UNTIL_ENDED and at - one.at > _STANDS:
                del self._standing[key]
        return tuple(self._standing.values())

    def look(self, snapshot: Snapshot, *, same: bool = False, calm: bool = False) -> list[Happened]:
        """What happened since the snapshot before; of the first, only what is wrong already.

        ``same``: devices and processes are known to be those of the snapshot before; ``calm``: the processes are.
        """
        at = snapshot.taken_at.timestamp()
        first, self._looked = not self._looked, True
        found: list[Happened] = []
        moved: list[Happened] = []
        left: dict[str, float] = {}
        same = same and not first
        if same:
            self._tenants.stay(at)
        else:
            found = self._devices(snapshot, at, first=first)
            if calm and not first and self._tenants.told_by(snapshot):
                self._tenants.stay(at)
            else:
                moved, left = self._tenants.look(snapshot, at)
        if same and self.throttling.idle and self._counters.idle and self._filling.stay(at):
            return found
        for device in snapshot.devices:
            found += self.throttling.look(device, at, first=first)
            found += self._filling.look(device, at, left=left.get(device.uuid, 0.0))
            found += self._counters.look(device, at, same=same)
            found += self._reported.look(device, at, same=same)
        found += moved
        self._keep(found)
        replaced = self._standing.get(_REPLACED)
        if replaced is not None and at > replaced.at:
            del self._standing[_REPLACED]  # its successor works
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
            self._blame = seen.blame
            text = "the driver does not answer"
            if seen.blame:
                text = f"the collector, which asks the driver, {printable(seen.blame)}"
            found.append(Happened(at=at, kind="collector.stalled", text=text, severity="error"))
        elif seen.state == "ok" and self._stalled is not None:
            who = "samples come again" if self._blame else "the driver answers again"
            text = f"{who}, after {span(at - self._stalled)}"
            self._stalled = None
            found.append(Happened(at=at, kind="collector.answers", text=text, severity="good"))
        self._keep(found)
        return found

    def _keep(self, found: Iterable[Happened]) -> None:
        for one in found:
            self.events.append(one)
            for ended in _ENDS.get(one.kind, ()):
                self._standing.pop((ended, one.device_uuid), None)
            if one.severity in ("warning", "error"):
                self._standing[one.kind, one.device_uuid] = one
            self.count += 1

    def _devices(self, snapshot: Snapshot, at: float, *, first: bool) -> list[Happened]:
        found: list[Happened] = []
        here = {device.uuid: device for device in snapshot.devices}
        for uuid in [uuid for uuid, known in self._known.items() if uuid not in here and known.state == ASLEEP]:
            # One that slept when it was first listed has no name of its own before it wakes.
            now = next((one for one in snapshot.devices if one.pci_bus_id == self._known[uuid].pci_bus_id), None)
            if now is not None:
                del self._known[uuid]
                self._known[now.uuid] = now
        for uuid, known in self._known.items():
            if uuid not in here and uuid not in self._away:
                self._away[uuid] = at
                found.append(of_device(known, at, "device.lost", "is not listed any more", "error"))
        for uuid, device in here.items():
            bad = device.state in BAD_STATES
            if bad and uuid not in self._away:
                self._away[uuid] = at
                detail = f": {printable(device.state_detail)}" if device.state_detail else ""
                found.append(of_device(device, at, "device.lost", f"{device.state}{detail}", "error"))
            elif not bad and uuid in self._away:
                since = self._away.pop(uuid)
                found.append(of_device(device, at, "device.back", f"is back, after {span(at - since)}", "good"))
            elif not first and uuid not in self._known:
                found.append(of_device(device, at, "device.new", "has appeared", "good"))
            elif uuid in self._known and not bad:
                found += _divided(self._known[uuid], device, at)
            self._known[uuid] = device
        return found


def _divided(before: Device, now: Device, at: float) -> list[Happened]:
    """MIG switched, or its instances made anew. What could not be read is no change."""
    modes = before.get("mig.mode"), now.get("mig.mode")
    then, here = ({one.id: one for one in device.mig_instances} for device in (before, now))
    if then.keys() == here.keys() or not all(isinstance(mode, str) for mode in modes):
        return []
    if not here:
        return [of_device(now, at, "mig.changed", f"has no MIG instances any more; it had {len(then)}", "info")]
    profiles = ", ".join(printable(one.profile or one.id) for one in now.mig_instances)
    return [of_device(now, at, "mig.changed", f"is divided anew by MIG: {profiles}", "info")]

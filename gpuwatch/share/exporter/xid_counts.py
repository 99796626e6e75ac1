"""Counts the errors that the driver reports: a snapshot lists the latest only, a counter has them all."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.machine.history.gone_devices import forget_gone

_ALIKE = 5.0
"""Seconds by which the times may differ at which two collectors received the same error."""


class XidCounts:
    """Counts by UUID and Xid since a moment, in seconds since the epoch.

    Samples may come from a recorder's collector for a while, whose list is another one: what both received counts once.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._latest: dict[str, tuple[Xid, ...]] = {}
        self._until: dict[str, float] = {}
        """When the latest that was counted had been received."""
        self.counts: dict[str, dict[str, int]] = {}
        """By UUID, then by Xid (``unknown`` if the driver does not know it); replaced when something is counted."""

    def look(self, snapshot: Snapshot) -> None:
        for device in snapshot.devices:
            before = self._latest.get(device.uuid, ())
            if device.xids is before:
                continue
            self._latest[device.uuid] = device.xids
            new = self._new(device.uuid, before, device.xids)
            if not new:
                continue
            self._until[device.uuid] = max(xid.at for xid in new)
            counts = dict(self.counts.get(device.uuid, {}))
            for xid in new:
                name = "unknown" if xid.code is None else str(xid.code)
                counts[name] = counts.get(name, 0) + 1
            self.counts = self.counts | {device.uuid: counts}
        forget_gone({device.uuid for device in snapshot.devices}, self._latest, self._until, self.counts)

    def _new(self, uuid: str, before: Sequence[Xid], now: Sequence[Xid]) -> Sequence[Xid]:
        common = _common(before, now)
        if common:
            return now[common:]
        counted = self._until.get(uuid)
        return [xid for xid in now if xid.at > (self._since if counted is None else counted + _ALIKE)]


def _common(before: Sequence[Xid], now: Sequence[Xid]) -> int:
    """How many of ``now`` were there before: the list grows at its end, and its oldest are dropped."""
    for count in range(min(len(before), len(now)), 0, -1):
        if before[len(before) - count :] == now[:count]:
            return count
    return 0

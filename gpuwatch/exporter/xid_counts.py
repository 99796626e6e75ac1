"""Counts the errors that the driver reports: a snapshot lists the latest only, a counter has them all."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.xids import Xid


class XidCounts:
    """Counts by UUID and Xid since the first snapshot."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[Xid, ...]] = {}
        self.counts: dict[str, dict[str, int]] = {}
        """By UUID, then by Xid (``unknown`` if the driver does not know it); replaced when something is counted."""

    def look(self, snapshot: Snapshot) -> None:
        """Counts what the snapshot has and the previous one had not."""
        for device in snapshot.devices:
            before = self._latest.get(device.uuid, ())
            if device.xids is before:
                continue
            self._latest[device.uuid] = device.xids
            new = device.xids[_common(before, device.xids) :]
            if not new:
                continue
            counts = dict(self.counts.get(device.uuid, {}))
            for xid in new:
                name = "unknown" if xid.code is None else str(xid.code)
                counts[name] = counts.get(name, 0) + 1
            self.counts = self.counts | {device.uuid: counts}


def _common(before: Sequence[Xid], now: Sequence[Xid]) -> int:
    """How many of ``now`` were there before: the list grows at its end, and its oldest are dropped."""
    for count in range(min(len(before), len(now)), 0, -1):
        if before[len(before) - count :] == now[:count]:
            return count
    return 0

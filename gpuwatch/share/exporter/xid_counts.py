"""Counts of Xid errors, for counters that never decrease while the list of latest errors drops its oldest."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.machine.history.gone_gpus import forget_gone

_SAME_ERROR_SECONDS = 5.0
"""Seconds by which the times may differ at which two collectors received the same error."""


class XidCounts:
    """Counts by UUID and Xid since a moment, in seconds since the epoch.

    Samples may come from a recorder's collector for a while, whose list is another one: what both received counts once.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._last_xids: dict[str, tuple[Xid, ...]] = {}
        self._counted_until: dict[str, float] = {}
        """When the latest that was counted had been received."""
        self.counts: dict[str, dict[str, int]] = {}
        """By UUID, then by Xid (``unknown`` if the driver does not know it); replaced when something is counted."""

    def observe(self, snapshot: Snapshot) -> None:
        for device in snapshot.devices:
            previous = self._last_xids.get(device.uuid, ())
            if device.xids is previous:
                continue
            self._last_xids[device.uuid] = device.xids
            new_xids = self._new_xids(device.uuid, previous, device.xids)
            if not new_xids:
                continue
            self._counted_until[device.uuid] = max(xid.at for xid in new_xids)
            counts = dict(self.counts.get(device.uuid, {}))
            for xid in new_xids:
                name = "unknown" if xid.code is None else str(xid.code)
                counts[name] = counts.get(name, 0) + 1
            self.counts = self.counts | {device.uuid: counts}
        forget_gone({device.uuid for device in snapshot.devices}, self._last_xids, self._counted_until, self.counts)

    def _new_xids(self, uuid: str, previous: Sequence[Xid], current: Sequence[Xid]) -> Sequence[Xid]:
        # The list grows at its end, and its oldest are dropped.
        for common in range(min(len(previous), len(current)), 0, -1):
            if previous[len(previous) - common :] == current[:common]:
                return current[common:]
        counted_until = self._counted_until.get(uuid)
        return [
            xid
            for xid in current
            if xid.at > (self._since if counted_until is None else counted_until + _SAME_ERROR_SECONDS)
        ]

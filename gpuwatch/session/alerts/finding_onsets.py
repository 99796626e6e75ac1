"""Which findings began and ended, with limits: a condition that flaps, or a storm of them, makes few alerts."""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from gpuwatch.core.masking.mask_secrets import masked
from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot

SETTLE_SECONDS = 60.0
"""Seconds for which a finding must stay away before its end is reported. If it comes back sooner, nothing is."""
MAX_ALERTS, LIMIT_SECONDS = 20, 60.0
"""At most so many onsets are reported in so many seconds; the next alert says how many were not."""

_Key = tuple[str, str | None, int | None]
"""Cause, GPU, process."""


@dataclass
class _Episode:
    alert: Alert
    """Its onset."""
    seen: float
    """When it held last."""
    gone: float | None = None
    """When it was missed first."""
    returns: int = 0
    reported: bool = True


class Onsets:
    """Follows the findings of one machine; times are seconds since the epoch."""

    def __init__(self) -> None:
        self._open: dict[_Key, _Episode] = {}
        self._last: tuple[Finding, ...] | None = None
        self._times: deque[float] = deque()
        """When the last onsets were reported."""
        self._held_back = 0

    def look(self, findings: tuple[Finding, ...], snapshot: Snapshot) -> list[Alert]:
        """The alerts of a sample: errors and warnings that hold now, and those that ended."""
        at = snapshot.taken_at.timestamp()
        if findings is self._last:  # nothing changed
            for open_ in self._open.values():
                if open_.gone is None:
                    open_.seen = at
            return list(self._ended_alerts(at))
        self._last = findings
        now = {
            (finding.id, finding.device_uuid, finding.pid): finding
            for finding in findings
            if finding.until is None and finding.severity in ("error", "warning")
        }
        alerts: list[Alert] = []
        for key, finding in now.items():
            episode = self._open.get(key)
            if episode is None:
                alerts += self._begin(key, finding, snapshot, at)
                continue
            episode.seen = at
            if episode.gone is not None:
                episode.gone = None
                episode.returns += 1
        for key, open_ in self._open.items():
            if key not in now and open_.gone is None:
                open_.gone = at
        return [*alerts, *self._ended_alerts(at)]

    def _begin(self, key: _Key, finding: Finding, snapshot: Snapshot, at: float) -> Iterable[Alert]:
        while self._times and not 0 <= at - self._times[0] < LIMIT_SECONDS:
            self._times.popleft()
        device = snapshot.device(finding.device_uuid)
        alert = Alert(
            phase="onset",
            at=finding.since or snapshot.taken_at,
            host=snapshot.host.hostname,
            simulated=snapshot.simulated,
            finding=masked(finding),
            device_index=device.index if device is not None else None,
            held_back=self._held_back,
        )
        reported = len(self._times) < MAX_ALERTS
        self._open[key] = _Episode(alert, at, reported=reported)
        if not reported:
            self._held_back += 1
            return ()
        self._held_back = 0
        self._times.append(at)
        return (alert,)

    def _ended_alerts(self, at: float) -> Iterable[Alert]:
        """Ends of findings that stayed away, and whose onset was reported. A clock that is set back ends none."""
        for key, episode in list(self._open.items()):
            if episode.gone is None or at - episode.gone < SETTLE_SECONDS:
                continue
            del self._open[key]
            if not episode.reported:
                continue
            began = episode.alert.at
            last = datetime.datetime.fromtimestamp(episode.seen, datetime.UTC)
            yield replace(
                episode.alert,
                phase="end",
                at=last,
                finding=replace(episode.alert.finding, until=last),
                lasted_seconds=max((last - began).total_seconds(), 0.0),
                returns=episode.returns,
                held_back=0,
            )

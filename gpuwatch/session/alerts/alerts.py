"""The alerts of one machine: findings in, commands, webhooks and notifications out; failures become events.

A condition that flaps, or a storm of them, makes few alerts.
"""

from __future__ import annotations

import datetime
import os
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from gpuwatch.core.masking.mask_secrets import masked
from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.findings import Finding, FindingKey
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.session.alerts.alert_command import Command
from gpuwatch.session.alerts.delivery_thread import Channel
from gpuwatch.session.alerts.terminal_notification import Terminal
from gpuwatch.session.alerts.webhook import Webhook

SETTLE_SECONDS = 60.0
"""Seconds for which a finding must stay away before its end is reported. If it comes back sooner, nothing is."""
MAX_ALERTS, LIMIT_SECONDS = 20, 60.0
"""At most so many onsets are reported in so many seconds; the next alert says how many were not."""


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
        self._open: dict[FindingKey, _Episode] = {}
        self._times: deque[float] = deque()
        """When the last onsets were reported."""
        self._held_back = 0

    def observe(self, findings: tuple[Finding, ...], snapshot: Snapshot) -> list[Alert]:
        """The alerts of a sample: errors and warnings that hold now, and those that ended."""
        at = snapshot.taken_at.timestamp()
        current = {finding.key: finding for finding in findings if finding.until is None and finding.severity != "info"}
        alerts: list[Alert] = []
        for key, finding in current.items():
            if (known := self._open.get(key)) is None:
                alerts += self._begin(key, finding, snapshot, at)
                continue
            known.seen = at
            known.returns += known.gone is not None
            known.gone = None
        for key, episode in self._open.items():
            if key not in current and episode.gone is None:
                episode.gone = at
        return [*alerts, *self._ended_alerts(at)]

    def _begin(self, key: FindingKey, finding: Finding, snapshot: Snapshot, at: float) -> Iterable[Alert]:
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


class Alerts:
    """Follows findings; used by one thread. :meth:`observe` never waits."""

    def __init__(self, *, command: str | None = None, webhook: str | None = None, notify: bool = False) -> None:
        self._onsets = Onsets()
        self._failures: queue.SimpleQueue[MachineEvent] = queue.SimpleQueue()
        self._channels: list[Channel] = []
        self._notify = notify
        if command is not None:
            self._channels.append(Channel(Command(command), self._report))
        if webhook is not None:
            self._channels.append(Channel(Webhook(webhook), self._report))

    def write_to(self, write: Callable[[str], None]) -> None:
        """Sends notifications to a terminal, if they were asked for; ``write`` is called from another thread."""
        if self._notify:
            self._channels.append(Channel(Terminal(write, os.environ), self._report))
            self._notify = False

    def observe(self, findings: tuple[Finding, ...], snapshot: Snapshot) -> None:
        for alert in self._onsets.observe(findings, snapshot):
            for channel in self._channels:
                channel.send(alert)

    def events(self) -> list[MachineEvent]:
        """Failures since the last call: one for several in a row."""
        found = []
        while not self._failures.empty():
            found.append(self._failures.get())
        return found

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def _report(self, why: str) -> None:
        event = MachineEvent(at=time.time(), kind="alert.failed", text=f"no alert by {why}", severity="warning")
        self._failures.put(event)

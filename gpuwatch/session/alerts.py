"""The alerts of one machine: findings in, commands, webhooks and notifications out; failures become events.

A condition that flaps, or a storm of them, makes few alerts. Nothing here may delay sampling.
"""

from __future__ import annotations

import os
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.findings import Finding, FindingKey
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.session.alert_delivery import AlertCommand, DeliveryThread, TerminalNotification, Webhook

SETTLE_SECONDS = 60.0
"""Seconds for which a finding must stay away before its end is reported. If it comes back sooner, nothing is."""
MAX_ALERTS, LIMIT_SECONDS = 20, 60.0
"""At most so many onsets are reported in so many seconds; the next alert says how many were not."""


@dataclass
class _OpenFinding:
    alert: Alert
    """Its onset."""
    last_seen: float
    """When it held last."""
    missed_since: float | None = None
    """When it was missed first."""
    return_count: int = 0
    reported: bool = True


class AlertRules:
    """Decides which findings of one machine are reported, and their ends; times are seconds since the epoch."""

    def __init__(self) -> None:
        self._open_findings: dict[FindingKey, _OpenFinding] = {}
        self._reported_at: deque[float] = deque()
        """When the last onsets were reported."""
        self._withheld_count = 0

    def observe(self, findings: tuple[Finding, ...], snapshot: Snapshot) -> list[Alert]:
        """The alerts of a sample: errors and warnings that hold now, and those that ended."""
        sample_time = snapshot.taken_at.timestamp()
        current = {finding.key: finding for finding in findings if finding.until is None and finding.severity != "info"}
        alerts: list[Alert] = []
        for key, finding in current.items():
            if (open_finding := self._open_findings.get(key)) is None:
                alerts += self._begin(key, finding, snapshot, sample_time)
                continue
            open_finding.last_seen = sample_time
            open_finding.return_count += open_finding.missed_since is not None
            open_finding.missed_since = None
        for key, open_finding in self._open_findings.items():
            if key not in current and open_finding.missed_since is None:
                open_finding.missed_since = sample_time
        return [*alerts, *self._ended_alerts(sample_time)]

    def _begin(self, key: FindingKey, finding: Finding, snapshot: Snapshot, sample_time: float) -> Iterable[Alert]:
        while self._reported_at and not 0 <= sample_time - self._reported_at[0] < LIMIT_SECONDS:
            self._reported_at.popleft()
        device = snapshot.device(finding.device_uuid)
        alert = Alert(
            phase="onset",
            at=finding.since or snapshot.taken_at,
            host=snapshot.host.hostname,
            simulated=snapshot.simulated,
            finding=masked(finding),
            device_index=device.index if device is not None else None,
            held_back=self._withheld_count,
        )
        reported = len(self._reported_at) < MAX_ALERTS
        self._open_findings[key] = _OpenFinding(alert, sample_time, reported=reported)
        if not reported:
            self._withheld_count += 1
            return ()
        self._withheld_count = 0
        self._reported_at.append(sample_time)
        return (alert,)

    def _ended_alerts(self, sample_time: float) -> Iterable[Alert]:
        """Ends of findings that stayed away, and whose onset was reported. A clock that is set back ends none."""
        for key, open_finding in list(self._open_findings.items()):
            if open_finding.missed_since is None or sample_time - open_finding.missed_since < SETTLE_SECONDS:
                continue
            del self._open_findings[key]
            if not open_finding.reported:
                continue
            onset_at = open_finding.alert.at
            last_held_at = utc_datetime(open_finding.last_seen)
            yield replace(
                open_finding.alert,
                phase="end",
                at=last_held_at,
                finding=replace(open_finding.alert.finding, until=last_held_at),
                lasted_seconds=max((last_held_at - onset_at).total_seconds(), 0.0),
                returns=open_finding.return_count,
                held_back=0,
            )


class Alerts:
    """Sends the alerts of one machine wherever they were asked for; used by one thread."""

    def __init__(self, *, command: str | None = None, webhook: str | None = None, notify: bool = False) -> None:
        self._rules = AlertRules()
        self._failures: queue.SimpleQueue[MachineEvent] = queue.SimpleQueue()
        self._channels: list[DeliveryThread] = []
        self._notify = notify
        if command is not None:
            self._channels.append(DeliveryThread(AlertCommand(command), self._report))
        if webhook is not None:
            self._channels.append(DeliveryThread(Webhook(webhook), self._report))

    def write_to(self, write: Callable[[str], None]) -> None:
        """Sends notifications to a terminal, if they were asked for; ``write`` is called from another thread."""
        if self._notify:
            self._channels.append(DeliveryThread(TerminalNotification(write, os.environ), self._report))
            self._notify = False

    def observe(self, findings: tuple[Finding, ...], snapshot: Snapshot) -> None:
        """Takes the findings of a sample; never waits."""
        for alert in self._rules.observe(findings, snapshot):
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

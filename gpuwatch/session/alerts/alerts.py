"""The alerts of one machine: findings in, commands, webhooks and notifications out; failures become events."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Mapping

from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.session.alerts.alert_command import Command
from gpuwatch.session.alerts.delivery_thread import Channel
from gpuwatch.session.alerts.finding_onsets import Onsets
from gpuwatch.session.alerts.terminal_notification import escape_sequence
from gpuwatch.session.alerts.webhook import Webhook


class _Terminal:
    """Writes notifications in the thread of the channel, as tmux may have to be asked."""

    name = "--notify"

    def __init__(self, write: Callable[[str], None], environment: Mapping[str, str]) -> None:
        self._write = write
        self._environment = environment

    def deliver(self, alert: Alert) -> None:
        written = escape_sequence(alert, self._environment)
        if written:
            self._write(written)

    def cancel(self) -> None:
        """A notification is too short to be ended."""


class Alerts:
    """Follows findings; used by one thread. :meth:`look` never waits."""

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
            self._channels.append(Channel(_Terminal(write, os.environ), self._report))
            self._notify = False

    def look(self, findings: tuple[Finding, ...], snapshot: Snapshot) -> None:
        for alert in self._onsets.look(findings, snapshot):
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

"""The driver, or the collector that asks it, does not answer: seen from the feed's state, without a snapshot."""

from __future__ import annotations

import datetime
from typing import Protocol

from msgspec.structs import replace

from gpuwatch.diagnosis.registry import finding
from gpuwatch.formatting.text import printable
from gpuwatch.history.machine_event import MachineEvent, span
from gpuwatch.model.findings import Finding

_OLD = "what is on the screen is from before, and nothing is judged meanwhile"


class FeedState(Protocol):
    """What is watched of a feed: :class:`gpuwatch.monitor.feed.FeedStatus` has it."""

    @property
    def state(self) -> str:
        """``not-answering`` and ``ok`` count here."""

    @property
    def waiting_seconds(self) -> float:
        """How long the next snapshot has been overdue."""

    @property
    def replaced(self) -> int:
        """How often a collector was replaced."""

    @property
    def detail(self) -> str:
        """Why."""

    @property
    def blame(self) -> str:
        """What is wrong with the collector itself; empty while it is the driver that is waited for."""


class DriverSilence:
    """From the feed's state to events and findings: one silence, whatever was replaced in it."""

    def __init__(self) -> None:
        self.silence: Finding | None = None
        """While nothing answers."""
        self.replaced: Finding | None = None
        """From the replacement of a collector until its successor works."""
        self._replaced = 0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One: a replacement in a silence is a part of it."""
        one = self.silence or self.replaced
        return (one,) if one is not None else ()

    def look(self, status: FeedState, at: float) -> list[MachineEvent]:
        """The state of the feed at a moment (seconds since the epoch); what became of it since the last."""
        found: list[MachineEvent] = []
        if status.replaced > self._replaced:
            self._replaced, self.replaced = status.replaced, _replacement(status, at)
            found.append(_event(at, "collector.replaced", self.replaced))
        if status.state == "not-answering":
            before, since = self.silence, _time(at - status.waiting_seconds)
            if before is not None and before.since is not None:
                since = before.since
            now = _not_working(status, since) if status.blame else _silent(status, since)
            if now != before:
                self.silence = now
            if before is None:
                found.append(_event(at, "silence.began", now))
        elif status.state == "ok" and self.silence is not None:
            who = "The driver answers again" if self.silence.id == "driver.bad-state" else "Samples come again"
            since = self.silence.since or _time(at)
            text = f"{who}, after {span(at - since.timestamp())}"
            found.append(_event(at, "silence.ended", self.silence, text))
            self.silence = None
        return found

    def answered(self, at: float) -> None:
        """A snapshot of this moment came: a collector that was replaced before it has a successor that works."""
        if self.replaced is not None and self.replaced.since is not None and at > self.replaced.since.timestamp():
            self.replaced = None


def _time(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)


def _event(at: float, kind: str, one: Finding, ended: str = "") -> MachineEvent:
    severity = "good" if ended else one.severity
    return MachineEvent(
        at=at, kind=kind, text=ended or one.title, severity=severity, certainty=one.certainty, cause=one.id
    )


def _replacement(status: FeedState, at: float) -> Finding:
    found = finding(
        "unknown",
        "warning",
        "fact",
        title=printable(status.detail) or "the collector did not answer and was replaced",
        evidence=("gpuwatch asks the driver in a process of its own; no sample came before another had begun",),
        action="The Events tab shows what came before it.",
    )
    return replace(found, since=_time(at))


def _not_working(status: FeedState, since: datetime.datetime) -> Finding:
    """The collector is to blame."""
    found = finding(
        "unknown",
        "error",
        "fact",
        title=f"The collector, which asks the driver, {printable(status.blame)}",
        evidence=("the collector is a process of gpuwatch itself", printable(status.detail), _waited(since)),
        action="Wait: gpuwatch replaces it by itself. An error in gpuwatch itself: report it with its traceback.",
    )
    return replace(found, since=since)


def _silent(status: FeedState, since: datetime.datetime) -> Finding:
    times = "once" if status.replaced == 1 else f"{status.replaced} times"
    found = finding(
        "driver.bad-state",
        "error",
        "likely",
        title="The driver does not answer",
        evidence=(
            _waited(since),
            "the process that asks it runs, and waits for an answer",
            f"it was replaced {times} so far" if status.replaced else "",
        ),
        action="If it lasts: look for Xid or NVRM lines in dmesg, and whether nvidia-smi hangs as well.",
    )
    return replace(found, since=since)


def _waited(since: datetime.datetime) -> str:
    return f"no sample has come since {since.astimezone():%H:%M:%S}; {_OLD}"

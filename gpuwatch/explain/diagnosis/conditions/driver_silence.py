"""The driver, or the collector that queries it, does not answer: detected from the feed's state, without a snapshot."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch.core.formatting.durations import rounded_duration
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.diagnosis.rule_registry import error_finding, likely_error, warning_finding
from gpuwatch.machine.history.machine_event import MachineEvent

if TYPE_CHECKING:
    from gpuwatch.machine.collector.feed import FeedStatus


class DriverSilence:
    """Turns the feed's state into events and findings: one silence, however often the collector is replaced in it."""

    def __init__(self) -> None:
        self.silence: Finding | None = None
        """The finding while nothing answers."""
        self.replacement: Finding | None = None
        """The finding from the replacement of a collector until its successor works."""
        self._replacement_count = 0
        self._source_note = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """At most one: a replacement during a silence is part of it."""
        found = self.silence or self.replacement
        return (found,) if found is not None else ()

    def observe(self, status: FeedStatus, at: float) -> list[MachineEvent]:
        """Takes the state of the feed at ``at`` (seconds since the epoch); the events since the last call."""
        found: list[MachineEvent] = []
        if status.source_note and status.source_note != self._source_note:
            self._source_note = status.source_note
            found.append(MachineEvent(at=at, kind="source.changed", text=printable(status.source_note)))
        if status.replacements > self._replacement_count:
            self._replacement_count = status.replacements
            replaced = warning_finding(
                "unknown",
                title=printable(status.detail) or "the collector did not answer and was replaced",
                evidence=(
                    "gpuwatch queries the driver in a separate process; no sample arrived until another one started",
                ),
                action="The Events tab shows what happened before.",
            )
            self.replacement = replace(replaced, since=utc_datetime(at))
            found.append(_event(at, "collector.replaced", self.replacement))
        if status.state == "not-answering":
            before = self.silence
            since = before.since if before is not None else None
            silence = _silence_finding(status, since or utc_datetime(at - status.waiting_seconds))
            if silence != before:
                self.silence = silence
            if before is None:
                found.append(_event(at, "silence.began", silence))
        elif status.state == "ok" and self.silence is not None:
            what = "The driver answers again" if self.silence.id == "driver.bad-state" else "Samples arrive again"
            since = self.silence.since or utc_datetime(at)
            text = f"{what}, after {rounded_duration(at - since.timestamp())}"
            found.append(_event(at, "silence.ended", self.silence, text))
            self.silence = None
        return found

    def answered(self, at: float) -> None:
        """A snapshot of this moment arrived: the successor of a replaced collector works."""
        since = self.replacement.since if self.replacement is not None else None
        if since is not None and at > since.timestamp():
            self.replacement = None


def _event(at: float, kind: str, found: Finding, ending_text: str = "") -> MachineEvent:
    severity = "good" if ending_text else found.severity
    return MachineEvent(
        at=at, kind=kind, text=ending_text or found.title, severity=severity, certainty=found.certainty, cause=found.id
    )


def _silence_finding(status: FeedStatus, since: datetime.datetime) -> Finding:
    """``status.collector_fault``: the collector, not the driver, is at fault."""
    no_sample = (
        f"no sample since {since.astimezone():%H:%M:%S}; the data shown is older, and findings are not updated until"
        " samples arrive"
    )
    if status.collector_fault:
        found = error_finding(
            "unknown",
            title=f"The collector, which queries the driver, {printable(status.collector_fault)}",
            evidence=("the collector is a process of gpuwatch itself", printable(status.detail), no_sample),
            action="Wait: gpuwatch replaces it. If it is an error in gpuwatch, report it with its traceback.",
        )
        return replace(found, since=since)
    times = "once" if status.replacements == 1 else f"{status.replacements} times"
    found = likely_error(
        "driver.bad-state",
        title="The driver does not answer",
        evidence=(
            no_sample,
            "the process that queries it is running and waiting for an answer",
            printable(status.detail),
            f"it was replaced {times} so far" if status.replacements else "",
        ),
        action="If this persists, look for Xid or NVRM lines in dmesg, and check whether nvidia-smi hangs too.",
    )
    return replace(found, since=since)

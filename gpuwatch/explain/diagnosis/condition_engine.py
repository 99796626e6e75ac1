"""What happened to a watched machine, and what is wrong with it now: events and findings from one engine.

A fold over snapshots in order of time: the same snapshots give the same events and findings, whether they arrive one
by one or from a recording. Each condition is judged once: its onset and end are events, and while it holds it is a
finding with the same text, severity and cause. Pure: it reads no clock and no device. Findings are reworded only every
few seconds.
"""

from __future__ import annotations

import datetime
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.diagnosis.conditions import gpu_faults
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, conditions
from gpuwatch.explain.diagnosis.conditions.driver_silence import DriverSilence
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext, SampleHistory
from gpuwatch.explain.diagnosis.conditions.throttling import ClockEventEpisode, ClockEventEpisodes
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import broken_rule_finding, by_severity, diagnose, rules_for
from gpuwatch.explain.diagnosis.rule_registry import healthy_finding
from gpuwatch.machine.history.machine_event import LastingCondition, MachineEvent, onset_key
from gpuwatch.machine.history.sample_events import DeviceEvents, ProcessEvents
from gpuwatch.machine.history.sample_gaps import MAX_UNOBSERVED_SECONDS, unobserved_limit

if TYPE_CHECKING:
    from gpuwatch.machine.collector.feed import FeedStatus

MAX_EVENTS = 1000
"""Events kept."""
REJUDGE_SECONDS = 5.0
"""Seconds after which findings are reworded, and an unchanged machine is judged again, by the rules on evidence too."""
PAST_SECONDS = 1800.0
"""Seconds for which a past finding is listed."""
_RESUME_SECONDS = 10.0
"""A condition that ends without delay and returns within so many seconds is the same occurrence."""


_Key = tuple[object, ...]


@dataclass(slots=True)
class _Entry:
    """An occurrence that has not ended."""

    number: int
    """The number of the occurrence in its events."""
    occurrence: Occurrence
    condition: Condition
    finding: Finding | None = None
    is_listed: bool = True
    """Whether it is listed among the findings; otherwise it only has events."""
    worded_at: float = float("-inf")
    """When the finding was last worded."""
    announced: bool = False
    """Whether its onset event was sent."""


class _EvidenceRules(Condition):
    """What the rules on evidence find in the latest snapshot: they run when devices change, else every few seconds."""

    name = "finding"
    causes = ()

    def __init__(self) -> None:
        self._found: dict[str, Finding] = {}
        self._diagnosed_at = float("-inf")
        self._state: object = None

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        snapshot, at = context.snapshot, context.at
        state = (tuple(device.state for device in snapshot.devices), snapshot.problems, snapshot.driver is None)
        if state != self._state or at - self._diagnosed_at >= REJUDGE_SECONDS:
            self._state, self._diagnosed_at = state, at
            evidence = Evidence(snapshot=snapshot)
            found = diagnose(evidence, [rule for rule in rules_for(evidence) if not rule.replaces_conditions])
            self._found = {repr(_subject(item)): item for item in found if item.id != "healthy"}
        for subject, item in self._found.items():
            yield Sign(cause=item.id, variant=subject)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        return self._found[occurrence.sign.variant]


class ConditionEngine:
    """Takes snapshots, and the state of their feed, in order of time."""

    def __init__(self, capacity: int = MAX_EVENTS) -> None:
        self.events: deque[MachineEvent] = deque(maxlen=capacity)
        """Oldest first."""
        self.count = 0
        """Number of all events so far; :attr:`events` drops the oldest."""
        self.past: deque[Finding] = deque(maxlen=100)
        """Findings that no longer hold, the latest last; each with ``until``."""
        self._numbers = itertools.count(1)
        """Numbers of occurrences."""
        self._processes = ProcessEvents()
        self._devices = DeviceEvents()
        self._silence = DriverSilence()
        self._history = SampleHistory()
        self._episodes = ClockEventEpisodes()
        self._begin()

    def _begin(self) -> None:
        """Forgets everything that depends on time."""
        self.samples = 0
        self._first_at = 0.0
        """When the first sample was taken."""
        self.observed_seconds = self.unobserved_seconds = 0.0
        """``unobserved_seconds``: those in gaps between samples, while the driver or the collector did not answer."""
        self.past.clear()
        self._current: tuple[Finding, ...] = ()
        self._last_at: float | None = None
        """When the last sample was taken."""
        self._unjudged_seconds = 0.0
        """Observed seconds since the last judged sample; nothing changed in them."""
        self._unjudged_samples = 0
        """Samples since then, all unchanged."""
        self._judged_at = float("-inf")
        self._snapshot: Snapshot | None = None
        self._intervals: deque[float] = deque(maxlen=8)
        """Seconds between the latest samples."""
        self._entries: dict[_Key, _Entry] = {}
        self._evidence_rules = _EvidenceRules()
        self._broken: dict[str, Finding] = {}
        self._healthy: Finding | None = None
        self._healthy_worded_at = float("-inf")
        self._healthy_since: float | None = None
        self._unclear: frozenset[_Key] = frozenset()
        """Conditions not known before, of which the latest judged sample did not say whether they hold."""
        self._inherited: dict[_Key, LastingCondition] = {}
        self._inherited_until = 0.0

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The current problems and notes; ``healthy``, perhaps with notes, if there is no problem."""
        silence = self._silence.findings
        return (*silence, *(found for found in self._current if found.id != "healthy")) if silence else self._current

    @property
    def silence(self) -> Finding | None:
        """The finding that the driver or the collector does not answer, if so."""
        return self._silence.silence

    def throttling(self, uuid: str, until: float) -> list[ClockEventEpisode]:
        """When and why a device was throttled, as known at a moment; the latest onset first."""
        return self._episodes.of_device(uuid, until)

    # -- input ----------------------------------------------------------------------------------

    def prepend(self, lasting: Iterable[LastingCondition], until: float, episodes: ClockEventEpisodes) -> None:
        """Takes over the conditions that another gpuwatch saw at the first sample here, and its clock event episodes.

        Those that still hold began when it says. ``until``: up to when samples were taken here before this was known.
        """
        self._inherited = {onset_key(begun.onset): begun for begun in lasting}
        self._inherited_until = until
        self._episodes.prepend(episodes)
        for entry in self._entries.values():
            if entry.announced and self._inherit_start(entry) and entry.finding is not None:
                entry.worded_at = float("-inf")
                entry.finding = replace(entry.finding, since=utc_datetime(entry.occurrence.since))

    def feed(self, status: FeedStatus, at: float) -> list[MachineEvent]:
        """Takes the state of the feed, also while no snapshots arrive."""
        found = self._silence.observe(status, at)
        if self._silence.silence is not None:
            self._healthy_since, self._healthy = None, None
        return self._add_events(found)

    def observe(self, snapshot: Snapshot) -> list[MachineEvent]:
        """Takes a snapshot; the events since the previous one. An older or identical one changes nothing."""
        at = snapshot.taken_at.timestamp()
        last = self._last_at
        if last is not None and (at < last or (at == last and snapshot.unchanged(self._snapshot))):
            if last - at < MAX_UNOBSERVED_SECONDS:
                return []
            self._begin()  # the clock was set back: earlier times cannot be compared
            self._history.restart()
        self._silence.answered(at)
        before, before_at, self._snapshot = self._snapshot, self._last_at, snapshot
        seconds, gap = self._advance(at)
        unchanged = not gap and snapshot.unchanged(before)
        if unchanged and at - self._judged_at < REJUDGE_SECONDS and not self._processes.waiting:
            self._unjudged_samples += 1
            self._unjudged_seconds += seconds
            return []
        found: list[MachineEvent] = []
        if not unchanged and self._unjudged_samples and before is not None and before_at is not None:
            found += self._judge(before, before_at, 0.0)  # the state until this change
        self._unjudged_seconds += seconds
        self._unjudged_samples += unchanged
        if gap:
            for entry in self._entries.values():
                entry.occurrence.unobserved_seconds += gap
        found += self._judge(snapshot, at, gap, first=before is None)
        return self._add_events(found)

    def _advance(self, at: float) -> tuple[float, float]:
        """Advances to a sample: the observed seconds before it, and those of a gap; one of them is 0."""
        seconds = 0.0 if self._last_at is None else at - self._last_at
        usual = min(self._intervals, default=0.0)
        if seconds:
            self._intervals.append(seconds)
        gap = seconds if seconds > unobserved_limit(usual) else 0.0
        self._last_at = at
        self.samples += 1
        if self.samples == 1:
            self._first_at = at
        self.observed_seconds += seconds - gap
        self.unobserved_seconds += gap
        return seconds - gap, gap

    def _add_events(self, found: list[MachineEvent]) -> list[MachineEvent]:
        self.events.extend(found)
        self.count += len(found)
        return found

    def _judge(self, snapshot: Snapshot, at: float, gap: float, *, first: bool = False) -> list[MachineEvent]:
        """Judges a sample, together with the identical ones before it."""
        seconds, self._unjudged_seconds, self._judged_at = self._unjudged_seconds, 0.0, at
        samples, self._unjudged_samples = self._unjudged_samples or 1, 0
        context = SampleContext(snapshot, at, seconds, self._history, samples)
        process_events: list[MachineEvent] = []
        found: list[MachineEvent] = []
        if snapshot.driver is not None:
            process_events, freed = self._processes.observe(snapshot, at)
            context.add_to_history()
            for device in snapshot.devices:
                self._episodes.observe(device, at, first=first)
            found = self._devices.observe(snapshot, at, freed)
        found += self._update(conditions(), context, blind=snapshot.driver is None)
        found += process_events
        found += self._update([self._evidence_rules], context)
        while self.past and at - _epoch_seconds(self.past[0].until) > PAST_SECONDS:
            self.past.popleft()
        self._list_findings(snapshot, at, gap=bool(gap))
        return found

    def _list_findings(self, snapshot: Snapshot, at: float, *, gap: bool) -> None:
        current = [
            entry.finding
            for entry in self._entries.values()
            # Without the driver a condition is neither present nor over.
            if entry.announced
            and entry.finding is not None
            and entry.is_listed
            and (entry.condition is self._evidence_rules or snapshot.driver is not None)
        ]
        current += self._broken.values()
        # What cannot be read is a finding only when it lasts, but at no time is it well.
        unread = any(map(gpu_faults.unreadable_metrics, snapshot.devices))
        problem = unread or any(found.severity != "info" for found in current)
        if gap or problem:
            self._healthy_since, self._healthy = None, None  # a gap may have hidden a problem
        if not problem:
            self._healthy_since = self._healthy_since or at
            if self._healthy is None or at - self._healthy_worded_at >= REJUDGE_SECONDS:
                nothing = healthy_finding(
                    evidence=_coverage_evidence(snapshot, self.observed_seconds, self.unobserved_seconds)
                )
                self._healthy_worded_at, self._healthy = at, replace(nothing, since=utc_datetime(self._healthy_since))
            current.append(self._healthy)
        found = tuple(by_severity(current))
        if found != self._current:
            self._current = found

    # -- conditions -----------------------------------------------------------------------------

    def _update(
        self, judged: Sequence[Condition], context: SampleContext, *, blind: bool = False
    ) -> list[MachineEvent]:
        """``blind``: they are neither present nor over, until they are forgotten."""
        found: list[MachineEvent] = []
        seen: set[_Key] = set()
        unclear: set[_Key] = set()
        for condition in () if blind else judged:
            for sign in self._signs(condition, context):
                key = (condition.name, *sign.key)
                entry = self._entries.get(key)
                unseen = self.samples == 1 or key in self._unclear
                if entry is not None and entry.occurrence.begins_anew_with(sign):
                    found += self._end(key, entry, context)
                    entry, unseen = None, True
                if entry is None:
                    if not sign.holds:
                        unclear |= {key} if sign.holds is None else set()
                        continue
                    delays = (condition.report_after_seconds, condition.end_after_seconds)
                    occurrence = Occurrence.from_first_sign(sign, context.at, *delays, first=unseen)
                    occurrence.may_be_older |= occurrence.begins_with_sample(self._first_at)
                    entry = self._entries[key] = _Entry(next(self._numbers), occurrence, condition)
                seen.add(key)
                entry.occurrence.add(sign, context.at, context.seconds, context.samples)
        if not blind and self._evidence_rules not in judged:
            self._unclear = frozenset(unclear)
        for key, entry in list(self._entries.items()):
            condition, occurrence = entry.condition, entry.occurrence
            if condition not in judged:
                continue
            _renumber(occurrence, context)
            if key not in seen:
                is_unknown = blind or condition.is_unknown(occurrence.sign, context)
                unknown_sign = Sign(cause=occurrence.sign.cause, holds=None) if is_unknown else None
                occurrence.add(unknown_sign, context.at, context.seconds, context.samples)
            gone = occurrence.has_ended or _has_process_exited(occurrence.sign, context)
            if (gone and not blind) or occurrence.unknown_seconds > condition.forget_after_seconds:
                found += self._end(key, entry, context)
            elif occurrence.reported and not blind:
                found += self._reword_and_report(entry, context)
        return found

    def _inherit_start(self, entry: _Entry) -> bool:
        """Takes over the start of a condition that another gpuwatch saw begin, and not end."""
        occurrence, found = entry.occurrence, entry.finding
        key = (f"{entry.condition.name}.began", found.id, found.device_uuid, found.pid) if found is not None else ()
        begun = self._inherited.get(key)
        first_sample = occurrence.since + occurrence.known_before_seconds
        if begun is None or first_sample > self._inherited_until + max(occurrence.end_after_seconds, _RESUME_SECONDS):
            return False
        del self._inherited[key]
        if begun.since < occurrence.since:
            occurrence.set_start(begun.since, may_be_older=begun.at_least)
        return True

    def _reword_and_report(self, entry: _Entry, context: SampleContext) -> Iterator[MachineEvent]:
        """Rewords the finding when due; yields its onset event and later news."""
        at, before, condition = context.at, entry.finding, entry.condition
        try:
            news = list(condition.new_event_texts(entry.occurrence, context))
            if news or at - entry.worded_at >= REJUDGE_SECONDS:
                entry.worded_at = at
                entry.is_listed = condition.is_listed(entry.occurrence, context)
                entry.finding = condition.finding(entry.occurrence, context)
        except Exception as error:  # noqa: BLE001 - shown as a finding; the other conditions still work
            self._report_broken(condition, error, at)
            entry.finding = None
        if entry.finding is None or entry.finding is before:
            return
        if not entry.announced:
            self._resume_past(entry)
            if self._inherit_start(entry):
                entry.finding = condition.finding(entry.occurrence, context) or entry.finding
        severity = entry.finding.severity
        if before is not None and SEVERITY_ORDER[before.severity] < SEVERITY_ORDER[severity]:
            severity = before.severity  # never lowered while it holds
        last = utc_datetime(entry.occurrence.last_held) if entry.occurrence.is_ending else None
        since, older = utc_datetime(entry.occurrence.since), entry.occurrence.may_be_older or UNSET
        entry.finding = replace(entry.finding, severity=severity, since=since, may_be_older=older, last=last)
        phase = "changed" if entry.announced else "began"
        if not entry.announced or (before is not None and before.severity != severity):
            news = news or [entry.finding.title]
        entry.announced = True
        for text in news:
            yield _event(at, f"{condition.name}.{phase}", text, entry.finding, entry)
            phase = "changed"

    def _resume_past(self, entry: _Entry) -> None:
        """Continues a condition that begins and ends without delay and returns: one finding with two onsets."""
        for past in self.past:
            same = entry.finding is not None and _subject(past) == _subject(entry.finding)
            at_once = entry.occurrence.end_after_seconds <= 0 and entry.occurrence.report_after_seconds <= 0
            if same and at_once and entry.occurrence.since - _epoch_seconds(past.until) < _RESUME_SECONDS:
                self.past.remove(past)
                entry.occurrence.since = _epoch_seconds(past.since)
                return

    def _end(self, key: _Key, entry: _Entry, context: SampleContext) -> Iterator[MachineEvent]:
        del self._entries[key]
        ended = entry.finding
        if not entry.announced or ended is None:
            return
        if entry.is_listed:
            self.past.append(replace(ended, last=None, until=utc_datetime(entry.occurrence.last_held)))
        if text := entry.condition.end_text(entry.occurrence, ended, context):
            yield _event(context.at, f"{entry.condition.name}.ended", text, ended, entry, good=True)

    def _signs(self, condition: Condition, context: SampleContext) -> tuple[Sign, ...]:
        try:
            return tuple(condition.signs(context))
        except Exception as error:  # noqa: BLE001 - as above
            self._report_broken(condition, error, context.at)
            return ()

    def _report_broken(self, condition: Condition, error: Exception, at: float) -> None:
        name = type(condition).__name__
        self._broken.setdefault(
            name, replace(broken_rule_finding(name, condition.causes, error), since=utc_datetime(at))
        )


def _subject(found: Finding) -> tuple[object, ...]:
    return (found.id, found.device_uuid, found.pid, found.title)


def _has_process_exited(sign: Sign, context: SampleContext) -> bool:
    """Whether the process has exited. Unknown while its device is missing: that may come back."""
    process, device = sign.process, sign.device
    if process is None or process.device_uuid is None:
        return False
    if device is not None and (device.uuid not in context.devices or context.devices[device.uuid].state == "asleep"):
        return False
    rows = context.rows_of_process.get((process.pid, process.create_time), ())
    return not rows if device is None else not any(row.device_uuid == device.uuid for row in rows)


def _renumber(occurrence: Occurrence, context: SampleContext) -> None:
    """Names the GPU by its number of now: NVML counts those that are listed."""
    known = occurrence.sign.device
    now = context.devices.get(known.uuid) if known is not None else None
    if known is not None and now is not None and now.index != known.index:
        occurrence.sign = replace(occurrence.sign, device=replace(known, index=now.index))


def _event(at: float, kind: str, text: str, finding: Finding, entry: _Entry, *, good: bool = False) -> MachineEvent:
    severity = finding.severity if not good else "info" if finding.severity == "info" else "good"
    return MachineEvent(
        at=at,
        kind=kind,
        text=text,
        severity=severity,
        certainty=finding.certainty,
        cause=finding.id,
        occurrence=entry.number,
        seen={"began": entry.occurrence.since, "ended": entry.occurrence.last_held}.get(kind.rpartition(".")[2]),
        device_uuid=finding.device_uuid,
        pid=finding.pid,
    )


def _epoch_seconds(time: datetime.datetime | None) -> float:
    return time.timestamp() if time is not None else 0.0


def _coverage_evidence(snapshot: Snapshot, observed: float, unobserved: float) -> tuple[str, ...]:
    """What was watched, for how long (seconds), what was looked for, and what could not be judged."""
    gpus, programs = len(snapshot.devices), len({row.pid for row in snapshot.processes})
    # Without processes, memory that no process explains is not known either.
    listed = bool(programs) or not all("memory.unexplained_bytes" in d.missing for d in snapshot.devices)
    listed = listed or not any("memory.used_bytes" in d.readings for d in snapshot.devices)
    what = count_text(gpus, "GPU")
    what += f" and {count_text(programs, 'process')}" if listed else ""
    lines = [f"watched: {what}, for {steady_duration(observed)}"]
    if unobserved:
        lines.append(f"not observed: {steady_duration(unobserved)} without samples")
    judged, not_judged = [], []
    for condition in filter(lambda condition: condition.looks_for, conditions()):
        needed = condition.needed_metrics
        missing = next((name for name in needed if all(name not in d.readings for d in snapshot.devices)), "")
        if condition.judges_processes and not listed:
            not_judged.append(f"not judged: {condition.looks_for} (processes are not reported)")
        elif not missing:
            judged.append(condition.looks_for)
        elif snapshot.devices:
            reason = next((d.missing[missing].reason for d in snapshot.devices if missing in d.missing), "")
            why = f": {reason.replace('_', ' ')}" if reason else ""
            not_judged.append(f"not judged: {condition.looks_for} ({missing}{why})")
    if judged and snapshot.devices:
        lines.append(f"looked for: {'; '.join((*judged, 'GPUs in an exclusive or prohibited compute mode'))}")
    return (*lines, *not_judged)

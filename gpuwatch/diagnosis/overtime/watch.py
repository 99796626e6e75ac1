"""The findings of a machine that somebody watches: each with its beginning, and past ones for a while.

A fold over snapshots: the same snapshots give the same findings, whether they come one by one on the
dashboard or all at once from what was kept (:func:`over`). A snapshot costs what its devices and processes
cost once; findings are put into words again every few seconds only.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from gpuwatch.diagnosis.engine import broken, diagnose, in_order
from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.overtime import aside, clocks, errors, filling, held, link, waits
from gpuwatch.diagnosis.overtime.look import Look, Memory
from gpuwatch.diagnosis.overtime.registry import LASTING, LastingRule
from gpuwatch.diagnosis.overtime.stretch import Sign, Stretch
from gpuwatch.diagnosis.overtime.words import span
from gpuwatch.diagnosis.registry import RULES, finding
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Snapshot

TOPICS = (clocks, link, held, waits, filling, errors, aside)
"""The modules whose rules run. A new one: one import above, one name here."""

GAP = 15.0
"""Seconds between two samples from which nobody observed what was in between, where samples come more often."""
_USUAL = 2.5
"""So many times the usual distance of the samples is a gap, where they come seldom."""
AGAIN = 5.0
"""Seconds after which findings are put into words again, and the rules for one look asked again."""
PAST = 1800.0
"""Seconds for which a past finding is listed."""
_RESUMES = 10.0
"""Seconds after which a finding of a single look that comes again is another one; it is past at once."""

_MOMENTARY = tuple(rule for rule in RULES if not rule.single_look)


@dataclass(slots=True)
class _Entry:
    stretch: Stretch
    rule: LastingRule | None
    """None: a finding of the rules for one look, whose words are in ``finding``."""
    finding: Finding | None = None
    worded: float = float("-inf")


class Watch:
    """Takes snapshots in the order of their times; tells what has lasted."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        """Errors, warnings and notes that hold now; ``healthy`` alone where there is nothing to say."""
        self.past: deque[Finding] = deque(maxlen=100)
        """Findings that hold no more, the newest last; each with ``until``."""
        self.samples = 0
        self.observed = 0.0
        """Seconds that were observed."""
        self.unobserved = 0.0
        """Seconds in gaps between samples, in which the driver or its reader did not answer."""
        self._began: float | None = None
        self._at: float | None = None
        self._steps: deque[float] = deque(maxlen=8)
        """Seconds between the last samples."""
        self._memory = Memory()
        self._entries: dict[tuple[object, ...], _Entry] = {}
        self._momentary: tuple[Finding, ...] = ()
        self._asked = float("-inf")
        self._state: object = None
        self._broken: dict[str, Finding] = {}
        self._sound: Finding | None = None
        self._said = float("-inf")
        self._well: float | None = None
        """Since when nothing is wrong."""

    def look(self, snapshot: Snapshot) -> tuple[Finding, ...]:
        """One more snapshot; the findings after it. One that is not newer than the last changes nothing."""
        at = snapshot.taken_at.timestamp()
        before, gap = self._at, 0.0
        if before is not None and at <= before:
            if before - at < GAP:
                return self.findings
            self._begin()  # the clock was set back: times before and after do not compare
            before = None
        seconds = 0.0 if before is None else at - before
        usual = min(self._steps, default=0.0)
        if seconds:
            self._steps.append(seconds)
        if seconds > max(GAP, _USUAL * usual):
            gap, seconds = seconds, 0.0
        self._began = at if self._began is None else self._began
        self._at = at
        self.samples += 1
        self.observed += seconds
        self.unobserved += gap
        if gap:
            for entry in self._entries.values():
                entry.stretch.unobserved += gap
        if snapshot.driver is not None:
            self._lasting(snapshot, at, seconds)
        else:
            self._unseen(at, seconds)
        self._once(snapshot, at, seconds)
        while self.past and at - _moment(self.past[0].until) > PAST:
            self.past.popleft()
        now = [
            entry.finding
            for entry in self._entries.values()
            # What lasts cannot be seen while the driver tells nothing: it is neither there nor over.
            if entry.stretch.told and entry.finding is not None and (entry.rule is None or snapshot.driver is not None)
        ]
        now += self._broken.values()
        if gap:
            self._well, self._sound = None, None  # nobody knows what was in between
        if any(one.severity != "info" for one in now):
            self._well, self._sound = None, None
        else:
            self._well = at if self._well is None else self._well
            if self._sound is None or at - self._said >= AGAIN:
                self._said, self._sound = at, self._healthy(snapshot, self._well)
            now.append(self._sound)
        found = tuple(in_order(now))
        if found != self.findings:
            self.findings = found
        return self.findings

    # -- rules over time ------------------------------------------------------------------------

    def _lasting(self, snapshot: Snapshot, at: float, seconds: float) -> None:
        look = Look(snapshot, at, seconds, self._memory)
        look.remember()
        seen: set[tuple[object, ...]] = set()
        for number, rule in enumerate(LASTING):
            for sign in self._signs(rule, look):
                key = (number, *sign.key)
                entry = self._entries.get(key)
                if entry is None:
                    if not sign.holds:
                        continue
                    stretch = Stretch(sign=sign, since=at, last=at, appears=rule.appears, leaves=rule.leaves)
                    entry = self._entries[key] = _Entry(stretch, rule)
                seen.add(key)
                entry.stretch.add(sign, at, seconds)
        for key, entry in list(self._entries.items()):
            if entry.rule is None:
                continue
            stretch = entry.stretch
            if key not in seen:
                unseen = Sign(cause=stretch.sign.cause, holds=None) if _asleep(stretch.sign, look) else None
                stretch.add(unseen, at, seconds)
            if stretch.over or stretch.untold > entry.rule.forgets or _subject_gone(stretch.sign, look):
                self._end(key, entry)
            elif stretch.told and at - entry.worded >= AGAIN:
                entry.worded = at
                told = self._told(entry.rule, stretch, look)
                entry.finding = None if told is None else msgspec.structs.replace(told, since=_time(stretch.since))

    def _unseen(self, at: float, seconds: float) -> None:
        for key, entry in list(self._entries.items()):
            if entry.rule is not None:
                entry.stretch.add(Sign(cause=entry.stretch.sign.cause, holds=None), at, seconds)
                if entry.stretch.untold > entry.rule.forgets:
                    self._end(key, entry)

    def _signs(self, rule: LastingRule, look: Look) -> tuple[Sign, ...]:
        try:
            return tuple(rule.signs(look))
        except Exception as error:  # noqa: BLE001 - shown as a finding; the other rules still speak
            self._break(rule, error, look.at)
            return ()

    def _told(self, rule: LastingRule, stretch: Stretch, look: Look) -> Finding | None:
        try:
            return rule.tell(stretch, look)
        except Exception as error:  # noqa: BLE001 - as above
            self._break(rule, error, look.at)
            return None

    def _break(self, rule: LastingRule, error: Exception, at: float) -> None:
        name = type(rule).__name__
        self._broken.setdefault(name, msgspec.structs.replace(broken(name, rule.causes, error), since=_time(at)))

    # -- rules for one look ---------------------------------------------------------------------

    def _once(self, snapshot: Snapshot, at: float, seconds: float) -> None:
        """Asked again when something turned, and every few seconds: what they look at seldom changes."""
        state = (tuple(device.state for device in snapshot.devices), snapshot.problems, snapshot.driver is None)
        if state != self._state or at - self._asked >= AGAIN:
            self._state, self._asked = state, at
            found = diagnose(Evidence(snapshot=snapshot), _MOMENTARY)
            self._momentary = tuple(one for one in found if one.id != "healthy")
        seen: set[tuple[object, ...]] = set()
        key: tuple[object, ...]
        for one in self._momentary:
            key = (-1, one.id, one.device_uuid, one.pid, one.title)
            seen.add(key)
            entry = self._entries.get(key)
            if entry is None:
                stretch = Stretch(Sign(cause=one.id), self._resumed(one, at), at, appears=0.0, leaves=0.0)
                entry = self._entries[key] = _Entry(stretch, None)
            entry.stretch.add(Sign(cause=one.id), at, seconds)
            entry.finding = msgspec.structs.replace(one, since=_time(entry.stretch.since))
        for key, entry in list(self._entries.items()):
            if entry.rule is None and key not in seen:
                entry.stretch.add(None, at, seconds)
                if entry.stretch.over:
                    self._end(key, entry)

    def _resumed(self, one: Finding, at: float) -> float:
        """Since when a finding holds: one that was away for a moment only goes on."""
        for past in self.past:
            same = (past.id, past.device_uuid, past.pid, past.title) == (one.id, one.device_uuid, one.pid, one.title)
            if same and at - _moment(past.until) < _RESUMES:
                self.past.remove(past)
                return _moment(past.since)
        return at

    def _end(self, key: tuple[object, ...], entry: _Entry) -> None:
        del self._entries[key]
        if entry.stretch.told and entry.finding is not None:
            self.past.append(msgspec.structs.replace(entry.finding, until=_time(entry.stretch.last)))

    # -- nothing wrong --------------------------------------------------------------------------

    def _healthy(self, snapshot: Snapshot, since: float) -> Finding:
        sound = finding(
            "healthy",
            "info",
            "likely",
            title="Nothing wrong was found",
            evidence=self.looked_at(snapshot),
        )
        return msgspec.structs.replace(sound, since=_time(since))

    def looked_at(self, snapshot: Snapshot) -> tuple[str, ...]:
        """What was looked at and for how long, what was looked for, and what could not be judged."""
        gpus, programs = len(snapshot.devices), len({row.pid for row in snapshot.processes})
        what = f"{gpus} GPU{'' if gpus == 1 else 's'} and {programs} process{'' if programs == 1 else 'es'}"
        lines = [f"watched: {what}, for {span(self.observed)}"]
        if self.unobserved:
            lines.append(f"not observed: {span(self.unobserved)}, in which no sample came")
        able, unable = [], []
        for rule in LASTING:
            lacking = [
                metric
                for metric in rule.needs
                if snapshot.devices and not any(metric in device.readings for device in snapshot.devices)
            ]
            if not lacking:
                able.append(rule.looks_for)
            else:
                reason = next((d.missing[lacking[0]].reason for d in snapshot.devices if lacking[0] in d.missing), "")
                why = f": {reason.replace('_', ' ')}" if reason else ""
                unable.append(f"not judged: {rule.looks_for} ({lacking[0]}{why})")
        if able and snapshot.devices:
            able.append("GPUs that are lost, faulty, or closed by their mode")
            lines.append(f"looked for: {'; '.join(able)}")
        return (*lines, *unable)


def over(snapshots: Iterable[Snapshot]) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """The findings at the end of ``snapshots`` (oldest first), and those that were past by then."""
    watch = Watch()
    for snapshot in snapshots:
        watch.look(snapshot)
    return watch.findings, tuple(watch.past)


def _subject_gone(sign: Sign, look: Look) -> bool:
    """Whether the process has ended; a device that is away may come back, and says nothing meanwhile."""
    process, device = sign.process, sign.device
    if process is None:
        return False
    if device is not None and (device.uuid not in look.devices or _asleep(sign, look)):
        return False
    who = (process.pid, process.create_time)
    if process.device_uuid is None:
        return False
    rows = look.of.get(who, ())
    return not rows if device is None else not any(row.device_uuid == device.uuid for row in rows)


def _asleep(sign: Sign, look: Look) -> bool:
    """Whether it is about a device that nobody asks, because that would wake it."""
    device = look.devices.get(sign.device.uuid) if sign.device is not None else None
    return device is not None and device.state == "asleep"


def _time(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)


def _moment(time: datetime.datetime | None) -> float:
    return time.timestamp() if time is not None else 0.0

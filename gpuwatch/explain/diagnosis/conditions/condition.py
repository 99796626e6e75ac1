"""What a condition is, how one is declared, its signs in samples, and its occurrences, which are built from these.

An occurrence has a level between 0 and 1 that rises while the condition holds and falls while it does not. It is
reported when the level reaches 1, and ends when it is 0 again. So a condition must hold for some time before it is
reported and be gone for some time before it ends, and noise around its threshold causes no series of events.
Unobserved time changes nothing.
"""

from __future__ import annotations

import datetime
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from gpuwatch.core.formatting.durations import rounded_duration, steady_duration
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.explain.diagnosis.conditions.sample_context import NumberStatistics, SampleContext
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule, finding, register

MIN_SAMPLES = 5
"""Samples in which a condition that needs time must have held, however far apart they are."""
_ROUNDING_ERROR = 1e-9
_FIRST_SAMPLE_SECONDS = 2.0
"""Seconds: what began so shortly before the first sample of all may have begun at any time before."""


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """What one sample says about one condition of one device, process or machine."""

    cause: str
    holds: bool | None = True
    """None: unknown from this sample (an idle device says nothing about its link)."""
    device: Device | None = None
    process: Process | None = None
    variant: str = ""
    """Distinguishes signs of the same condition, cause, device and process."""
    since: float | None = None
    """When it began, in seconds since the epoch, if that is known better than by the first sample in which it holds."""
    numbers: dict[str, float | None] = {}
    """Averaged over the samples in which it holds, without those that are None."""

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the condition."""
        process = (self.process.pid, self.process.create_time) if self.process is not None else None
        return (self.cause, self.device.uuid if self.device is not None else None, process, self.variant)


@dataclass(slots=True)
class Occurrence:
    """One condition of one subject, from the first sample in which it held until it ends."""

    sign: Sign
    """The latest sign in which the condition held."""
    since: float
    """Seconds since the epoch."""
    last_held: float
    """When it was last seen to hold."""
    report_after_seconds: float
    """Seconds for which it must hold."""
    end_after_seconds: float
    """Seconds for which it must be gone before it ends."""
    level: float = 0.0
    """0 to 1, see above."""
    reported: bool = False
    """Whether its level has reached 1."""
    observed_seconds: float = 0.0
    """Observed seconds from its start to the last sample in which it held."""
    held_seconds: float = 0.0
    """Observed seconds in which it held."""
    unknown_seconds: float = 0.0
    """Seconds since the last sample from which it was known."""
    unobserved_seconds: float = 0.0
    """Seconds without samples since it began."""
    known_before_seconds: float = 0.0
    """Seconds from its start to its first sample, if the start is known from elsewhere."""
    may_be_older: bool = False
    """Whether it may have begun earlier: it held in the first sample from which it could be known."""
    samples: int = 0
    """Samples from its start to the last one in which it held."""
    holding_samples: int = 0
    """Samples in which it held."""
    first_sign: tuple[float, Sign] | None = None
    """The first sign that held, after the time of its sample."""
    statistics: dict[str, NumberStatistics] = field(default_factory=dict)
    """By name: the numbers of its signs in which it held, without those that no sign had."""
    _since_held: tuple[int, float] = (0, 0.0)
    """Samples since it last held, and observed seconds: they belong to it if it holds again."""
    _held_in_latest: bool | None = None

    @property
    def device(self) -> Device:
        """The device; only for conditions of devices."""
        assert self.sign.device is not None
        return self.sign.device

    @property
    def process(self) -> Process:
        """The process; only for conditions of processes."""
        assert self.sign.process is not None
        return self.sign.process

    @property
    def has_ended(self) -> bool:
        return self.level <= _ROUNDING_ERROR and self.is_ending

    @property
    def is_ending(self) -> bool:
        """Whether it did not hold in the latest sample that says so."""
        return self._held_in_latest is False

    @property
    def held_share(self) -> float:
        """Share of its samples in which it held, 0 to 1."""
        return self.holding_samples / self.samples if self.samples else 0.0

    @classmethod
    def from_first_sign(
        cls, sign: Sign, at: float, report_after_seconds: float, end_after_seconds: float, *, first: bool
    ) -> Occurrence:
        """One that holds in a sample at ``at``.

        ``first``: nothing was known of it in an earlier sample, so that it may have begun before.
        """
        occurrence = cls(sign, at, at, report_after_seconds, end_after_seconds)
        known = sign.since is not None and at - sign.since >= _FIRST_SAMPLE_SECONDS
        if sign.since is not None and sign.since < at and (known or not first):
            occurrence.set_start(sign.since)
        occurrence.may_be_older = first and not known
        return occurrence

    def begins_with_sample(self, at: float) -> bool:
        """Whether it began within two seconds of the sample at ``at``."""
        return abs(self.since - at) < _FIRST_SAMPLE_SECONDS

    def begins_anew_with(self, sign: Sign) -> bool:
        """Whether ``sign`` says that it began anew, after samples from which it was not known whether it held."""
        return bool(self.unknown_seconds) and sign.since is not None and sign.since > self.last_held

    def set_start(self, since: float, *, may_be_older: bool = False) -> None:
        """Sets a start before its first sample; time that has already passed counts for ``report_after_seconds``."""
        self.known_before_seconds += self.since - since
        self.since, self.may_be_older = since, may_be_older
        if self.report_after_seconds > 0:
            self.level = min(1.0, self.level + self.known_before_seconds / self.report_after_seconds)

    def mean_text(self, name: str, unit: str) -> str:
        """``1410 MHz``: the mean of a number while it held; empty if it was never read."""
        number = self.statistics.get(name)
        return f"{number.mean:.0f} {unit}" if number is not None else ""

    def first_and_latest(self, text_of: Callable[[Device], str]) -> Iterator[str]:
        """``text_of`` the device in the latest and in the first sample in which it held, each with its time."""
        latest = text_of(self.device)
        if self.first_sign is None or self.samples < 2:
            yield latest
            return
        at, sign = self.first_sign
        if latest:
            yield f"latest reading, at {_clock_time(self.last_held)}: {latest}"
        if sign.device is not None and (before := text_of(sign.device)) not in (latest, ""):
            yield f"first reading, at {_clock_time(at)}: {before}"

    @property
    def duration_text(self) -> str:
        """``3 min``: from its start to the last sample in which it held; for events."""
        return rounded_duration(self.last_held - self.since)

    def time_text(self, at: float) -> str:
        """``since 10:02:31, for 4 min: in 80 % of the samples, 3 min in all``, and how much was not observed.

        Coarse, so that the line of a finding seldom changes. ``at least since``: it held in the first sample, and
        nothing is known of the time before.
        """
        if self.samples < 2 and not self.known_before_seconds:
            return "seen in one sample so far"
        whole = (self.last_held if self.is_ending else at) - self.since
        text = f"{'at least ' * self.may_be_older}since {_clock_time(self.since)}, for {steady_duration(whole)}"
        if self.is_ending:
            text = f"from {_clock_time(self.since)} to {_clock_time(self.last_held)}, for {rounded_duration(whole)}"
        if self.held_share < 0.95:
            text += f": in {self.held_share * 100:.0f} % of the samples"
            first = self.since + self.known_before_seconds
            known_before = f" since {_clock_time(first)}" if self.known_before_seconds else ""
            text += known_before or f", {steady_duration(self.held_seconds)} in all"
        elif self.observed_seconds + self.known_before_seconds < 0.8 * (whole - self.unobserved_seconds):
            text += f", {steady_duration(self.observed_seconds + self.known_before_seconds)} of which could be judged"
        if self.unobserved_seconds:
            text += f"; not observed for {steady_duration(self.unobserved_seconds)} of it"
        return text

    def add(self, sign: Sign | None, at: float, seconds: float, samples: int = 1) -> None:
        """Adds a sample at ``at``, ``seconds`` of observed time after the previous one; it stands for ``samples``.

        ``sign`` None: it did not hold. An interval counts only if the samples at both ends agree.
        """
        holds = sign.holds if sign is not None else False
        if holds is None:
            self.unknown_seconds += seconds
            return
        self.unknown_seconds = 0.0
        self._since_held = (self._since_held[0] + samples, self._since_held[1] + seconds)
        if holds and sign is not None:
            self.sign, self.last_held = sign, at
            self.first_sign = self.first_sign or (at, sign)
            self.samples += self._since_held[0]
            self.observed_seconds += self._since_held[1]
            self._since_held = (0, 0.0)
            self.holding_samples += samples
            self.held_seconds += seconds
            for name, value in sign.numbers.items():
                if value is not None:
                    self.statistics.setdefault(name, NumberStatistics()).add(value)
        before, self._held_in_latest = self._held_in_latest, holds
        at_once = self.report_after_seconds <= 0
        if holds and (before or at_once):
            self.level = 1.0 if at_once else min(1.0, self.level + seconds / self.report_after_seconds)
        elif not holds and (before is False or self.end_after_seconds <= 0):
            self.level = 0.0 if self.end_after_seconds <= 0 else max(0.0, self.level - seconds / self.end_after_seconds)
        if self.level >= 1.0 - _ROUNDING_ERROR and (self.holding_samples >= MIN_SAMPLES or at_once):
            self.reported = True


def _clock_time(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S")


class Condition(ABC):
    """A problem that lasts: how a sample shows it, and the finding while it holds.

    ``signs`` yields a sign for each subject for which it holds, and one with ``holds=None`` if that is unknown; for
    all others it does not hold. Its onset and end are events: ``NAME.began``, ``NAME.ended``.
    """

    name: ClassVar[str]
    causes: ClassVar[tuple[str, ...]]
    looks_for: ClassVar[str] = ""
    """Named in the finding that no problems were found."""
    needed_metrics: ClassVar[tuple[str, ...]] = ()
    """Device metrics without which it cannot be judged."""
    judges_processes: ClassVar[bool] = False
    """Whether it judges processes, which some sources do not report."""
    report_after_seconds: ClassVar[float] = 0.0
    """Seconds for which it must hold before it is reported."""
    end_after_seconds: ClassVar[float] = 0.0
    """Seconds for which it must be gone before it ends."""
    forget_after_seconds: ClassVar[float] = 900.0
    """Seconds of unknown samples after which it ends, too."""
    reported_from_one_sample: ClassVar[bool] = False
    """Whether it is also reported from a single sample (``gpuwatch snapshot``)."""
    judges_lost_gpus: ClassVar[bool] = False
    """Whether it also judges GPUs that do not answer; for other conditions these are unknown."""

    @abstractmethod
    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """The signs of this sample."""

    @abstractmethod
    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """The finding, whose title is also the text of the event; None if it is not worth reporting."""

    def make_finding(
        self, occurrence: Occurrence, severity: Severity, certainty: Certainty = "fact", **fields: Any
    ) -> Finding:
        """A finding with the cause, device and process of the occurrence; ``fields`` as in :func:`finding`."""
        device, process = occurrence.sign.device, occurrence.sign.process
        subject = {"device_uuid": device and device.uuid, "pid": process and process.pid}
        return finding(occurrence.sign.cause, severity, certainty, **(subject | fields))

    def is_listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        """Whether it is a finding; otherwise it only has events."""
        return True

    def new_event_texts(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        """Texts of what happened since the last event; each becomes an event of its own."""
        return ()

    def is_unknown(self, sign: Sign, context: SampleContext) -> bool:
        """Whether a sample without this sign says nothing, because its GPU is asleep, lost or not listed."""
        if sign.device is None or self.judges_lost_gpus:
            return False
        device = context.devices.get(sign.device.uuid)
        return device is None or device.state != "ok"

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """The text of the event at its end; empty for none."""
        return f"no longer: {finding.title} ({occurrence.duration_text})"


def condition(declared: type[Condition]) -> type[Condition]:
    """Declares a condition: a rule over samples."""
    register(Rule(declared.name, declared.causes, declared(), "samples"))
    return declared


def conditions() -> list[Condition]:
    """All conditions, by module and in the order of their declaration there, whichever module was imported first."""
    return sorted((entry.find for entry in RULES["samples"]), key=lambda condition: type(condition).__module__)

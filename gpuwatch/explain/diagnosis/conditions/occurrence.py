"""How long a condition has held, in words too, and when that is long enough to report it.

An occurrence has a level between 0 and 1 that rises while the condition holds and falls while it does not. It is
reported when the level reaches 1, and ends when it is 0 again. So a condition must hold for some time before it is
reported and be gone for some time before it ends, and noise around its threshold causes no series of events.
Unobserved time changes nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from gpuwatch.core.formatting.durations import rounded_duration, steady_duration
from gpuwatch.core.model.snapshot import Device, Process

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
    about: str = ""
    """Distinguishes conditions of the same cause and subject."""
    since: float | None = None
    """When it began, in seconds since the epoch, if that is known better than by the first sample in which it holds."""
    numbers: dict[str, float | None] = {}
    """Averaged over the samples in which it holds, without those that are None."""

    @property
    def key(self) -> tuple[object, ...]:
        """Identity of the condition."""
        who = (self.process.pid, self.process.create_time) if self.process is not None else None
        return (self.cause, self.device.uuid if self.device is not None else None, who, self.about)


@dataclass(slots=True)
class NumberStatistics:
    """Statistics of a number over the samples in which a condition held."""

    first: float
    last: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")
    total: float = 0.0
    count: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.count

    def add(self, value: float) -> None:
        self.last = value
        self.least, self.most = min(self.least, value), max(self.most, value)
        self.total += value
        self.count += 1


@dataclass(slots=True)
class Occurrence:
    """One condition of one subject, from the first sample in which it held until it ends."""

    sign: Sign
    """The latest sign in which the condition held."""
    since: float
    """Seconds since the epoch."""
    last: float
    """When it was last seen to hold."""
    appears: float
    """Seconds for which it must hold."""
    leaves: float
    """Seconds for which it must be gone before it ends."""
    level: float = 0.0
    reported: bool = False
    observed: float = 0.0
    """Observed seconds from its start to the last sample in which it held, as :attr:`samples`."""
    held: float = 0.0
    """Observed seconds in which it held."""
    unknown: float = 0.0
    """Seconds since the last sample from which it was known."""
    unobserved: float = 0.0
    """Seconds without samples since it began."""
    known: float = 0.0
    """Seconds from its start to its first sample, if the start is known from elsewhere."""
    at_least: bool = False
    """Whether it may have begun earlier: it held in the first sample from which it could be known."""
    samples: int = 0
    holding: int = 0
    first: tuple[float, Sign] | None = None
    """The first sign that held, after the time of its sample."""
    figures: dict[str, NumberStatistics] = field(default_factory=dict)
    """The numbers of its signs; none for one that none of them had."""
    _after: tuple[int, float] = (0, 0.0)
    """Samples since it last held, and seconds: they belong to it if it holds again."""
    _held_before: bool | None = None

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
    def over(self) -> bool:
        return self.level <= _ROUNDING_ERROR and self.leaving

    @property
    def leaving(self) -> bool:
        """Whether it did not hold in the latest sample that says so."""
        return self._held_before is False

    @property
    def share(self) -> float:
        """Share of its samples in which it held, 0 to 1."""
        return self.holding / self.samples if self.samples else 0.0

    @classmethod
    def first_seen(cls, sign: Sign, at: float, appears: float, leaves: float, *, first: bool) -> Occurrence:
        """One that holds in a sample at ``at``; ``first``: the first that says so, before which it may have begun."""
        made = cls(sign, at, at, appears, leaves)
        known = sign.since is not None and at - sign.since >= _FIRST_SAMPLE_SECONDS
        if sign.since is not None and sign.since < at and (known or not first):
            made.begin_at(sign.since)
        made.at_least = first and not known
        return made

    def begins_at(self, first: float) -> bool:
        """Whether it begins with the ``first`` sample of all, before which nothing was seen."""
        return abs(self.since - first) < _FIRST_SAMPLE_SECONDS

    def interrupted(self, sign: Sign) -> bool:
        """Whether ``sign`` says that it began anew, after samples from which it was not known whether it held."""
        return bool(self.unknown) and sign.since is not None and sign.since > self.last

    def begin_at(self, since: float, *, at_least: bool = False) -> None:
        """Sets a start before its first sample; time that has already passed counts for ``appears``."""
        self.known += self.since - since
        self.since, self.at_least = since, at_least
        if self.appears > 0:
            self.level = min(1.0, self.level + self.known / self.appears)

    def mean(self, name: str, unit: str) -> str:
        """``1410 MHz``: the mean of a number while it held; empty if it was never read."""
        figure = self.figures.get(name)
        return f"{figure.mean:.0f} {unit}" if figure is not None else ""

    def readings(self, of: Callable[[Device], str]) -> Iterator[str]:
        """What ``of`` says of the device in the latest and in the first sample in which it held: each of one moment."""
        latest = of(self.device)
        if self.first is None or self.samples < 2:
            yield latest
            return
        at, sign = self.first
        if latest:
            yield f"latest reading, at {_clock(self.last)}: {latest}"
        if sign.device is not None and (before := of(sign.device)) not in (latest, ""):
            yield f"first reading, at {_clock(at)}: {before}"

    @property
    def duration(self) -> str:
        """``3 min``, from the first to the last sample in which it held; for events."""
        return rounded_duration(self.last - self.since)

    def lasted(self, at: float) -> str:
        """``since 10:02:31, for 4 min: in 80 % of the samples, 3 min in all``, and how much was not observed.

        Coarse, so that the line of a finding seldom changes. ``at least since``: it held in the first sample, and
        nothing is known of the time before.
        """
        if self.samples < 2 and not self.known:
            return "seen in one sample so far"
        whole = (self.last if self.leaving else at) - self.since
        text = f"{'at least ' * self.at_least}since {_clock(self.since)}, for {steady_duration(whole)}"
        if self.leaving:
            text = f"from {_clock(self.since)} to {_clock(self.last)}, for {rounded_duration(whole)}"
        if self.share < 0.95:
            text += f": in {self.share * 100:.0f} % of the samples"
            first = self.since + self.known
            text += f" since {_clock(first)}" if self.known else f", {steady_duration(self.held)} in all"
        elif self.observed + self.known < 0.8 * (whole - self.unobserved):
            text += f", {steady_duration(self.observed + self.known)} of which could be judged"
        if self.unobserved:
            text += f"; not observed for {steady_duration(self.unobserved)} of it"
        return text

    def add(self, sign: Sign | None, at: float, seconds: float, samples: int = 1) -> None:
        """Adds a sample at ``at``, ``seconds`` of observed time after the previous one; it stands for ``samples``.

        ``sign`` None: it did not hold. An interval counts only if the samples at both ends agree.
        """
        holds = sign.holds if sign is not None else False
        if holds is None:
            self.unknown += seconds
            return
        self.unknown = 0.0
        self._after = (self._after[0] + samples, self._after[1] + seconds)
        if holds and sign is not None:
            self.sign, self.last = sign, at
            self.first = self.first or (at, sign)
            self.samples += self._after[0]
            self.observed += self._after[1]
            self._after = (0, 0.0)
            self.holding += samples
            self.held += seconds
            for name, value in sign.numbers.items():
                if value is not None:
                    self.figures.setdefault(name, NumberStatistics(value)).add(value)
        before, self._held_before = self._held_before, holds
        if holds and (before or self.appears <= 0):
            self.level = 1.0 if self.appears <= 0 else min(1.0, self.level + seconds / self.appears)
        elif not holds and (before is False or self.leaves <= 0):
            self.level = 0.0 if self.leaves <= 0 else max(0.0, self.level - seconds / self.leaves)
        if self.level >= 1.0 - _ROUNDING_ERROR and (self.holding >= MIN_SAMPLES or self.appears <= 0):
            self.reported = True


def _clock(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S")

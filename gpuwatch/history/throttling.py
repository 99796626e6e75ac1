"""Since when and for how long clocks were held down, by reason, from what the driver says at each look.

Reasons come and go by the second. One that is away for a moment only has not ended, and a power cap is
told only when it lasts: a GPU that works hard touches its limit all the time.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from gpuwatch.history.happened import Happened, of_device, span
from gpuwatch.model.snapshot import Device

SLOW_REASONS = frozenset({"hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake"})
"""Clock event reasons that take away what was paid for; a power cap and idling are everyday."""
WORDS = {
    "hw-slowdown": "hardware slowdown",
    "sw-thermal": "heat",
    "hw-thermal": "heat (hardware)",
    "hw-power-brake": "the power brake",
    "sw-power-cap": "its power limit",
    "applications-clocks": "the clocks set for applications",
    "sync-boost": "sync boost",
    "display-clocks": "the display",
}
_UNTOLD = frozenset({"", "none", "idle"})
_EPISODES = 400


class _Class(NamedTuple):
    """Reasons that are told of as one."""

    reasons: frozenset[str]
    told_after: float
    """Seconds that it must have lasted."""
    quiet: float
    """Seconds without it after which it has ended."""


_CLASSES = {
    "throttle": _Class(SLOW_REASONS, 0.0, 3.0),
    "power-cap": _Class(frozenset({"sw-power-cap"}), 10.0, 10.0),
}


class Episode(msgspec.Struct):
    """One reason on one device, from its onset on."""

    uuid: str
    reason: str
    began: float
    last: float
    """When it was seen last."""
    ended: float | None = None
    """When it had been away for long enough to say so; None while it lasts."""
    at_start: bool = False
    """Whether it was there already at the first look."""


class _Running(msgspec.Struct):
    began: float
    last: float
    reasons: set[str]
    at_start: bool
    told: bool = False


class Throttling:
    """What holds clocks down, on all devices."""

    def __init__(self) -> None:
        self.episodes: deque[Episode] = deque(maxlen=_EPISODES)
        """Every reason but idling, oldest onset first; those that last are among them."""
        self._lasting: dict[tuple[str, str], Episode] = {}
        self._classes: dict[tuple[str, str], _Running] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing holds a clock down, nor did a moment ago: while devices stay as they are, nothing happens."""
        return not self._lasting and not self._classes

    def look(self, device: Device, at: float, *, first: bool) -> list[Happened]:
        """What began and what ended since the look before."""
        reasons = device.get("clocks.event_reasons")
        if not isinstance(reasons, str):
            return []  # unknown is neither an onset nor an end
        now = frozenset(reasons.split("+")) - _UNTOLD
        self._note(device.uuid, now, at, first=first)
        found: list[Happened] = []
        for kind, one in _CLASSES.items():
            found += self._class(device, kind, one, now & one.reasons, at, first=first)
        return found

    def of(self, uuid: str, until: float) -> list[Episode]:
        """Episodes of a device as they were known at a moment, the latest onset first."""
        known = [one for one in self.episodes if one.uuid == uuid and one.began <= until]
        return [
            msgspec.structs.replace(
                one,
                last=min(one.last, until),
                ended=one.ended if one.ended is not None and one.ended <= until else None,
            )
            for one in reversed(known)
        ]

    def _note(self, uuid: str, now: frozenset[str], at: float, *, first: bool) -> None:
        for reason in now:
            episode = self._lasting.get((uuid, reason))
            if episode is None:
                episode = Episode(uuid, reason, at, at, at_start=first)
                self._lasting[uuid, reason] = episode
                self.episodes.append(episode)
            episode.last = at
        for key, episode in list(self._lasting.items()):
            quiet = _CLASSES["power-cap" if episode.reason == "sw-power-cap" else "throttle"].quiet
            if key[0] == uuid and episode.reason not in now and at - episode.last >= quiet:
                episode.ended = at
                del self._lasting[key]

    def _class(
        self, device: Device, kind: str, one: _Class, now: frozenset[str], at: float, *, first: bool
    ) -> list[Happened]:
        key = (device.uuid, kind)
        running = self._classes.get(key)
        if now:
            if running is None:
                running = self._classes[key] = _Running(at, at, set(now), first)
            running.last = at
            running.reasons |= now
            if not running.told and at - running.began >= one.told_after:
                running.told = True
                return [self._began(device, kind, running, at)]
        elif running is not None and at - running.last >= one.quiet:
            del self._classes[key]
            if running.told:
                lasted = span(running.last - running.began)
                text = f"is slowed no more; {_reasons(running.reasons)} lasted {lasted}"
                if kind == "power-cap":
                    text = f"is below its power limit again, after {lasted} at it"
                return [of_device(device, at, f"{kind}.ended", text, "good" if kind == "throttle" else "info")]
        return []

    @staticmethod
    def _began(device: Device, kind: str, running: _Running, at: float) -> Happened:
        since = " already when gpuwatch began" if running.at_start else ""
        if kind == "power-cap":
            lasted = "" if running.at_start else f" for {span(at - running.began)}"
            return of_device(device, at, "power-cap.began", f"has been held at its power limit{lasted}{since}", "info")
        return of_device(device, at, "throttle.began", f"is slowed by {_reasons(running.reasons)}{since}", "warning")


def _reasons(names: set[str]) -> str:
    return ", ".join(WORDS[name] for name in sorted(names))

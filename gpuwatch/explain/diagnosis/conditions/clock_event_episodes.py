"""When each clock event reason was active on each GPU, also those that are normal."""

from __future__ import annotations

from collections import deque

import msgspec

from gpuwatch.core.model.clock_event_reasons import POWER_CAP, clock_reasons
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.throttling import PowerCap, Thermal

_MAX_EPISODES = 400


class ClockEventEpisode(msgspec.Struct):
    """One clock event reason on one device, from its onset."""

    uuid: str
    reason: str
    began: float
    last: float
    """When it was last seen."""
    ended: float | None = None
    """When it had been absent long enough to be over; None while it lasts."""
    at_start: bool = False
    """Whether it was already present in the first sample."""


def _end_after_seconds(reason: str) -> float:
    return PowerCap.end_after_seconds if reason == POWER_CAP else Thermal.end_after_seconds


class ClockEventEpisodes:
    """When each clock event reason was active, on all devices: every reason except idling, including normal ones."""

    def __init__(self) -> None:
        self._episodes: deque[ClockEventEpisode] = deque(maxlen=_MAX_EPISODES)
        self._lasting: dict[tuple[str, str], ClockEventEpisode] = {}

    def observe(self, device: Device, at: float, *, first: bool) -> None:
        """Adds a sample of a device. Unknown reasons are neither an onset nor an end."""
        reasons = clock_reasons(device)
        if reasons is None or not (reasons or self._lasting):
            return
        for reason in reasons:
            episode = self._lasting.get((device.uuid, reason))
            if episode is None:
                episode = ClockEventEpisode(device.uuid, reason, at, at, at_start=first)
                self._lasting[device.uuid, reason] = episode
                self._episodes.append(episode)
            episode.last = at
        for key, episode in list(self._lasting.items()):
            absent = key[0] == device.uuid and episode.reason not in reasons
            if absent and at - episode.last >= _end_after_seconds(episode.reason):
                episode.ended = at
                del self._lasting[key]

    def prepend(self, earlier: ClockEventEpisodes) -> None:
        """Adds the episodes of an earlier time; one that was still active then continues here."""
        for key, previous in earlier._lasting.items():
            here = next((episode for episode in self._episodes if (episode.uuid, episode.reason) == key), None)
            if here is not None and here.began - previous.last < _end_after_seconds(previous.reason):
                here.began, here.at_start = previous.began, previous.at_start
                earlier._episodes.remove(previous)
            elif here is None:
                self._lasting[key] = previous
        self._episodes = deque((*earlier._episodes, *self._episodes), maxlen=_MAX_EPISODES)

    def of_device(self, uuid: str, until: float) -> list[ClockEventEpisode]:
        """Episodes of a device as known at a moment, the latest onset first."""
        known = [episode for episode in self._episodes if episode.uuid == uuid and episode.began <= until]
        return [
            msgspec.structs.replace(
                episode,
                last=min(episode.last, until),
                ended=episode.ended if episode.ended is not None and episode.ended <= until else None,
            )
            for episode in reversed(known)
        ]

"""Memory of devices: nearly full, free again, given back, and when it would be full if it goes on growing."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from gpuwatch.formatting.units import size
from gpuwatch.history.happened import BAD_STATES, Happened, of_device, span
from gpuwatch.model.snapshot import Device

NEARLY_FULL = 0.95
_WELL_AGAIN = 0.90
_SOON_FULL = 1800.0
"""Seconds to full from which it is told."""
_WINDOW = 60.0
"""Seconds over which memory is watched growing."""
_LONG_ENOUGH = 20.0
_MOST_SAMPLES = 120
_SIGNIFICANT = 4.0
"""Growth over the window against how far samples lie off the line: less is noise."""
_LEAST_GROWTH = 0.005
"""Of the whole memory, over the window."""
_PARTS = 4
"""Growth must go on in each of so many parts of the window: one step is no trend."""
_FREED_SHARE = 0.05
_FREED_LEAST = 2**30
_FREED_PAUSE = 60.0
"""Seconds in which memory given back is told once: some programs take and give all the time."""


class Filling:
    """What the memory of each device does."""

    def __init__(self) -> None:
        self._past: dict[str, deque[tuple[float, float]]] = {}
        self._full: set[str] = set()
        self._told: dict[str, float] = {}
        """Used memory when it was told that it grows."""
        self._freed: dict[str, float] = {}

    def stay(self, at: float) -> bool:
        """All memory is as it was at the look before. False, and nothing done, where it grew until shortly before that:
        then :meth:`look` has to judge it."""
        if any(past[-1][1] > past[0][1] for past in self._past.values()):
            return False
        for past in self._past.values():
            past.append((at, past[-1][1]))
            while at - past[0][0] > _WINDOW:
                past.popleft()
        return True

    def look(self, device: Device, at: float, *, left: float) -> list[Happened]:
        """``left`` bytes were held by processes that went since the look before."""
        used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        uuid = device.uuid
        if used is None or not total or device.state in BAD_STATES:
            self._past.pop(uuid, None)
            return []
        past = self._past.setdefault(uuid, deque(maxlen=_MOST_SAMPLES))
        before = past[-1][1] if past else used
        past.append((at, used))
        while at - past[0][0] > _WINDOW:
            past.popleft()
        if uuid in self._told and used < self._told[uuid] - _LEAST_GROWTH * total:
            del self._told[uuid]  # something was freed: what follows is another story
        if used / total >= NEARLY_FULL and uuid not in self._full:
            self._full.add(uuid)
            self._told[uuid] = used
            text = f"memory is nearly full: {size(used)} of {size(total)}"
            # Everyday: TensorFlow maps nearly all that is free at its start.
            return [of_device(device, at, "memory.full", text, "info")]
        if used / total < _WELL_AGAIN and uuid in self._full:
            self._full.discard(uuid)
            text = f"memory is free again: {size(total - used)}"
            return [of_device(device, at, "memory.free", text, "good")]
        found = self._given_back(device, at, before - used - left, used, total)
        if uuid not in self._told and uuid not in self._full:
            found += self._growing(device, at, past, used, total)
        return found

    def _given_back(self, device: Device, at: float, freed: float, used: float, total: float) -> list[Happened]:
        if freed < max(_FREED_LEAST, _FREED_SHARE * total):
            return []
        last = self._freed.get(device.uuid)
        if last is not None and at - last < _FREED_PAUSE:
            return []
        self._freed[device.uuid] = at
        text = f"memory: {size(freed)} given back by programs that go on, {size(used)} of {size(total)} used"
        return [of_device(device, at, "memory.freed", text, "info")]

    def _growing(
        self, device: Device, at: float, past: deque[tuple[float, float]], used: float, total: float
    ) -> list[Happened]:
        slope = trend(list(past), total)
        if slope is None or used / total < 0.5:
            return []
        seconds = (total - used) / slope
        if seconds > _SOON_FULL:
            return []
        self._told[device.uuid] = used
        text = (
            f"memory grows by {size(slope * 60)} a minute and would be full in {span(seconds)}: "
            f"{size(used)} of {size(total)}"
        )
        return [of_device(device, at, "memory.filling", text, "warning", "likely")]


def trend(samples: list[tuple[float, float]], total: float) -> float | None:
    """Bytes a second by which memory grows steadily; None where it does not, or noise is as large.

    A straight line through the samples (least squares), believed when it is long enough, rises well
    above the scatter, and rises in every part of the window.
    """
    if len(samples) < 8 or samples[-1][0] - samples[0][0] < _LONG_ENOUGH:
        return None
    if samples[-1][1] - samples[0][1] < _LEAST_GROWTH * total / 2:
        return None
    begun = samples[0][0]
    times = [at - begun for at, _ in samples]
    values = [value for _, value in samples]
    count, lasted = len(samples), times[-1]
    mean_time, mean = sum(times) / count, sum(values) / count
    spread = sum((time - mean_time) ** 2 for time in times)
    slope = sum((time - mean_time) * (value - mean) for time, value in zip(times, values, strict=True)) / spread
    growth = slope * lasted
    if growth < _LEAST_GROWTH * total:
        return None
    off = sum((value - mean - slope * (time - mean_time)) ** 2 for time, value in zip(times, values, strict=True))
    if growth < _SIGNIFICANT * (off / count) ** 0.5:
        return None
    places = [round(part * (count - 1) / _PARTS) for part in range(_PARTS + 1)]
    risen = [values[later] - values[earlier] for earlier, later in pairwise(places)]
    return slope if min(risen) > growth / _PARTS / 4 else None

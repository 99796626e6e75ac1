"""What changed on a machine in the minutes before a moment: processes, settings, readings, events.

Nothing here says what caused what: it is what somebody would look through first.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from gpuwatch.core.formatting.durations import lasted
from gpuwatch.core.formatting.text import printable
from gpuwatch.core.formatting.units import reading
from gpuwatch.core.model.metrics import BY_ID, METRICS, Unit
from gpuwatch.core.model.period import Change, ChangeKind
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.machine.history.gaps import INTERVALS, unobserved_limit
from gpuwatch.machine.recording.reader import Recording

LOOK_BACK = 600.0
"""Seconds before the moment that are looked at."""
_BEFORE = 60.0
"""Seconds whose mean is compared with that of the time before."""
_MOVING = frozenset({"clocks.event_reasons", "performance.state"})
_SETTINGS = tuple(
    spec.id
    for spec in METRICS
    if (spec.unit is Unit.NAME and spec.id not in _MOVING)
    or spec.id in ("power.limit_watts", "pcie.width", "nvlink.links_active", "mig.instances")
)
"""Readings that change when somebody or something sets them."""
_READINGS: dict[str, tuple[float, str]] = {
    "utilization.gpu_percent": (30.0, ""),
    "memory.used_bytes": (0.1, "memory.total_bytes"),
    "power.draw_watts": (0.2, "power.limit_watts"),
    "temperature.gpu_celsius": (8.0, ""),
    "clocks.sm_mhz": (0.15, "clocks.sm_max_mhz"),
}
"""By how much a reading must have changed to be named: in its unit, or as a share of another reading."""


def changes(recording: Recording, moment: float, uuid: str | None) -> Iterator[Change]:
    """What changed in the :data:`LOOK_BACK` seconds before ``moment``, oldest first.

    ``uuid``: the GPU whose readings are compared; None: all.
    """
    begin = moment - LOOK_BACK
    found = [*_events(recording, begin, moment), *_gaps(recording, begin, moment)]
    before, after = recording.at(begin), recording.at(moment)
    if before is not None and after is not None and before.at < after.at:
        last = before.snapshot
        for kept in recording.snapshots(begin, moment):
            now = kept.snapshot
            if now.devices is not last.devices or now.driver is not last.driver:
                found += _settings(last, now)
            last = now
        devices = [device for device in after.snapshot.devices if uuid in (None, device.uuid)]
        found += _readings(recording, begin, moment, devices)
    yield from sorted(found, key=lambda change: change.at)


def _events(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    for event in recording.events():
        if begin <= event.at < moment:
            kind: ChangeKind = "process" if event.kind.startswith("process.") else "event"
            yield _change(event.at, "recording" if event.kind.startswith("recording.") else kind, event.text)


def _gaps(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    first, _ = recording.extent()
    interval = max((run.interval for run in recording.runs), default=1.0)
    longer = unobserved_limit(interval)
    if first - begin > longer:
        unknown = lasted(first - begin)
        yield _change(first, "recording", f"the recording begins: nothing is known of the {unknown} before")
    for since, until in recording.gaps_of_blocks(max(begin, first), moment):
        if until - since > longer:
            yield _change(until, "recording", f"nothing was recorded for {lasted(until - since)} before")


def _settings(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    at = after.taken_at.timestamp()
    old, new = (snapshot.driver.version if snapshot.driver is not None else None for snapshot in (before, after))
    if old != new:
        yield _change(at, "setting", f"driver {printable(old or 'unknown')} → {printable(new or 'unknown')}")
    for device in after.devices:
        known = before.device(device.uuid)
        if known is None:
            yield _change(at, "setting", f"GPU {device.index} was added")
            continue
        for name in _SETTINGS:
            old_value, new_value = known.get(name), device.get(name)
            if not isinstance(old_value, Missing) and not isinstance(new_value, Missing) and old_value != new_value:
                yield _change(at, "setting", f"GPU {device.index}: {_named(name)} {_shown(name, known, device)}")
    for device in before.devices:
        if after.device(device.uuid) is None:
            yield _change(at, "setting", f"GPU {device.index} is no longer listed")


def _shown(name: str, before: Device, after: Device) -> str:
    return " → ".join(printable(reading(BY_ID[name], device.get(name))) for device in (before, after))


def _named(name: str) -> str:
    title = BY_ID[name].title
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def _readings(recording: Recording, begin: float, moment: float, devices: list[Device]) -> Iterator[Change]:
    interval = max((run.interval for run in recording.runs), default=1.0)
    since = moment - max(_BEFORE, INTERVALS * interval)
    sums: dict[tuple[str, str], list[float]] = {}
    for times, columns in recording.numbers(begin, moment, frozenset(_READINGS)):
        for key, values in columns.items():
            total = sums.setdefault(key, [0.0, 0.0, 0.0, 0.0])
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    place = 0 if at < since else 2
                    total[place] += value
                    total[place + 1] += 1
    for device in devices:
        for name, (least, whole) in _READINGS.items():
            total = sums.get((device.uuid, name), [0.0, 0.0, 0.0, 0.0])
            of = device.number(whole) if whole else 1.0
            if not total[1] or not total[3] or not of:
                continue
            old, new = total[0] / total[1], total[2] / total[3]
            if abs(new - old) >= least * of:
                was, now = (reading(BY_ID[name], value) for value in (old, new))
                text = f"GPU {device.index}: {_named(name)} {was} → {now} (mean of the last {moment - since:.0f} s)"
                yield _change(moment, "reading", text)


def _change(at: float, kind: ChangeKind, text: str) -> Change:
    return Change(at=datetime.datetime.fromtimestamp(at, datetime.UTC), kind=kind, text=text)

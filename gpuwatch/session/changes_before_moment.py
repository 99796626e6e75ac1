"""What changed in a recording shortly before a moment: events, settings, readings, and where nothing was recorded."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.reading_text import reading_text
from gpuwatch.core.formatting.sentences import as_clause
from gpuwatch.core.model.metrics import BY_ID, METRICS, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.recorded_period import Change, ChangeKind
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc import utc
from gpuwatch.machine.history.sample_gaps import MIN_GAP_INTERVALS, unobserved_limit
from gpuwatch.machine.recording.reader import Recording

LOOK_BACK_SECONDS = 600.0
"""Seconds before the moment that are looked at."""
_COMPARED_SECONDS = 60.0
"""Seconds whose mean is compared with that of the time before."""
_VOLATILE_METRICS = frozenset({"clocks.event_reasons", "performance.state"})
_SETTING_METRICS = tuple(
    spec.id
    for spec in METRICS
    if (spec.unit is Unit.NAME and spec.id not in _VOLATILE_METRICS)
    or spec.id in ("power.limit_watts", "pcie.width", "nvlink.links_active", "mig.instances")
)
"""Readings that change when somebody or something sets them."""
_MIN_READING_CHANGES: dict[str, tuple[float, str]] = {
    "utilization.gpu_percent": (30.0, ""),
    "memory.used_bytes": (0.1, "memory.total_bytes"),
    "power.draw_watts": (0.2, "power.limit_watts"),
    "temperature.gpu_celsius": (8.0, ""),
    "clocks.sm_mhz": (0.15, "clocks.sm_max_mhz"),
}
"""By how much a reading must have changed to be named: in its unit, or as a share of another reading."""


def changes_before(recording: Recording, moment: float, uuid: str | None) -> Iterator[Change]:
    """What changed in the :data:`LOOK_BACK_SECONDS` seconds before ``moment``, oldest first.

    Nothing here says what caused what: it is what somebody would look through first.
    ``uuid``: the GPU whose readings are compared; None: all.
    """
    begin = moment - LOOK_BACK_SECONDS
    all_changes = [*_event_changes(recording, begin, moment), *_recording_gap_changes(recording, begin, moment)]
    first_sample, last_sample = recording.at(begin), recording.at(moment)
    if first_sample is not None and last_sample is not None and first_sample.at < last_sample.at:
        previous = first_sample.snapshot
        for sample in recording.snapshots(begin, moment):
            current = sample.snapshot
            if current.devices is not previous.devices or current.driver is not previous.driver:
                all_changes += _setting_changes(previous, current)
            previous = current
        devices = [device for device in last_sample.snapshot.devices if uuid in (None, device.uuid)]
        all_changes += _reading_changes(recording, begin, moment, devices)
    yield from sorted(all_changes, key=lambda change: change.at)


def _event_changes(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    for event in recording.events():
        if begin <= event.at < moment:
            kind: ChangeKind = "process" if event.kind.startswith("process.") else "event"
            yield _change(event.at, "recording" if event.kind.startswith("recording.") else kind, event.text)


def _recording_gap_changes(recording: Recording, begin: float, moment: float) -> Iterator[Change]:
    recording_begin, _ = recording.extent()
    max_gap = unobserved_limit(recording.interval)
    if recording_begin - begin > max_gap:
        unknown_duration = hours_minutes(recording_begin - begin)
        yield _change(
            recording_begin,
            "recording",
            f"the recording begins here; what happened in the preceding {unknown_duration} is unknown",
        )
    for since, until in recording.gaps_of_blocks(max(begin, recording_begin), moment):
        if until - since > max_gap:
            yield _change(until, "recording", f"nothing was recorded in the preceding {hours_minutes(until - since)}")


def _setting_changes(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    at = after.taken_at.timestamp()
    old_version, new_version = (
        snapshot.driver.version if snapshot.driver is not None else None for snapshot in (before, after)
    )
    if old_version != new_version:
        yield _change(
            at, "setting", f"driver {printable(old_version or 'unknown')} → {printable(new_version or 'unknown')}"
        )
    for device in after.devices:
        earlier = before.device(device.uuid)
        if earlier is None:
            yield _change(at, "setting", f"GPU {device.index} was added")
            continue
        for metric in _SETTING_METRICS:
            old_value, new_value = earlier.get(metric), device.get(metric)
            if not isinstance(old_value, Missing) and not isinstance(new_value, Missing) and old_value != new_value:
                values_text = " → ".join(
                    printable(reading_text(BY_ID[metric], value)) for value in (old_value, new_value)
                )
                yield _change(at, "setting", f"GPU {device.index}: {as_clause(BY_ID[metric].title)} {values_text}")
    for device in before.devices:
        if after.device(device.uuid) is None:
            yield _change(at, "setting", f"GPU {device.index} is no longer listed")


def _reading_changes(recording: Recording, begin: float, moment: float, devices: list[Device]) -> Iterator[Change]:
    compared_since = moment - max(_COMPARED_SECONDS, MIN_GAP_INTERVALS * recording.interval)
    sums_by_key: dict[tuple[str, str], list[float]] = {}
    for times, columns in recording.numbers(begin, moment, frozenset(_MIN_READING_CHANGES)):
        for key, values in columns.items():
            sums_and_counts = sums_by_key.setdefault(key, [0.0, 0.0, 0.0, 0.0])
            for at, value in zip(times, values, strict=True):
                if value is not None:
                    offset = 0 if at < compared_since else 2
                    sums_and_counts[offset] += value
                    sums_and_counts[offset + 1] += 1
    for device in devices:
        for name, (min_change, reference_metric) in _MIN_READING_CHANGES.items():
            sums_and_counts = sums_by_key.get((device.uuid, name), [0.0, 0.0, 0.0, 0.0])
            reference = device.number(reference_metric) if reference_metric else 1.0
            if not sums_and_counts[1] or not sums_and_counts[3] or not reference:
                continue
            old_mean, new_mean = sums_and_counts[0] / sums_and_counts[1], sums_and_counts[2] / sums_and_counts[3]
            if abs(new_mean - old_mean) >= min_change * reference:
                old_text, new_text = (reading_text(BY_ID[name], value) for value in (old_mean, new_mean))
                title = f"GPU {device.index}: {as_clause(BY_ID[name].title)}"
                yield _change(
                    moment,
                    "reading",
                    f"{title} {old_text} → {new_text} (mean of the last {moment - compared_since:.0f} s)",
                )


def _change(at: float, kind: ChangeKind, text: str) -> Change:
    return Change(at=utc(at), kind=kind, text=text)

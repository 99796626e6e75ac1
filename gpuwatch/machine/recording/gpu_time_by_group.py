"""GPU time of a recording as a document, by user, job, container, program, framework or process.

Of hours that are stored it is read, of others it is counted from their samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

from gpuwatch import __version__
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.command_lines import program_in_command
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.gpu_time_usage import GroupBy, Usage, UsageDevice, UsageGap, UsageGroup
from gpuwatch.core.model.reading import max_known
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.machine.history.sample_gaps import unobserved_limit
from gpuwatch.machine.recording.gpu_time_and_energy import (
    HOUR_SECONDS,
    DeviceTime,
    GpuTime,
    GpuTimeMeter,
    ProcessTime,
    hour_of,
    merged_times,
)
from gpuwatch.machine.recording.reader import OPEN_BLOCK, Recording
from gpuwatch.machine.recording.time_expressions import time_text

_MAX_GAPS_LISTED = 10
"""Gaps that are listed."""
_CONTAINERS = ("pod ", "container ")


def _program(process: ProcessTime) -> str | None:
    return program_in_command(printable(process.command or process.name or "")) or None


_GROUP_KEYS: dict[GroupBy, Callable[[ProcessTime], object]] = {
    "user": lambda process: process.user,
    "job": lambda process: process.container,
    "container": lambda process: process.container if (process.container or "").startswith(_CONTAINERS) else None,
    "command": _program,
    "framework": lambda process: process.framework,
    "process": lambda process: (process.pid, process.create_time),
}


def gpu_usage(
    recording: Recording,
    begin: float | None,
    end: float | None,
    by: GroupBy,
    progress: Callable[[float], None] = lambda share: None,
) -> Usage:
    """GPU time from ``begin`` to ``end`` (None: of the recording). Raises UsageError if nothing was recorded."""
    first, last = recording.extent()
    since = first if begin is None else begin
    until = last if end is None else end
    if since > until and since <= last:
        raise UsageError(f"the start {time_text(since)} is after the end {time_text(until)}")
    if until < first or since > last:
        raise UsageError(
            f"nothing was recorded from {time_text(since)}{f' to {time_text(until)}' if end is not None else ' on'}",
            hint=f"{printable_path(recording.path)} has {time_text(first)} to {time_text(last)}",
        )
    # Of stored hours where they are whole, else of the samples. What was recorded twice, as the clock was set back,
    # is counted twice.
    hours = recording.hours(since, until)  # damaged ones are counted again
    time = merged_times([*hours.values(), *_count_samples(recording, since, until, hours.keys(), progress)])
    newest = recording.at(until)
    found = [_usage_group(members, time, by) for members in group_by(time.processes, _GROUP_KEYS[by]).values()]
    found.sort(key=lambda group: (-group.gpu_hours_held, -(group.gpu_hours_used or 0.0), -group.processes))
    return Usage(
        source=printable_path(recording.path),
        host=newest.snapshot.host.hostname if newest is not None else None,
        simulated=time.simulated,
        gpuwatch_version=__version__,
        by=by,
        begin=utc_datetime(since),
        end=utc_datetime(until),
        hours=(until - since) / HOUR_SECONDS,
        hours_recorded=time.seconds / HOUR_SECONDS,
        gaps=tuple(_gaps(recording, since, until)),
        total=_usage_group(time.processes, time, None),
        groups=tuple(found),
        devices=tuple(
            _usage_device(device, time)
            for device in sorted(time.devices, key=lambda device: (device.index, device.uuid))
        ),
        mig=any(process.mig_instance is not None for process in time.processes),
        graphics_processes=time.graphics,
        notes=tuple(_notes(recording, since, until)),
    )


def _usage_group(members: list[ProcessTime], time: GpuTime, by: GroupBy | None) -> UsageGroup:
    indices = {device.uuid: device.index for device in time.devices}
    process_seconds = sum(member.process_seconds for member in members)
    known = sum(member.own_seconds + member.shared_seconds for member in members)
    used = sum(member.used_seconds for member in members)
    energy_seconds = sum(member.energy_seconds for member in members)
    merged = sum(member.more for member in members)
    one_process = not merged and len({(member.pid, member.create_time) for member in members}) == 1
    return UsageGroup(
        user=_common_value(member.user for member in members),
        container=_common_value(member.container for member in members),
        command=_common_value(map(_program, members)),
        framework=_common_value(member.framework for member in members),
        pid=members[0].pid if one_process else None,
        unreadable=by is not None and all(member.create_time is None for member in members),
        gpus=tuple(sorted({indices[member.device_uuid] for member in members if member.device_uuid in indices})),
        processes=len({(member.pid, member.create_time) for member in members if member.samples}) + merged,
        gpu_hours_held=sum(member.gpu_seconds for member in members) / HOUR_SECONDS,
        gpu_hours_used=used / HOUR_SECONDS if known else None,
        process_hours=process_seconds / HOUR_SECONDS,
        process_hours_shared=sum(member.shared_seconds for member in members) / HOUR_SECONDS,
        gpu_hours_unknown=max(process_seconds - known, 0.0) / HOUR_SECONDS,
        sm_percent_mean=100 * used / known if known else None,
        sm_percent_max=max_known(member.sm_percent_max for member in members),
        memory_peak_bytes=max_known(member.memory_peak_bytes for member in members),
        energy_joules=sum(member.energy_joules for member in members) if energy_seconds else None,
        energy_gpu_hours=energy_seconds / HOUR_SECONDS,
        energy_sampled_gpu_hours=sum(member.sampled_seconds for member in members) / HOUR_SECONDS,
    )


def _usage_device(device: DeviceTime, time: GpuTime) -> UsageDevice:
    processes = [process for process in time.processes if process.device_uuid == device.uuid]
    known = sum(process.own_seconds + process.shared_seconds for process in processes)
    used = sum(process.used_seconds for process in processes) / HOUR_SECONDS
    return UsageDevice(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        hours_recorded=device.seconds / HOUR_SECONDS,
        hours_held=device.held_seconds / HOUR_SECONDS,
        hours_used=used if known or not device.held_seconds else None,
        hours_held_idle=device.idle_seconds / HOUR_SECONDS,
        hours_held_unknown=device.unknown_seconds / HOUR_SECONDS,
        hours_free=max(device.seconds - device.held_seconds, 0.0) / HOUR_SECONDS,
        energy_joules=device.energy_joules if device.energy_seconds else None,
        energy_sampled=device.sampled_seconds > 0,
        energy_free_joules=device.free_joules if device.energy_seconds else None,
        processes_unsampled=device.unsampled_processes,
        hours_unsampled=device.unsampled_seconds / HOUR_SECONDS,
    )


def _gaps(recording: Recording, begin: float, end: float) -> Iterator[UsageGap]:
    """The longest gaps from ``begin`` to ``end``, in the order of time."""
    longer = unobserved_limit(recording.interval)
    gaps = [gap for gap in recording.gaps_of_blocks(begin, end) if gap[1] - gap[0] > longer]
    longest = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_MAX_GAPS_LISTED]
    for first, last in sorted(longest):
        yield UsageGap(begin=utc_datetime(first), end=utc_datetime(last))


def _notes(recording: Recording, begin: float, end: float) -> Iterator[str]:
    yield from (f"the recording is {name}: {printable(text)}" for name, text in recording.notes.items())
    for event in recording.events():
        if event.kind == "clock.set" and begin <= event.at <= end:
            yield f"{time_text(event.at)}: {printable(event.text)}; time that was recorded twice is counted twice"
    if recording.damage:
        yield f"{recording.damage.text(recording.samples)} (gpuwatch record check)"


def _common_value(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _count_samples(
    recording: Recording, begin: float, end: float, stored_hours: Collection[int], progress: Callable[[float], None]
) -> Iterable[GpuTime]:
    """The GPU time of samples whose hour is not stored; the samples that are in no block yet always.

    ``progress``: called with the share of the samples that was read.
    """
    meter = GpuTimeMeter(recording.interval)
    blocks = recording.recorded_blocks()
    counted_blocks = []
    for number, first, last, _ in blocks:
        hours = range(hour_of(first), hour_of(last) + 1, HOUR_SECONDS)
        missing = number == OPEN_BLOCK or not all(hour in stored_hours for hour in hours)
        counted_blocks.append(first <= end and last >= begin and missing)
    read_blocks = 0
    for place, (number, _, _, count) in enumerate(blocks):
        # With the block before it, whose last sample begins the first interval.
        if not any(counted_blocks[place : place + 2]):
            continue
        for decoder in islice(recording.samples_of_block(number), count):
            inside = begin < decoder.at <= end and (number == OPEN_BLOCK or hour_of(decoder.at) not in stored_hours)
            meter.add(decoder.snapshot(), counted=counted_blocks[place] and inside)
        read_blocks += 1
        progress(read_blocks / max(sum(counted_blocks), 1))
    return meter.pop_hours().values()

"""GPU time of a recording as a document, by user, job, container, program, framework or process."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator

from gpuwatch import __version__
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.short_names import program_of
from gpuwatch.core.formatting.terminal import file_name
from gpuwatch.core.formatting.text import printable
from gpuwatch.core.model.usage import By, Usage, UsageDevice, UsageGap, UsageGroup
from gpuwatch.machine.history.gaps import unobserved_limit
from gpuwatch.machine.recording.gpu_hours import gpu_time
from gpuwatch.machine.recording.gpu_time import DeviceTime, GpuTime, ProcessTime
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.time_expressions import shown

_HOUR = 3600.0
_GAPS = 10
"""Gaps that are listed."""
_CONTAINERS = ("pod ", "container ")


def _program(one: ProcessTime) -> str | None:
    return program_of(printable(one.command or one.name or "")) or None


_KEYS: dict[By, Callable[[ProcessTime], object]] = {
    "user": lambda one: one.user,
    "job": lambda one: one.container,
    "container": lambda one: one.container if (one.container or "").startswith(_CONTAINERS) else None,
    "command": _program,
    "framework": lambda one: one.framework,
    "process": lambda one: (one.pid, one.create_time),
}


def usage(
    recording: Recording,
    begin: float | None,
    end: float | None,
    by: By,
    progress: Callable[[float], None] = lambda share: None,
) -> Usage:
    """The GPU time from ``begin`` to ``end``; None: from its begin, to its end. UsageError if nothing was recorded."""
    first, last = recording.extent()
    since = first if begin is None else begin
    until = last if end is None else end
    if since > until and since <= last:
        raise UsageError(f"the start {shown(since)} is after the end {shown(until)}")
    if until < first or since > last:
        raise UsageError(
            f"nothing was recorded from {shown(since)}{f' to {shown(until)}' if end is not None else ' on'}",
            hint=f"{file_name(recording.path)} has {shown(first)} to {shown(last)}",
        )
    time = gpu_time(recording, since, until, progress)
    newest = recording.at(until)
    groups: dict[object, list[ProcessTime]] = {}
    for one in time.processes:
        groups.setdefault(_KEYS[by](one), []).append(one)
    found = [_group(members, time, by) for members in groups.values()]
    found.sort(key=lambda one: (-one.gpu_hours_held, -(one.gpu_hours_used or 0.0), -one.processes))
    return Usage(
        source=file_name(recording.path),
        host=newest.snapshot.host.hostname if newest is not None else None,
        simulated=time.simulated,
        gpuwatch_version=__version__,
        by=by,
        begin=_time(since),
        end=_time(until),
        hours=(until - since) / _HOUR,
        hours_recorded=time.seconds / _HOUR,
        gaps=tuple(_gaps(recording, since, until)),
        total=_group(time.processes, time, None),
        groups=tuple(found),
        devices=tuple(_device(one, time) for one in sorted(time.devices, key=lambda one: (one.index, one.uuid))),
        mig=any(one.mig_instance is not None for one in time.processes),
        graphics_processes=time.graphics,
        notes=tuple(_notes(recording, since, until)),
    )


def _group(members: list[ProcessTime], time: GpuTime, by: By | None) -> UsageGroup:
    indices = {one.uuid: one.index for one in time.devices}
    process_seconds = sum(one.process_seconds for one in members)
    known = sum(one.own_seconds + one.shared_seconds for one in members)
    used = sum(one.used_seconds for one in members)
    energy_seconds = sum(one.energy_seconds for one in members)
    more = sum(one.more for one in members)
    one_process = not more and len({(one.pid, one.create_time) for one in members}) == 1
    return UsageGroup(
        user=_common(one.user for one in members),
        container=_common(one.container for one in members),
        command=_common(map(_program, members)),
        framework=_common(one.framework for one in members),
        pid=members[0].pid if one_process else None,
        unreadable=by is not None and all(one.create_time is None for one in members),
        gpus=tuple(sorted({indices[one.device_uuid] for one in members if one.device_uuid in indices})),
        processes=len({(one.pid, one.create_time) for one in members if one.samples}) + more,
        gpu_hours_held=sum(one.gpu_seconds for one in members) / _HOUR,
        gpu_hours_used=used / _HOUR if known else None,
        process_hours=process_seconds / _HOUR,
        process_hours_shared=sum(one.shared_seconds for one in members) / _HOUR,
        gpu_hours_unknown=max(process_seconds - known, 0.0) / _HOUR,
        sm_percent_mean=100 * used / known if known else None,
        sm_percent_max=_most(one.sm_percent_max for one in members),
        memory_peak_bytes=_most(one.memory_peak_bytes for one in members),
        energy_joules=sum(one.energy_joules for one in members) if energy_seconds else None,
        energy_gpu_hours=energy_seconds / _HOUR,
        energy_sampled_gpu_hours=sum(one.sampled_seconds for one in members) / _HOUR,
    )


def _device(one: DeviceTime, time: GpuTime) -> UsageDevice:
    mine = [process for process in time.processes if process.device_uuid == one.uuid]
    known = sum(process.own_seconds + process.shared_seconds for process in mine)
    used = sum(process.used_seconds for process in mine) / _HOUR
    return UsageDevice(
        index=one.index,
        uuid=one.uuid,
        name=one.name,
        hours_recorded=one.seconds / _HOUR,
        hours_held=one.held_seconds / _HOUR,
        hours_used=used if known or not one.held_seconds else None,
        hours_held_idle=one.idle_seconds / _HOUR,
        hours_held_unknown=one.unknown_seconds / _HOUR,
        hours_free=max(one.seconds - one.held_seconds, 0.0) / _HOUR,
        energy_joules=one.energy_joules if one.energy_seconds else None,
        energy_sampled=one.sampled_seconds > 0,
        energy_free_joules=one.free_joules if one.energy_seconds else None,
        processes_unsampled=one.unsampled_processes,
        hours_unsampled=one.unsampled_seconds / _HOUR,
    )


def _gaps(recording: Recording, begin: float, end: float) -> Iterator[UsageGap]:
    """The longest gaps from ``begin`` to ``end``, in the order of time."""
    interval = max((run.interval for run in recording.runs), default=1.0)
    longer = unobserved_limit(interval)
    gaps = [gap for gap in recording.gaps_of_blocks(begin, end) if gap[1] - gap[0] > longer]
    longest = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_GAPS]
    for first, last in sorted(longest):
        yield UsageGap(begin=_time(first), end=_time(last))


def _notes(recording: Recording, begin: float, end: float) -> Iterator[str]:
    yield from (f"the recording is {name}: {printable(text)}" for name, text in recording.notes.items())
    for event in recording.events():
        if event.kind == "clock.set" and begin <= event.at <= end:
            yield f"{shown(event.at)}: {printable(event.text)}; what was recorded twice is counted twice"
    if recording.damage:
        yield f"{recording.damage.text(recording.samples)} (gpuwatch record check)"


def _common(values: Iterable[str | None]) -> str | None:
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((one for one in values if one is not None), default=None)


def _time(at: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at, datetime.UTC)

"""The content of a usage document: GPU-hours held against GPU-hours used, by group and by GPU."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import count_text, gpu_list_text
from gpuwatch.core.formatting.units import UNKNOWN, energy, percent, size
from gpuwatch.core.model.gpu_time_usage import GroupBy, Usage, UsageGap, UsageGroup
from gpuwatch.core.model.recorded_period import Period
from gpuwatch.share.reports.report_elements import BarChart, BarPart, BarRow, Content, Table, heads_and_rows
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean

_HoursText = Callable[[float | None], str]
_DECIMALS_BY_HOURS = ((10.0, 1), (1.0, 2), (0.0, 3))
"""Decimals of hours, by the least length of the time in hours."""
_SHORT_HOURS = 2.0
"""Hours below which the length of the time is told in minutes and seconds."""
_MAX_BARS = 25
_USED = BarPart("used", "used", 0.0, "")
_UNUSED = BarPart("held", "held, not used", 0.0, "")
_UNKNOWN = BarPart("unexplained", "held, use unknown", 0.0, "")
_GROUP_NAMES: dict[GroupBy, tuple[str, str]] = {
    "user": ("User", "(unknown)"),
    "job": ("Job", "(no job)"),
    "container": ("Container", "(no container)"),
    "command": ("Program", "(unknown)"),
    "framework": ("Framework", "(none recognized)"),
    "process": ("PID", "(unknown)"),
}
"""Heading, and what stands for a group that is not named."""


def usage_content(usage: Usage) -> Content:
    """A summary, the groups with bars, the GPUs, and the times that were not recorded."""
    hours = hours_formatter(usage)
    held = usage.total.gpu_hours_held
    recorded = sum(device.hours_recorded for device in usage.devices)
    used = _used_text(usage.total, hours)
    reason = f"{hours(held)} of {hours(recorded)} GPU-hours held, {used} used"
    tables = (groups_table(usage), _device_table(usage), gaps_table(usage.gaps, _minute_text))
    return Content(
        title=f"GPU usage by {usage.by}",
        subtitle=recording_subtitle(usage, _minute_text),
        state="ok" if recorded else "unknown",
        verdict=f"{percent(100 * held / recorded)} held" if recorded else "unknown",
        reason=f"{reason}." if usage.devices else "No GPU was recorded.",
        simulated=SIMULATED_MACHINE if usage.simulated else "",
        facts=tuple(_facts(usage, held, recorded)),
        tables=tuple(table for table in tables if table.rows),
        footer=f"gpuwatch {clean(usage.gpuwatch_version)}",
    )


def _group_label(group: UsageGroup, by: GroupBy) -> str:
    """The name of a group; in parentheses where there is none."""
    if by == "process":
        return clean(group.pid)
    name = {"user": group.user, "command": group.command, "framework": group.framework}.get(by, group.container)
    if name is None:
        return "(unknown)" if group.unreadable else _GROUP_NAMES[by][1]
    return clean(name)


def hours_formatter(usage: Usage) -> _HoursText:
    """How hours are written in this document: ``12.3``, in an hour ``0.123``; ``<0.1`` for little but not none."""
    decimals = next(decimals for least, decimals in _DECIMALS_BY_HOURS if usage.hours >= least)

    def hours_text(amount: float | None) -> str:
        if amount is None:
            return UNKNOWN
        least = 10.0**-decimals
        return f"<{least:.{decimals}f}" if 0 < amount < least / 2 else f"{amount:.{decimals}f}"

    return hours_text


def _minute_text(at: datetime.datetime) -> str:
    """``2026-05-11 14:05``, in local time."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M")


def recording_subtitle(subject: Usage | Period, time_text: Callable[[datetime.datetime], str]) -> str:
    """Whose recording it is, and of which time; ``time_text``: how a time is written."""
    parts = [clean(subject.host)] if subject.host else []
    parts += [f"{time_text(subject.begin)} to {time_text(subject.end)}", clean(subject.source)]
    return " · ".join([*parts, *(["users, hosts and paths replaced"] if subject.redacted else [])])


def _used_text(group: UsageGroup, hours: _HoursText) -> str:
    """The hours that were used; ``≥`` if it is unknown for a part of the time."""
    is_lower_bound = group.gpu_hours_used is not None and group.gpu_hours_unknown > 0.01 * group.process_hours
    return f"{'≥' if is_lower_bound else ''}{hours(group.gpu_hours_used)}"


def _facts(usage: Usage, held_hours: float, recorded: float) -> Iterator[tuple[str, str]]:
    hours = hours_formatter(usage)
    yield "recorded", _coverage(usage)
    if not usage.devices:
        return
    total = usage.total
    yield "held", f"{hours(held_hours)} GPU-hours{_share(held_hours, recorded)}: at least one process was on the GPU"
    if total.gpu_hours_used is not None:
        part = _share(total.gpu_hours_used, held_hours, "of held")
        share_text = part.replace("(", "(≥", 1) if _used_text(total, hours).startswith("≥") else part
        yield "used", f"{_used_text(total, hours)} GPU-hours{share_text}: held × SM utilization"
    idle = sum(device.hours_held_idle for device in usage.devices)
    free = sum(device.hours_free for device in usage.devices)
    unknown = sum(device.hours_held_unknown for device in usage.devices)
    not_known = f"; utilization unknown for {hours(unknown)}" if unknown else ""
    yield "held but idle", f"{hours(idle)} GPU-hours{_share(idle, recorded)}{not_known}"
    yield "free", f"{hours(free)} GPU-hours{_share(free, recorded)}: held by no one"
    with_energy = [device.energy_joules for device in usage.devices if device.energy_joules is not None]
    if with_energy:
        free_joules = sum(device.energy_free_joules or 0.0 for device in usage.devices)
        without = len(usage.devices) - len(with_energy)
        left_out = f"; {without} of {len(usage.devices)} GPUs report neither energy nor power" if without else ""
        sampled = [device.index for device in usage.devices if device.energy_sampled]
        left_out += f"; {gpu_list_text(sampled)} from power samples" if sampled else ""
        free_energy = f"{energy(free_joules)} while no one held the GPU"
        yield "energy", f"{energy(sum(with_energy))}, of which {free_energy}{left_out}"
    unsampled = sum(device.processes_unsampled for device in usage.devices)
    if unsampled:
        length = sum(device.hours_unsampled for device in usage.devices) * 3600
        unsampled_text = f"{count_text(unsampled, 'process')} held GPUs for {hours_minutes(length)} between samples"
        yield "not counted", f"{unsampled_text}, according to the driver's accounting mode"
    for note in usage.notes:
        yield "note", clean(note)


def _share(part: float, whole: float, of: str = "of recorded") -> str:
    return f" ({percent(100 * part / whole)} {of})" if whole else ""


def _coverage(usage: Usage) -> str:
    hours, whole, recorded = hours_formatter(usage), usage.hours, min(usage.hours_recorded, usage.hours)
    text = f"{hours(recorded)} of {hours(whole)} h"
    if usage.hours_recorded > whole * 1.001:
        text = f"{hours(usage.hours_recorded)} h in {hours(whole)} h: the clock was set back"
    if whole < _SHORT_HOURS:
        text = f"{hours_minutes(recorded * 3600)} of {hours_minutes(whole * 3600)}"
    missing = whole - recorded
    if missing > 0.001 * whole:
        text += f"; nothing is counted for the {hours_minutes(missing * 3600)} without a recording"
    return text


def groups_table(usage: Usage) -> Table:
    """Held against used, by group, with bars."""
    by = usage.by
    has_energy = any(group.energy_joules is not None for group in usage.groups)
    groups = [(_group_label(group, by), group) for group in usage.groups]
    total = len(groups) > 1
    groups += [("all", usage.total)] if total else []
    left_out = [
        *(() if by in ("job", "container", "process") else ("Owner",)),  # those have one
        *(("Processes",) if by == "process" else ()),
        *(() if has_energy else ("Energy",)),
    ]
    return Table(
        f"GPU-hours by {by}",
        *heads_and_rows(_group_cells(name, group, usage) for name, group in groups),
        right=("PID", "Held", "Used", "SM avg", "SM max", "Peak memory", "Processes", "Process-hours", "Energy"),
        note=" ".join(_notes(usage, has_energy=has_energy)),
        keep=() if total else ("GPUs",),
        optional=("GPUs", "Process-hours", "SM max", "Processes", "Owner"),
        charts=tuple(_group_charts(usage)),
        sortable=True,
        has_total_row=total,
    ).without(*left_out)


def _group_cells(name: str, group: UsageGroup, usage: Usage) -> dict[str, str]:
    hours, total = hours_formatter(usage), group is usage.total
    return {
        _GROUP_NAMES[usage.by][0]: name,
        "Owner": "" if total else clean(group.user),
        **({"Program": "" if total else clean(group.command)} if usage.by == "process" else {}),
        "Held": hours(group.gpu_hours_held),
        "Used": _used_text(group, hours),
        "SM avg": percent(group.sm_percent_mean),
        "SM max": percent(group.sm_percent_max),
        "Peak memory": size(group.memory_peak_bytes),
        "Processes": str(group.processes),
        "Process-hours": hours(group.process_hours),
        "Energy": energy(group.energy_joules, usage.total.energy_joules),
        "GPUs": gpu_list_text(group.gpus).removeprefix("GPUs ").removeprefix("GPU ") or UNKNOWN,
    }


def _notes(usage: Usage, *, has_energy: bool) -> Iterator[str]:
    total, hours = usage.total, hours_formatter(usage)
    yield (
        "GPU-hours. Held: a process was on the GPU; processes that share a GPU share its hours, so rows add up to "
        "GPU hours. Used: hours × SM utilization."
    )
    if total.process_hours > total.gpu_hours_held * 1.001:
        yield "Process-hours: two processes on one GPU count twice. SM avg is their mean."
    if total.process_hours_shared > 0.001 * total.process_hours:
        part = 100 * total.process_hours_shared / total.process_hours
        yield (
            f"For {percent(part)} of the process-hours the driver has no utilization per process: the GPU's is divided"
            " equally."
        )
    if total.gpu_hours_unknown > 0.001 * total.process_hours:
        yield (
            f"For {hours(total.gpu_hours_unknown)} process-hours no utilization is known"
            f"{' (NVML has none under MIG)' if usage.mig else ''}: ≥ is a lower bound."
        )
    if has_energy:
        share = total.energy_gpu_hours / total.gpu_hours_held if total.gpu_hours_held else 1.0
        part_known = f", known for {percent(100 * share)} of the held time" if share < 0.99 else ""
        yield f"Energy: the GPU's, divided by SM utilization, equally where none computed{part_known}."
        if total.energy_sampled_gpu_hours > 0.001 * total.energy_gpu_hours:
            part = 100 * total.energy_sampled_gpu_hours / total.energy_gpu_hours
            yield f"For {percent(part)} of this time it is from power samples: the GPU has no energy counter."
    if usage.graphics_processes:
        yield "Graphics clients such as Xorg are not counted."


def _group_charts(usage: Usage) -> Iterator[BarChart]:
    rows, hours = [], hours_formatter(usage)
    for group in usage.groups[:_MAX_BARS]:
        held, used = group.gpu_hours_held, group.gpu_hours_used
        amounts = ((_USED, used or 0.0), (_UNUSED if used is not None else _UNKNOWN, held - (used or 0.0)))
        positive = ((part, amount) for part, amount in amounts if amount > 0)
        parts = [replace(part, amount=amount, text=f"{hours(amount)} GPU-hours") for part, amount in positive]
        if parts:
            name = _group_label(group, usage.by)
            subject = f"{name} {clean(group.command)}" if usage.by == "process" else name
            rows.append(BarRow(subject, tuple(parts), f"{hours(held)} held, {_used_text(group, hours)} used"))
    if rows:
        top = max(sum(part.amount for part in row.parts) for row in rows)
        hidden_groups = len(usage.groups) - _MAX_BARS
        kinds = {part.kind for row in rows for part in row.parts}
        yield BarChart(
            "Held against used",
            tuple(rows),
            top,
            f"from 0 to {hours(top)} GPU-hours",
            note=f"{count_text(hidden_groups, 'more is', 'more are')} in the table." if hidden_groups > 0 else "",
            legend=tuple(part for part in (_USED, _UNUSED, _UNKNOWN) if part.kind in kinds),
        )


def _device_table(usage: Usage) -> Table:
    hours = hours_formatter(usage)
    max_joules = max((device.energy_joules or 0.0 for device in usage.devices), default=0.0)
    cells = [
        {
            "GPU": str(device.index),
            "Name": clean(device.name),
            "Recorded": hours(device.hours_recorded),
            "Held": hours(device.hours_held),
            "Used": hours(device.hours_used),
            "Held but idle": hours(device.hours_held_idle)
            if device.hours_held_unknown < device.hours_held or not device.hours_held else UNKNOWN,
            "Held by no one": hours(device.hours_free),
            "Energy": energy(device.energy_joules, max_joules),
            "UUID": clean(device.uuid),
        }
        for device in usage.devices
    ]  # fmt: skip
    return Table(
        "GPUs",
        *heads_and_rows(cells),
        right=("GPU", "Recorded", "Held", "Used", "Held but idle", "Held by no one", "Energy"),
        note="In hours. Idle: utilization of 1 % at most.",
        keep=("Name",),
        optional=("UUID", "Name", "Energy"),
        sortable=True,
    )


def gaps_table(gaps: Iterable[UsageGap], time_text: Callable[[datetime.datetime], str]) -> Table:
    """The times that were not recorded; ``time_text``: how a time is written."""
    rows = tuple(
        (time_text(gap.begin), time_text(gap.end), hours_minutes((gap.end - gap.begin).total_seconds())) for gap in gaps
    )
    return Table("Not recorded", ("From", "To", "Lasted"), rows, ("Lasted",), keep=("From", "To"))

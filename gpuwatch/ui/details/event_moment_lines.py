"""The machine at the moment of an event, in words. Pure."""

from __future__ import annotations

from gpuwatch.core.formatting.units import UNKNOWN, gib, gib_text, rounded
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_frames import StoredSample
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.text_width import align_left
from gpuwatch.ui.drawing.wrapping import SpanLines
from gpuwatch.ui.tables.process_columns import short_command

_MAX_PROCESSES = 16
"""Processes listed."""
_MAX_DISTANCE_SECONDS = 60.0
"""Seconds from an event beyond which a sample does not show its moment."""


def moment_lines(event: MachineEvent, sample: StoredSample | None) -> SpanLines:
    """All GPUs, those of the event marked, and the processes on these; ``sample``: the sample at that moment."""
    lines: SpanLines = [[]]
    if sample is None or abs(sample.at - event.at) > _MAX_DISTANCE_SECONDS:
        return [*lines, [("no sample of that moment is kept", "dim")]]
    snapshot = sample.snapshot
    lines.append([("The machine then", "title"), (f"  sample of {clock_text(sample.at)}; v shows it", "dim")])
    concerned = [device for device in snapshot.devices if event.concerns(device.uuid)]
    lines += [_device(device, marked=device in concerned) for device in snapshot.devices]
    if not snapshot.devices:
        lines.append([("  no GPU was read", "dim")])
    wanted = {device.uuid for device in concerned or snapshot.devices}
    rows = [row for row in snapshot.processes if row.device_uuid in wanted]
    rows.sort(key=lambda row: -(row.number("gpu_memory_bytes") or 0.0))
    if rows:
        where = "on the GPUs of the event" if concerned and len(concerned) < len(snapshot.devices) else "on the GPUs"
        lines += [[], [("Processes then", "title"), (f"  {where}", "dim")]]
    lines += [_process(row, marked=row.pid == event.pid) for row in rows[:_MAX_PROCESSES]]
    if len(rows) > _MAX_PROCESSES:
        lines.append([(f"  {len(rows) - _MAX_PROCESSES} more", "dim")])
    return lines


def _device(device: Device, *, marked: bool) -> list[tuple[str, str]]:
    used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
    return [
        ("▸ " if marked else "  ", "accent"),
        (f"GPU {device.index:<2} ", "strong"),
        (f"{rounded(device.number('utilization.gpu_percent'), 3)} %", "text"),
        (f"  {gib_text(used):>5} / {gib_text(total)} GiB", "text"),
        (f"  {rounded(device.number('temperature.gpu_celsius'), 3)} °C", "text"),
        (f"  {rounded(device.number('power.draw_watts'), 4)} W", "text"),
        (f"  {printable(device.state)}" if device.state != "ok" else "", "error"),
    ]


def _process(row: Process, *, marked: bool) -> list[tuple[str, str]]:
    where = UNKNOWN if row.device_index is None else str(row.device_index)
    return [
        ("▸ " if marked else "  ", "accent"),
        (f"GPU {where:<2} ", "strong"),
        (f"{row.pid:>7}  ", "dim"),
        (align_left(printable(row.user or UNKNOWN), 9) + " ", "text"),
        (f"{gib(row.number('gpu_memory_bytes')):>9}  ", "text"),
        (short_command(row), "text"),
    ]

"""The past in words: the machine at the moment of an event, and times without samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import UNKNOWN, gib, gib_text
from gpuwatch.core.model.snapshot import Device, Process
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_store import Gap, KeptSample
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.text_width import align_left
from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.tables.device_notes import whole_number
from gpuwatch.ui.tables.process_columns import short_command

_MAX_PROCESSES = 16
"""Processes listed."""
_MAX_DISTANCE_SECONDS = 60.0
"""Seconds from an event beyond which a sample does not show its moment."""


def moment_lines(event: MachineEvent, then: KeptSample | None) -> Lines:
    """All GPUs, those of the event marked, and the processes on these; ``then``: the sample at that moment."""
    lines: Lines = [[]]
    if then is None or abs(then.at - event.at) > _MAX_DISTANCE_SECONDS:
        return [*lines, [("no sample of that moment is kept", "dim")]]
    snapshot = then.snapshot
    lines.append([("The machine then", "title"), (f"  sample of {clock_text(then.at)}; v shows it", "dim")])
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
        (f"{whole_number(device.number('utilization.gpu_percent'), 3)} %", "text"),
        (f"  {gib_text(used):>5} / {gib_text(total)} GiB", "text"),
        (f"  {whole_number(device.number('temperature.gpu_celsius'), 3)} °C", "text"),
        (f"  {whole_number(device.number('power.draw_watts'), 4)} W", "text"),
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


_WHY = (
    ("recording.began", "the recorder was off"),
    ("machine.resumed", "the machine was suspended"),
    ("clock.set", "the clock was set"),
    ("silence.", "the driver did not answer"),
    ("collector.", "the driver did not answer"),
)
"""Events in a gap that say why it is one, by the beginning of their kind."""
_GAP_REASON_SECONDS = 2.0
"""Seconds after a gap in which its reason may be recorded."""


def gap_text(skipped: Sequence[Gap], now: float, events: Sequence[MachineEvent]) -> str:
    """``nothing recorded 02:10:05–07:45:00 (5 h 35 min): the recorder was off``; of several the last, and how many."""
    last = skipped[-1]
    begin, end = clock_text(last.begin, now), clock_text(last.end, now)
    span = f"{begin}–{end} ({hours_minutes(last.end - last.begin)})"
    more = f"; {len(skipped)} gaps" if len(skipped) > 1 else ""
    if last.damaged:
        return f"▲ damaged, cannot be read: {span}{more}"
    kinds = [event.kind for event in events if last.begin < event.at <= last.end + _GAP_REASON_SECONDS]
    why = next((words for kind, words in _WHY if any(text.startswith(kind) for text in kinds)), "")
    return f"nothing recorded {span}{f': {why}' if why else ''}{more}"

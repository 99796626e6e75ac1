"""Why a cell is empty: the reading, the reason, and what the driver answered."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.formatting.text import printable
from gpuwatch.model.metrics import BY_ID, METRICS
from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import PROCESS_READINGS, Device, Snapshot
from gpuwatch.ui.rows import Row, Unexplained, command_text
from gpuwatch.ui.screens.lines_modal import Lines

_WORDS = {
    "not_supported": "not supported by this device or driver",
    "permission_denied": "permission denied",
    "failed": "the call failed",
    "stale": "could be read earlier, not now",
    "device_lost": "the device does not answer",
    "no_sample": "no sample yet",
    "unknown": "unknown",
}


def _entries(missing: Mapping[str, Missing], order: tuple[str, ...]) -> Lines:
    lines: Lines = []
    ranks = {name: rank for rank, name in enumerate(order)}
    for name in sorted(missing, key=lambda n: ranks.get(n, len(ranks))):
        why = missing[name]
        spec = BY_ID.get(name)
        code = f", NVML code {why.code}" if why.code is not None else ""
        lines.append([(f"  {spec.title if spec else name.replace('_', ' ')}", "strong")])
        lines.append([("    ", "text"), (_WORDS[why.reason] + code, "warning" if why.reason == "failed" else "text")])
        call = spec.call if spec is not None else ""
        detail = why.detail or (f"asked with {call}" if call else "")
        if detail:
            lines.append([("    ", "text"), (printable(detail), "dim")])
    return lines


def missing_of_device(device: Device) -> tuple[str, Lines]:
    """Title and lines for one device."""
    lines: Lines = [
        [
            ("GPU ", "dim"),
            (str(device.index), "strong"),
            (f"  {printable(device.name)}  ", "text"),
            (device.uuid, "dim"),
        ]
    ]
    if device.state != "ok":
        detail = f": {printable(device.state_detail)}" if device.state_detail else ""
        lines.append([(f"state {device.state}{detail}", "error")])
    lines.append([])
    if device.missing:
        lines += _entries(device.missing, tuple(spec.id for spec in METRICS))
    else:
        lines.append([("  every reading of this device was read", "ok")])
    return "Missing readings", lines


def missing_of_row(row: Row, snapshot: Snapshot) -> tuple[str, Lines]:
    """Title and lines for one row of the process table, and its device."""
    if isinstance(row, Unexplained):
        lines: Lines = [
            [(f"GPU {row.device.index}: memory that no listed process owns", "strong")],
            [(row.reason, "text")],
            [],
        ]
        lines += missing_of_device(row.device)[1]
        return "Unexplained memory", lines
    lines = [[("process ", "dim"), (str(row.pid), "strong"), ("  " + command_text(row), "text")]]
    if row.note:
        lines.append([(f"note: {printable(row.note)}", "warning")])
    lines.append([])
    for name, value, why in (
        ("user", row.user, row.note or "the owner could not be read"),
        ("framework", row.framework, row.note or "none was recognised in its memory maps"),
        ("sees", row.device_map or None, row.note or "no map of its devices is known"),
    ):
        if value is None:
            lines.append([(f"  {name}", "strong"), (f"  {printable(why)}", "text")])
    lines += _entries(row.missing, PROCESS_READINGS)
    if not row.missing:
        lines.append([("  every reading of this process was read", "ok")])
    device = snapshot.device(row.device_uuid)
    if device is not None:
        lines += [[], *missing_of_device(device)[1]]
    return "Missing readings", lines

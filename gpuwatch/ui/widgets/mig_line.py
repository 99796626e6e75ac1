"""A MIG instance in one line: what it is, its memory, and who is on it. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, gib
from gpuwatch.model.snapshot import Device, MigInstance, Process
from gpuwatch.ui.bars import bar
from gpuwatch.ui.facts import fraction
from gpuwatch.ui.lines import Span
from gpuwatch.ui.rows import short_command
from gpuwatch.ui.widgets.pen import Pen

_ROOMY = 10
"""Cells of the bar where there is room for more than the most needed."""


def part_spans(one: MigInstance, rows: Sequence[Process], cells: int) -> list[Span]:
    """``MIG 0  7/0  1g.10gb  ▕███   ▏  4.2 / 9.8 GiB  4711 alice python``: the number that nvidia-smi gives it,
    and its GPU and compute instance; the bar has ``cells``, or is left out."""
    used, total = one.number("memory.used_bytes"), one.number("memory.total_bytes")
    filled, empty = bar(fraction(used, total), cells)
    line: list[Span] = [("MIG ", "dim"), (f"{one.index:<3}", "strong")]
    if cells >= _ROOMY:
        line.append((f"{printable(one.id) if one.gpu_instance is not None else UNKNOWN:<5}", "dim"))
    line.append((f"{printable(one.profile) if one.profile else UNKNOWN:<9} ", "text" if one.profile else "dim"))
    if cells:
        line += [("▕", "track"), (filled, "memory"), (empty, "text"), ("▏", "track")]
    line.append((f"{UNKNOWN if used is None else gib(used):>6}", "dim" if used is None else "strong"))
    line += [(f" / {gib(total)} GiB" if cells >= _ROOMY else f"/{gib(total)}G", "dim"), ("  ", "text")]
    line.append((who(rows), "text") if rows else ("nobody", "faint"))
    return line


def who(rows: Sequence[Process]) -> str:
    """``4711 alice python, 4712 bob python and 3 more``: who holds most comes first, and who nobody can ask last."""
    held = {row.key: row.number("gpu_memory_bytes") for row in rows}
    ordered = sorted(rows, key=lambda row: -1.0 if held[row.key] is None else held[row.key] or 0.0, reverse=True)
    told = [_one(row) for row in ordered[:3]]
    return ", ".join(told) + (f" and {len(rows) - 3} more" if len(rows) > 3 else "")


def _one(row: Process) -> str:
    """``4711 alice python``; of a process of which only its number can be seen, that."""
    parts = [str(row.pid), printable(row.user) if row.user else "", _program(row)]
    return " ".join(part for part in parts if part)


def _program(row: Process) -> str:
    return short_command(row).partition(" ")[0] if row.command or row.name else ""


def part_pens(device: Device, processes: Iterable[Process], lines: int, width: int) -> list[Pen]:
    """At most ``lines`` lines for the instances of a device; the last one counts those that have none."""
    on: dict[str | None, list[Process]] = {}
    for row in processes:
        if row.device_uuid == device.uuid:
            on.setdefault(row.mig_instance, []).append(row)
    parts = device.mig_instances
    shown = parts if len(parts) <= lines else parts[: max(lines - 1, 0)]
    pens: list[Pen] = []
    for number, one in enumerate(shown):
        last = number == len(shown) - 1 and len(shown) == len(parts)
        pen = Pen(width).add("└─ " if last else "├─ ", "faint")
        for text, ink in part_spans(one, on.get(one.id, []), 10 if width >= 70 else 4 if width >= 54 else 0):
            pen.add(text, ink)
        pens.append(pen)
    if len(shown) < len(parts) and lines:
        pens.append(Pen(width).add("└─ ", "faint").add(f"{len(parts) - len(shown)} more instances", "dim"))
    return pens

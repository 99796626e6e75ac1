"""A MIG instance in one line: its profile, memory and processes. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.core.formatting.sentences import and_more
from gpuwatch.core.formatting.units import UNKNOWN, gib_text
from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import Device, MigInstance, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.process_labels import program_name
from gpuwatch.ui.drawing.line_builder import LineBuilder, bar
from gpuwatch.ui.drawing.styled_lines import Span

_ROOMY_BAR_CELLS = 10
"""Cells of the bar if there is room for more than the essentials."""


def mig_spans(instance: MigInstance, rows: Sequence[Process], cells: int) -> list[Span]:
    """``MIG 0  7/0  1g.10gb  ▕███   ▏  4.2 / 9.8 GiB  4711 alice train.py``: index as in nvidia-smi, GPU and compute
    instance, profile, memory, processes. ``cells``: width of the bar; 0 omits it.
    """
    used, total = instance.number("memory.used_bytes"), instance.number("memory.total_bytes")
    filled, empty = bar(fraction(used, total), cells)
    line: list[Span] = [("MIG ", "dim"), (f"{instance.index:<3}", "strong")]
    if cells >= _ROOMY_BAR_CELLS:
        line.append((f"{printable(instance.id) if instance.gpu_instance is not None else UNKNOWN:<5}", "dim"))
    line.append(
        (f"{printable(instance.profile) if instance.profile else UNKNOWN:<9} ", "text" if instance.profile else "dim")
    )
    if cells:
        line += [("▕", "track"), (filled, "memory"), (empty, "text"), ("▏", "track")]
    line.append((f"{UNKNOWN if used is None else gib_text(used):>6}", "dim" if used is None else "strong"))
    line += [
        (f" / {gib_text(total)} GiB" if cells >= _ROOMY_BAR_CELLS else f"/{gib_text(total)}G", "dim"),
        ("  ", "text"),
    ]
    line.append((processes_text(rows), "text") if rows else ("no processes", "faint"))
    return line


def processes_text(rows: Sequence[Process]) -> str:
    """``4711 alice train.py, 4712 bob a.out and 3 more``: most memory first, unknown memory last."""
    held = {row.key: row.number("gpu_memory_bytes") for row in rows}
    ordered = sorted(rows, key=lambda row: -1.0 if held[row.key] is None else held[row.key] or 0.0, reverse=True)
    named = [
        " ".join(filter(None, (str(row.pid), printable(row.user or ""), program_name(row)))) for row in ordered[:3]
    ]
    return ", ".join(named) + and_more(len(rows) - 3)


def processes_by_instance(device: Device, processes: Iterable[Process]) -> dict[str | None, list[Process]]:
    """The processes on a device by the id of their MIG instance; None: not reported."""
    on: dict[str | None, list[Process]] = {}
    for row in processes:
        if row.device_uuid == device.uuid:
            on.setdefault(row.mig_instance, []).append(row)
    return on


def mig_instance_lines(device: Device, processes: Iterable[Process], lines: int, width: int) -> list[LineBuilder]:
    """At most ``lines`` lines for the instances of a device; the last one counts those left out."""
    on = processes_by_instance(device, processes)
    parts = device.mig_instances
    shown = parts if len(parts) <= lines else parts[: max(lines - 1, 0)]
    builders: list[LineBuilder] = []
    for number, instance in enumerate(shown):
        last = number == len(shown) - 1 and len(shown) == len(parts)
        builder = LineBuilder(width).add("└─ " if last else "├─ ", "faint")
        builder.add_spans(mig_spans(instance, on.get(instance.id, []), 10 if width >= 70 else 4 if width >= 54 else 0))
        builders.append(builder)
    if len(shown) < len(parts) and lines:
        builders.append(LineBuilder(width).add("└─ ", "faint").add(f"{len(parts) - len(shown)} more instances", "dim"))
    return builders

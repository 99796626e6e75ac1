"""The line of the host: CPU, memory, load and, where the top line has no room, versions. Pure, no Textual."""

from __future__ import annotations

from gpuwatch.core.formatting.units import gib_text, rounded
from gpuwatch.core.model.reading import fraction
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import LineBuilder

WIDTHS_WITH_VERSIONS = range(110, 152)
"""Widths at which the line of the host has the number of GPUs and the versions of the driver: the line above has no
room for them once something is wrong."""


def gpu_count(gpus: int) -> str:
    """``2 GPUs``."""
    return f"{gpus} GPU{'s' * (gpus != 1)}"


def _versions(view: View) -> str:
    """``2 GPUs · driver 580.159 · CUDA 13.0``, with a margin; empty if unknown."""
    driver = view.snapshot.driver if view.snapshot is not None else None
    if driver is None or not driver.version:
        return ""
    version = ".".join(printable(driver.version).split(".")[:2])
    cuda = f" · CUDA {printable(driver.cuda_version)}" if driver.cuda_version else ""
    return f"   {gpu_count(len(view.devices))} · driver {version}{cuda} "


def host_line(builder: LineBuilder, view: View) -> bool:
    """Draws CPU, memory and load of the host; True if they are stale. Bars share the space left by the numbers."""
    host = view.host
    if host is None:
        builder.add(" CPU ", "dim").bar(None, 10, "gpu").add("   –", "dim")
        return False
    total = host.memory_total_bytes
    total_text = gib_text(total)
    memory = f"{gib_text(host.memory_used_bytes):>{len(total_text)}}"
    loads = [f"{value:6.1f}" for value in host.load] if host.load is not None else []
    versions = _versions(view) if builder.width in WIDTHS_WITH_VERSIONS else ""
    # Cells of the labels, the percentage, the sizes, the load and the versions.
    beside = 31 + 2 * len(total_text) + 7 + 6 * len(loads) + len(versions)
    width = min(max((builder.width - beside) // 2, 5), 30)
    builder.add(" CPU ", "dim").bar(fraction(host.cpu_percent, 100), width, "gpu")
    builder.add(rounded(host.cpu_percent, 4), "dim" if host.cpu_percent is None else "text").add(" %", "dim")
    builder.add("   MEM ", "dim").bar(fraction(host.memory_used_bytes, total), width, "memory")
    builder.add(f" {memory}", "dim" if host.memory_used_bytes is None else "text").add(f" / {total_text} GiB", "dim")
    if loads and builder.cells_left >= 7 + sum(map(len, loads)):
        builder.add("   load", "dim").add(loads[0], "text").add("".join(loads[1:]), "dim")
    if versions and builder.cells_left > len(versions):
        builder.fill_to(builder.width - len(versions)).add(versions, "dim")
        return view.host_stale
    if host.cpu_count and builder.cells_left >= 16:
        builder.add(f"   {host.cpu_count} cores", "dim")
    swap = fraction(host.swap_used_bytes, host.swap_total_bytes)
    if swap is not None and swap > 0.01 and builder.cells_left >= 14:
        builder.add(f"   swap {swap * 100:3.0f} %", "dim")
    return view.host_stale

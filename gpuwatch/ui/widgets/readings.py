"""Every reading of one device, or why it is missing; and the probe runs on that device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType

from gpuwatch.formatting import units
from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, size
from gpuwatch.logs.clean import device as device_name
from gpuwatch.model.metrics import METRICS
from gpuwatch.model.reading import Missing
from gpuwatch.model.run import Run
from gpuwatch.model.snapshot import Device
from gpuwatch.ui.drawing.cells import cut, left, width_of
from gpuwatch.ui.drawing.pen import Pen
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.device_facts import titled
from gpuwatch.ui.tables.probe_rows import age
from gpuwatch.ui.widgets.paint import Line
from gpuwatch.ui.widgets.scroll_list import ScrollList


class Readings(ScrollList):
    """The table of metrics, for one device."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("readings")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Readings", cursor=False, id=id)
        self._device: Device | None = None

    def show(self, device: Device, *, stale: bool) -> None:
        """Draws the readings of ``device``."""
        self._device = device
        missing = sum(isinstance(device.get(spec.id), Missing) for spec in METRICS)
        self.note = f" {len(METRICS) - missing} of {len(METRICS)} " if missing else f" {len(METRICS)} "
        self.set_lines(self._table(device), stale=stale)

    def refill(self) -> None:
        """Rebuilds the table for the new width."""
        if self._device is not None:
            self.content = self._table(self._device)
        self.redraw()

    def _table(self, device: Device) -> list[Line]:
        # Missing readings come last, in the same order.
        shown = sorted(METRICS, key=lambda spec: isinstance(device.get(spec.id), Missing))
        # Several columns if there is room and it saves scrolling.
        columns = max(1, min(self.inner // 62, -(-len(METRICS) // self.room)))
        rows = -(-len(METRICS) // columns)
        one = self.inner // columns
        lines = []
        for row in range(rows):
            pen = Pen(self.inner)
            for column in range(columns):
                if column * rows + row < len(shown):
                    spec = shown[column * rows + row]
                    value = device.get(spec.id)
                    known = not isinstance(value, Missing)
                    text = printable(units.reading(spec, value))
                    if isinstance(value, Missing):
                        text = f"{UNKNOWN} {value.reason.replace('_', ' ')}"
                    text = cut(text, one - 12)
                    start, end = column * one + 1, (column + 1) * one - 1
                    pen.to(start).add(titled(spec, end - start - width_of(text) - 1), "text" if known else "dim")
                    pen.to(end - width_of(text)).add(text, "strong" if known else "faint")
            lines.append(pen.line())
        return lines


def granted_lines(device: Device, runs: Iterable[Run], now: float, width: int) -> list[Line]:
    """One line per run: ``GPU:0 → physical 0 GPU-…  config growth  granted 21.9 GiB  peak 326 MiB  3 min ago``."""
    lines = []
    for run in runs:
        for mapping in run.device_map:
            if mapping.uuid != device.uuid:
                continue
            pen = Pen(width)
            wide = width >= 100
            pen.add(f"{device_name(printable(mapping.framework_device))}", "accent").add(" → ", "dim")
            pen.add(f"physical {device.index}", "strong").add(f" {device.uuid[:12]}…" if width >= 130 else "", "dim")
            pen.add("  config " if wide else "  ", "dim").add(
                left(printable(run.config), 18 if width >= 80 else 11), "text"
            )
            pen.add("  granted " if wide else " ", "dim").add(f"{size(mapping.granted_bytes):>8}", "text")
            if width >= 70:
                pen.add("  peak ", "dim").add(f"{size(run.memory.nvml_peak_bytes):>9}", "memory")
            pen.add(f"  {age(run.started_at, now)}", "dim")
            if run.simulated:
                pen.add("  simulated", "warning")
            lines.append(pen.line())
    return lines

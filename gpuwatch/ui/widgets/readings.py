"""Every reading of one device, or why it is missing; and what probes were given on that device."""

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
from gpuwatch.ui.actions import bindings
from gpuwatch.ui.cells import cut, left, width_of
from gpuwatch.ui.probe_rows import age
from gpuwatch.ui.widgets.listed import Listed
from gpuwatch.ui.widgets.paint import Line
from gpuwatch.ui.widgets.pen import Pen

_REASONS = {
    "not_supported": "not supported",
    "permission_denied": "permission denied",
    "failed": "failed",
    "stale": "not any more",
    "device_lost": "device lost",
    "no_sample": "no sample yet",
    "unknown": "unknown",
}


class Readings(Listed):
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
        """Names are cut to the width."""
        if self._device is not None:
            self.content = self._table(self._device)
        self.redraw()

    def _table(self, device: Device) -> list[Line]:
        # Side by side where there is room and it saves scrolling.
        columns = max(1, min(self.inner // 62, -(-len(METRICS) // self.room)))
        rows = -(-len(METRICS) // columns)
        one = self.inner // columns
        lines = []
        for row in range(rows):
            pen = Pen(self.inner)
            for column in range(columns):
                if column * rows + row < len(METRICS):
                    spec = METRICS[column * rows + row]
                    value = device.get(spec.id)
                    known = not isinstance(value, Missing)
                    text = printable(units.reading(spec, value))
                    if isinstance(value, Missing):
                        text = f"{UNKNOWN} {_REASONS[value.reason]}"
                    text = cut(text, one - 12)
                    start, end = column * one + 1, (column + 1) * one - 1
                    pen.to(start).add(cut(spec.title, end - start - width_of(text) - 1), "text" if known else "dim")
                    pen.to(end - width_of(text)).add(text, "strong" if known else "faint")
            lines.append(pen.line())
        return lines


class Granted(Listed):
    """The device maps of the latest probe runs on one device."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Device map of the latest probe runs", cursor=False, id=id)
        self.can_focus = False
        self.headed = True

    def show(self, device: Device, runs: Iterable[Run], now: float) -> None:
        """Newest first; says how to get some when there are none."""
        lines = granted_lines(device, runs, now, uuid=self.inner >= 100)
        self.note = f" {len(lines)} " if lines else ""
        self.set_lines(lines or [Line(((" no probe has run on this GPU yet: ", "dim"), ("3 Probes", "key")))])


def granted_lines(device: Device, runs: Iterable[Run], now: float, *, uuid: bool = True) -> list[Line]:
    """``GPU:0 → physical 0 GPU-…, config growth, granted 21.9 GiB, peak 326 MiB, 3 min ago``."""
    lines = []
    for run in runs:
        for mapping in run.device_map:
            if mapping.uuid != device.uuid:
                continue
            pen = Pen(400)
            pen.add(f" {device_name(printable(mapping.framework_device))}", "accent").add(" → ", "dim")
            pen.add(f"physical {device.index}", "strong").add(f" {device.uuid[:12]}…" if uuid else "", "dim")
            pen.add("  config ", "dim").add(left(printable(run.config), 18), "text")
            pen.add("  granted ", "dim").add(f"{size(mapping.granted_bytes):>8}", "text")
            pen.add("  peak ", "dim").add(f"{size(run.memory.nvml_peak_bytes):>8}", "memory")
            pen.add(f"  {age(run.started_at, now)}", "dim")
            if run.simulated:
                pen.add("  simulated", "warning")
            lines.append(pen.line())
    return lines

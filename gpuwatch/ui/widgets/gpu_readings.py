"""The readings of one device in groups, or why they are missing; and the probe runs on that device."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.logs.line_text import device_name
from gpuwatch.ui.drawing.line_builder import Pen
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import align_left
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.tables.probe_table_rows import age
from gpuwatch.ui.tables.reading_groups import Row, Table, row_lines, table_of
from gpuwatch.ui.widgets.painted_pane import Line
from gpuwatch.ui.widgets.preferences_app import key_name
from gpuwatch.ui.widgets.scroll_list import ScrollList


class Readings(ScrollList):
    """The readings of one device, in groups."""

    BINDINGS = bindings("readings")

    unfolded = False
    """Whether readings that the device does not have are shown."""
    _table: Table | None = None
    _device: Device | None = None
    _of: tuple[object, ...] = ()

    @property
    def counts(self) -> tuple[int, int]:
        return (self._table.shown, self._table.total) if self._table is not None else (0, 0)

    def show(self, device: Device, wanted: WordFilter | None, energy: tuple[Row, ...], *, stale: bool) -> None:
        of = (wanted, energy, self.unfolded, stale)
        if device is self._device and of == self._of:
            return
        self._device, self._of = device, of
        self._table = table_of(device, wanted, unfolded=self.unfolded, energy=energy)
        self.content_stale = stale
        self.refill()

    def refill(self) -> None:
        table = self._table
        if table is None:
            return
        self.note = f" {table.shown} of {table.total} " if table.shown < table.total else f" {table.total} "
        # Several columns if there is room and it saves scrolling.
        needed = sum(len(rows) + 2 for _, rows in table.groups)
        columns = max(1, min(self.inner // 62, -(-needed // self.room)))
        width = self.inner // columns
        lines = self._column(table, width - 2)
        rows = -(-len(lines) // columns)
        merged: list[Line] = []
        for number in range(rows):
            pen = Pen(self.inner)
            for column in range(columns):
                place = column * rows + number
                if place < len(lines):
                    pen.to(column * width + 1).write(list(lines[place]))
            merged.append(pen.line())
        self.set_lines(merged, stale=self.content_stale)

    def _column(self, table: Table, width: int) -> list[tuple[Span, ...]]:
        lines: list[tuple[Span, ...]] = []
        enter = key_name(self, "↵")
        for group, rows in table.groups:
            if lines:
                lines.append(())
            lines.append(((group, "title"),))
            for row in rows:
                lines += row_lines(row, width)
        if not table.groups:
            lines.append((("no match; Esc clears it", "dim"),))
        if table.folded:
            text = "▸ " + ", ".join(f"{count} {why}" for why, count in table.folded)
            lines.append(())
            lines += [((part, "dim"),) for part in wrap(text, max(width, 8))]
            lines.append(((f"  {enter}", "key"), (" shows them", "dim")))
        elif self.unfolded:
            lines += [(), ((f"▾ {enter}", "key"), (" hides what is not supported", "dim"))]
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
                align_left(printable(run.config), 18 if width >= 80 else 11), "text"
            )
            pen.add("  granted " if wide else " ", "dim").add(f"{size(mapping.granted_bytes):>8}", "text")
            if width >= 70:
                pen.add("  peak ", "dim").add(f"{memory(run.memory.nvml_peak_bytes):>9}", "memory")
            pen.add(f"  {age(run.started_at, now)}", "dim")
            if run.simulated:
                pen.add("  simulated", "warning")
            lines.append(pen.line())
    return lines

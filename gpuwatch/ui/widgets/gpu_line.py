"""A GPU in one line: for small terminals, or many GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.formatting.text import printable
from gpuwatch.model.snapshot import Device
from gpuwatch.ui.cells import left, width_of
from gpuwatch.ui.facts import HOT_CELSIUS, attention, decimal, fraction, short_name, state_note, whole_number
from gpuwatch.ui.trend import braille, buckets, span_for
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.pen import Pen

_GIB = 1024**3
_MIN_TREND = 6
_POWER = 10
_CELSIUS = 6
_TOTAL = 6


@dataclass(frozen=True, slots=True)
class LineColumns:
    """Widths of the parts of a line; 0 leaves a part out."""

    index: int
    name: int
    gpu_bar: int
    memory_bar: int
    total: int
    power: int
    temperature: int
    trend: int


def columns_for(width: int, devices: tuple[Device, ...]) -> LineColumns:
    """Fits the parts into ``width``: the trend goes first, then name, power, temperature, the total."""
    index = max((len(str(d.index)) for d in devices), default=1)
    name = 1 + min(max((width_of(short_name(d.name)) for d in devices), default=4), 18 if width >= 110 else 8)
    # Cursor, index, two framed bars, " 97 %", memory used with its unit, attention.
    fixed = 2 + index + 1 + 2 + 6 + 2 + 6 + 2
    for parts in ((name, _POWER, _CELSIUS, _TOTAL), (0, _POWER, _CELSIUS, _TOTAL), (0, 0, _CELSIUS, _TOTAL)):
        free = width - fixed - sum(parts)
        if free >= 14:
            break
    else:
        parts = (0, 0, 0, _TOTAL)
        if width - fixed - sum(parts) < 8:
            parts = (0, 0, 0, 0)
        free = max(width - fixed - sum(parts), 2)
    trend = max(min(int((free - 14) * 0.6), 60), _MIN_TREND) if free - 14 > _MIN_TREND else 0
    bars = free - (trend + 1 if trend else 0)
    return LineColumns(index, parts[0], bars - bars // 2, bars // 2, parts[3], parts[1], parts[2], trend)


def heading(pen: Pen, at: LineColumns, view: View) -> None:
    """Names the parts of the lines below."""
    pen.add("  ", "header").add(left("GPU", at.index + 1 + at.name), "header")
    pen.add(left(" UTIL", at.gpu_bar + 2 + 6), "header")
    pen.add(left(" MEMORY", at.memory_bar + 2 + 6 + at.total), "header")
    if at.power:
        pen.add(f"{'POWER':>{at.power}}", "header")
    if at.temperature:
        pen.add(f"{'TEMP':>{at.temperature}}", "header")
    if at.trend:
        label = f"UTIL {span_for(at.trend, view.interval)}s"
        pen.add(" " + left(label if len(label) <= at.trend else label[5:], at.trend), "header")
    pen.to(pen.limit, ink="header")


def draw(pen: Pen, device: Device, at: LineColumns, view: View, *, finding: bool, selected: bool) -> None:
    """One device, from the pen's place on."""
    start = pen.x
    pen.add("▸ " if selected else "  ", "focus")
    pen.add(f"{device.index:>{at.index}} ", "strong")
    if at.name:
        pen.add(left(printable(short_name(device.name)), at.name - 1) + " ", "text")
    note, note_ink = state_note(device)
    used = device.number("memory.used_bytes")
    if note and used is None:
        pen.add(note, note_ink).to(start + pen.limit - start - 2)
        return
    gpu = device.number("utilization.gpu_percent")
    pen.bar(fraction(gpu, 100), at.gpu_bar, "gpu")
    pen.add(f"{whole_number(gpu, 3)} %", "dim" if gpu is None else "text").add(" ")
    total = device.number("memory.total_bytes")
    pen.bar(fraction(used, total), at.memory_bar, "memory")
    pen.add(decimal(used, 5, _GIB), "dim" if used is None else "text")
    pen.add(f"/{decimal(total, 1, _GIB)}G".ljust(at.total + 1) if at.total else "G", "dim")
    if at.power:
        draw_watts, limit = device.number("power.draw_watts"), device.number("power.limit_watts")
        pen.add(f"{whole_number(draw_watts, at.power - 5)}", "dim" if draw_watts is None else "text")
        pen.add(f"/{whole_number(limit, 1)}W".ljust(5), "dim")
    if at.temperature:
        celsius = device.number("temperature.gpu_celsius")
        hot = celsius is not None and celsius >= HOT_CELSIUS
        ink = "dim" if celsius is None else "warning" if hot else "text"
        pen.add(f"{whole_number(celsius, at.temperature - 2)}", ink).add("°C", "dim")
    if at.trend:
        pen.add(" ")
        pen.add(sparkline(device, view, at.trend), "graph")
    glyph, ink = attention(device, finding=finding)
    pen.to(pen.limit - 2).add(" " + glyph, ink)


def sparkline(device: Device, view: View, width: int, metric: str = "utilization.gpu_percent") -> str:
    """One line of history of a percentage, exactly ``width`` cells."""
    columns = buckets(
        view.history.times,
        view.history.series(device.uuid, metric),
        columns=width * 2,
        span=span_for(width, view.interval),
        until=view.until if view.until is not None else view.now,
        interval=view.interval,
    )
    return braille(columns, low=0, high=100)[0]

"""Fields of a GPU shown beside its bars, in lines and cards. Pure.

To add a field, add an entry to :data:`ALL`; lines, cards, the chooser, the settings file and shell
completion follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN
from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import Device
from gpuwatch.ui.drawing.lines import Span
from gpuwatch.ui.tables.device_facts import HOT_CELSIUS, PERMANENT, link, missing_text, whole_number


@dataclass(frozen=True, slots=True)
class GpuField:
    """One field: header, text and width."""

    id: str
    title: str
    """Header in the line style."""
    help: str
    unit: str = ""
    metric: str = ""
    """The metric it shows; without one the field is always available."""
    label: str = ""
    """Label in a card; a field without one is not shown in cards."""
    digits: int = 4
    """Cells of the number in a card."""
    width: int = 0
    """Cells in a line, including the leading blank; 0 if lines draw it separately."""
    chosen: bool = True
    """Whether it is shown by default."""
    text: Callable[[Device], str] | None = None
    """Text to show instead of the metric's number."""


def _power(device: Device) -> str:
    draw, limit = device.number("power.draw_watts"), device.number("power.limit_watts")
    return f"{whole_number(draw, 1)}/{whole_number(limit, 1)}"


def _state(device: Device) -> str:
    state = device.get("performance.state")
    return printable(state) if isinstance(state, str) else UNKNOWN


ALL: tuple[GpuField, ...] = (
    GpuField("name", "GPU", "product name, in lines (cards show it in the frame)"),
    GpuField("power", "POWER", "power draw and limit", "W", "power.draw_watts", "PWR ", width=11, text=_power),
    GpuField("temperature", "TEMP", "GPU temperature", "°C", "temperature.gpu_celsius", "TEMP", width=6),
    GpuField("clock", "SM", "SM clock", "MHz", "clocks.sm_mhz", "SM", digits=5, width=8),
    GpuField("state", "ST", "performance state, P0 is the fastest", metric="performance.state", width=4, text=_state),
    GpuField("fan", "FAN", "fan speed", "%", "fan.speed_percent", "FAN", width=6),
    GpuField("memory-clock", "MEM CLK", "memory clock", "MHz", "clocks.memory_mhz", "MCLK", digits=6, width=9),
    GpuField("memory-temperature", "MTEMP", "memory temperature", "°C", "temperature.memory_celsius", "MTEMP", width=6),
    GpuField(
        "bandwidth",
        "BW",
        "share of time memory was read or written",
        "%",
        "utilization.memory_percent",
        "BW",
        width=6,
        chosen=False,
    ),
    GpuField(
        "encoder", "ENC", "video encoder utilization", "%", "utilization.encoder_percent", "ENC", width=6, chosen=False
    ),
    GpuField(
        "decoder", "DEC", "video decoder utilization", "%", "utilization.decoder_percent", "DEC", width=6, chosen=False
    ),
    GpuField(
        "pcie",
        "PCIe GB/s",
        "link generation × width, and GB/s in ↓ and out ↑",
        metric="pcie.generation",
        width=19,
        chosen=False,
        text=lambda device: link(device, 1) or UNKNOWN,
    ),
    GpuField("trend", "UTIL", "utilization history, in lines"),
)
FIELDS = {field.id: field for field in ALL}
DEFAULT_FIELDS = tuple(field.id for field in ALL if field.chosen)


def unavailable(field: GpuField, devices: Sequence[Device]) -> str:
    """Why no device has a field; empty if one has, or may get it."""
    if not field.metric or not devices:
        return ""
    for device in devices:
        reading = device.get(field.metric)
        if not isinstance(reading, Missing) or reading.reason not in PERMANENT:
            return ""
    why = devices[0].get(field.metric)
    assert isinstance(why, Missing)
    return missing_text(why)


def _ink(field: GpuField, device: Device) -> str:
    value = device.get(field.metric)
    if isinstance(value, Missing):
        return "dim"
    hot = field.id == "temperature" and isinstance(value, (int, float)) and value >= HOT_CELSIUS
    return "warning" if hot else "text"


def in_line(field: GpuField, device: Device) -> list[Span]:
    """The field in exactly ``field.width`` cells, with a leading blank."""
    if field.text is not None:
        text = field.text(device) + field.unit
    else:
        value = device.number(field.metric)
        text = UNKNOWN if value is None else whole_number(value, 1) + field.unit
    ink = _ink(field, device)
    cells = f"{text[: field.width - 1]:>{field.width}}"
    unit = len(field.unit)
    if ink != "text" or not unit or not cells.endswith(field.unit):
        return [(cells, ink)]
    return [(cells[:-unit], ink), (cells[-unit:], "dim")]


def in_card(field: GpuField, device: Device) -> tuple[str, str, str, str] | None:
    """Label, value, unit and mark; None if a card shows the field elsewhere."""
    if field.id == "power":
        limit = whole_number(device.number("power.limit_watts"), 1)
        return field.label, whole_number(device.number(field.metric), field.digits), f" / {limit} W", ""
    if field.id == "state":
        return "", f"{_state(device):<3}", "", ""
    if not field.label:
        return None
    mark = "▲" if _ink(field, device) == "warning" else ""
    return field.label, whole_number(device.number(field.metric), field.digits), f" {field.unit}", mark

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
from gpuwatch.ui.tables.device_facts import HOT_CELSIUS, decimal, whole_number

Span = tuple[str, str]
_GIVEN_UP = frozenset({"not_supported", "permission_denied", "unknown"})
"""Reasons that waiting does not resolve."""


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
    suffix: str = ""
    """Unit after the number."""
    width: int = 0
    """Cells in a line, including the leading blank; 0 if lines draw it separately."""
    chosen: bool = True
    """Whether it is shown by default."""
    text: Callable[[Device], str] | None = None
    """Text to show instead of the metric's number."""


def _power(device: Device) -> str:
    draw, limit = device.number("power.draw_watts"), device.number("power.limit_watts")
    return f"{whole_number(draw, 1)}/{whole_number(limit, 1)}"


def _link(device: Device) -> str:
    generation, width = device.number("pcie.generation"), device.number("pcie.width")
    rx, tx = device.number("pcie.rx_bytes_per_second"), device.number("pcie.tx_bytes_per_second")
    text = f"{whole_number(generation, 1)}×{whole_number(width, 1)}"
    return text + (f" ↓{decimal(rx, 1, 1e9)} ↑{decimal(tx, 1, 1e9)}" if rx is not None or tx is not None else "")


def _state(device: Device) -> str:
    state = device.get("performance.state")
    return printable(state) if isinstance(state, str) else UNKNOWN


ALL: tuple[GpuField, ...] = (
    GpuField("name", "GPU", "product name, in lines (cards show it in the frame)"),
    GpuField(
        "power",
        "POWER",
        "power draw and limit",
        "W",
        metric="power.draw_watts",
        label="PWR ",
        suffix="W",
        width=11,
        text=_power,
    ),
    GpuField(
        "temperature",
        "TEMP",
        "GPU temperature",
        "°C",
        metric="temperature.gpu_celsius",
        label="TEMP",
        suffix="°C",
        width=6,
    ),
    GpuField(
        "clock",
        "SM",
        "SM clock",
        "MHz",
        metric="clocks.sm_mhz",
        label="SM",
        digits=5,
        suffix="MHz",
        width=8,
    ),
    GpuField(
        "state",
        "ST",
        "performance state, P0 is the fastest",
        metric="performance.state",
        width=4,
        text=_state,
    ),
    GpuField("fan", "FAN", "fan speed", "%", metric="fan.speed_percent", label="FAN", suffix="%", width=6),
    GpuField(
        "memory-clock",
        "MEM CLK",
        "memory clock",
        "MHz",
        metric="clocks.memory_mhz",
        label="MCLK",
        digits=6,
        suffix="MHz",
        width=9,
    ),
    GpuField(
        "memory-temperature",
        "MTEMP",
        "memory temperature",
        "°C",
        metric="temperature.memory_celsius",
        label="MTEMP",
        suffix="°C",
        width=6,
    ),
    GpuField(
        "bandwidth",
        "BW",
        "share of time memory was read or written",
        "%",
        metric="utilization.memory_percent",
        label="BW",
        suffix="%",
        width=6,
        chosen=False,
    ),
    GpuField(
        "encoder",
        "ENC",
        "video encoder utilization",
        "%",
        metric="utilization.encoder_percent",
        label="ENC",
        suffix="%",
        width=6,
        chosen=False,
    ),
    GpuField(
        "decoder",
        "DEC",
        "video decoder utilization",
        "%",
        metric="utilization.decoder_percent",
        label="DEC",
        suffix="%",
        width=6,
        chosen=False,
    ),
    GpuField(
        "pcie",
        "PCIe GB/s",
        "link generation × width, and throughput in ↓ and out ↑",
        "GB/s",
        metric="pcie.generation",
        width=19,
        chosen=False,
        text=_link,
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
        if not isinstance(reading, Missing) or reading.reason not in _GIVEN_UP:
            return ""
    why = devices[0].get(field.metric)
    assert isinstance(why, Missing)
    return printable(f"{why.reason.replace('_', ' ')}{f': {why.detail}' if why.detail else ''}")


def _ink(field: GpuField, device: Device) -> str:
    value = device.get(field.metric)
    if isinstance(value, Missing):
        return "dim"
    hot = field.id == "temperature" and isinstance(value, (int, float)) and value >= HOT_CELSIUS
    return "warning" if hot else "text"


def in_line(field: GpuField, device: Device) -> list[Span]:
    """The field in exactly ``field.width`` cells, with a leading blank."""
    if field.text is not None:
        text = field.text(device) + field.suffix
    else:
        value = device.number(field.metric)
        text = UNKNOWN if value is None else whole_number(value, 1) + field.suffix
    ink = _ink(field, device)
    cells = f"{text[: field.width - 1]:>{field.width}}"
    unit = len(field.suffix)
    if ink != "text" or not unit or not cells.endswith(field.suffix):
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
    return field.label, whole_number(device.number(field.metric), field.digits), f" {field.suffix}", mark

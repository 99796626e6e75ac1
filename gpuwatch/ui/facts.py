"""What the dashboard says about a device, as words and numbers: shared by cards and lines."""

from __future__ import annotations

import re

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN
from gpuwatch.model.metrics import MetricSpec
from gpuwatch.model.snapshot import Device
from gpuwatch.ui.cells import cut, width_of
from gpuwatch.ui.view import BAD_STATES

HOT_CELSIUS = 85

_BRAND = re.compile(r"^(NVIDIA|Tesla|Quadro|GeForce|Graphics Device)\s+", re.IGNORECASE)
# Reasons that lower clocks as they should: said, but no warning.
_NORMAL_REASONS = frozenset({"idle", "applications-clocks", "sync-boost", "display-clocks", "sw-power-cap"})
_REASON_WORDS = {
    "sw-power-cap": "power cap",
    "hw-slowdown": "hardware slowdown",
    "sw-thermal": "thermal",
    "hw-thermal": "thermal (hardware)",
    "hw-power-brake": "power brake",
    "applications-clocks": "application clocks",
    "sync-boost": "sync boost",
    "display-clocks": "display clocks",
}


SHORT_TITLES = {
    "memory.addressing": "Host memory sharing",
    "memory.unexplained_bytes": "Memory of no listed process",
    "temperature.margin_celsius": "Margin to slowdown",
}
"""Readings whose name does not fit everywhere."""


def titled(spec: MetricSpec, room: int) -> str:
    """The name of a reading in ``room`` cells: whole, shorter, or cut."""
    title = spec.title if width_of(spec.title) <= room else SHORT_TITLES.get(spec.id, spec.title)
    return cut(title, room)


def short_name(name: str) -> str:
    """``NVIDIA GeForce RTX 4090`` without its brands."""
    while (stripped := _BRAND.sub("", name)) != name and stripped:
        name = stripped
    return name


def fraction(value: float | None, whole: float | None) -> float | None:
    """``value / whole``, None where either is unknown or the whole is nothing."""
    return value / whole if value is not None and whole else None


def whole_number(value: float | None, width: int) -> str:
    """A number without decimals at the right of ``width`` cells."""
    return f"{UNKNOWN if value is None else format(value, '.0f'):>{width}}"


def decimal(value: float | None, width: int, scale: float = 1.0) -> str:
    """A number with one decimal at the right of ``width`` cells."""
    return f"{UNKNOWN if value is None else format(value / scale, '.1f'):>{width}}"


def throttle(device: Device) -> tuple[str, bool]:
    """Clock event reasons in words, and whether they are a warning; empty for none."""
    reasons = device.get("clocks.event_reasons")
    if not isinstance(reasons, str):
        return "", False
    names = [name for name in reasons.split("+") if name not in ("none", "idle", "")]
    text = ", ".join(_REASON_WORDS.get(name, name) for name in names)
    return text, any(name not in _NORMAL_REASONS for name in names)


def link(device: Device) -> str:
    """The PCIe link: ``PCIe 5×16`` and its throughput where it was read."""
    generation, width = device.number("pcie.generation"), device.number("pcie.width")
    if generation is None and width is None:
        return ""
    text = f"PCIe {whole_number(generation, 1)}×{whole_number(width, 1)}"
    rx, tx = device.number("pcie.rx_bytes_per_second"), device.number("pcie.tx_bytes_per_second")
    if rx is not None or tx is not None:
        text += f" ↓{decimal(rx, 5, 1e9)} ↑{decimal(tx, 5, 1e9)} GB/s"
    return text


def state_note(device: Device) -> tuple[str, str]:
    """Words and ink for a device that is not simply there; empty for ``ok``."""
    if device.state == "ok":
        return "", "text"
    if device.state in BAD_STATES:
        detail = f": {printable(device.state_detail)}" if device.state_detail else ""
        return f"✖ {device.state}{detail}", "error"
    return f"☾ {device.state}", "dim"


def attention(device: Device, *, finding: str) -> tuple[str, str]:
    """One glyph for a line: what needs a look. ``finding``: the severity of the worst one, or nothing."""
    if device.state in BAD_STATES or finding == "error":
        return "✖", "error"
    temperature = device.number("temperature.gpu_celsius")
    if finding or throttle(device)[1] or (temperature is not None and temperature >= HOT_CELSIUS):
        return "▲", "warning"
    return " ", "text"

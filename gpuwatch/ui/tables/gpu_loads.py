"""How loaded a GPU is, in levels: normal, high, full; and the order of the GPUs by load. Pure.

Percentages are of what the card itself reports: its memory, its power limit, its slowdown temperature and its
maximum clock. A card without the limit has no level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import msgspec

from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.view import View

HOT_CELSIUS = 85.0
"""From here on a temperature is marked where the limits of the card are not known."""
NORMAL, HIGH, FULL = range(3)
_MIN_BUSY_PERCENT = 50.0
"""Percent of utilization from which a low clock is worth a mark."""

Load = Literal["", "utilization", "memory", "temperature", "power", "clock"]


class Thresholds(NamedTuple):
    """Percentages at which a load is high and, if there is a second one, full; none: never."""

    utilization: tuple[float, ...] = ()
    """Percent of the time. Empty by default: a busy GPU is fine."""
    memory: tuple[float, ...] = ()
    """Percent of the memory. Empty by default: TensorFlow maps nearly all of it."""
    temperature: tuple[float, ...] = (90.0, 98.0)
    """Percent of the slowdown temperature."""
    power: tuple[float, ...] = (105.0,)
    """Percent of the power limit."""
    clock: tuple[float, ...] = (60.0, 40.0)
    """Percent of the maximum SM clock under load; here lower is worse."""


DEFAULT_THRESHOLDS = Thresholds()
_READINGS: dict[Load, tuple[str, str]] = {
    "utilization": ("utilization.gpu_percent", ""),
    "memory": ("memory.used_bytes", "memory.total_bytes"),
    "temperature": ("temperature.gpu_celsius", ""),
    "power": ("power.draw_watts", "power.limit_watts"),
    "clock": ("clocks.sm_mhz", "clocks.sm_max_mhz"),
}
"""The metric of each load, and that of its limit."""


def load_level(load: Load, device: Device, thresholds: Thresholds) -> int:
    """:data:`NORMAL`, :data:`HIGH` or :data:`FULL`; normal if it is unknown."""
    if not load:
        return NORMAL
    metric, limit_metric = _READINGS[load]
    value, percentages = device.number(metric), getattr(thresholds, load)
    limit = device.number(limit_metric) if limit_metric else 100.0
    if load == "temperature":
        limit = threshold_celsius(device, "slowdown")
        if value is not None and (limit is None or limit <= 0):  # a driver that reports nonsense
            return HIGH if percentages and value >= HOT_CELSIUS else NORMAL
    if value is None or (load == "clock" and (device.number("utilization.gpu_percent") or 0.0) < _MIN_BUSY_PERCENT):
        return NORMAL
    percent = fraction(value * 100, limit)
    if percent is None:
        return NORMAL
    return sum(percent <= least if load == "clock" else percent >= least for least in percentages)


def threshold_celsius(device: Device, name: str) -> float | None:
    """A threshold of the card, such as that of ``slowdown``; since Hopper, cards report it as a margin."""
    reported = device.number(f"temperature.{name}_celsius")
    if reported:
        return reported
    parts = ("gpu", "margin", f"{name}_margin")
    celsius, margin, least = (device.number(f"temperature.{part}_celsius") for part in parts)
    return celsius + margin - least if celsius is not None and margin is not None and least is not None else None


LEVEL_STYLES = ("text", "high", "full")
"""The style of each level, for numbers."""


def bar_style(usual: str, level: int) -> str:
    """The style of a bar of this level: the hue of its quantity, amber only for the highest."""
    return LEVEL_STYLES[level] if level == FULL else usual


def level_mark(load: Load, level: int) -> str:
    """One cell beside a number, so that color is not the only sign: blank, ``▴`` or ``▲``; a low clock ``▼``."""
    if not level:
        return " "
    if load == "clock":
        return "▼"
    return "▲" if level == FULL or load == "temperature" else "▴"


GpuOrder = Literal["index", "utilization", "memory", "temperature", "power"]
ORDERS: tuple[GpuOrder, ...] = ("index", "utilization", "memory", "temperature", "power")
"""All orders; the others are also names of loads and graphs."""
_REORDER_SECONDS = 5.0
"""Seconds for which an order stays: GPUs that change places with every sample cannot be read."""


def sorted_devices(devices: Sequence[Device], order: GpuOrder) -> list[Device]:
    """The devices, most loaded first: of memory the largest share. Ties by index, then those without a value."""
    if order == "index":
        return sorted(devices, key=lambda device: device.index)

    def key(device: Device) -> tuple[bool, float, int]:
        load = device.number(_READINGS[order][0])
        if order == "memory":
            load = fraction(load, device.number("memory.total_bytes"))
        return (load is None, -(load or 0.0), device.index)

    return sorted(devices, key=key)


def with_devices(view: View, devices: Sequence[Device]) -> View:
    """``view`` with its devices in another order."""
    if view.snapshot is None:
        return view
    return replace(view, snapshot=msgspec.structs.replace(view.snapshot, devices=tuple(devices)))


class SteadyOrder:
    """Keeps an order for some seconds."""

    def __init__(self) -> None:
        self._ordered: tuple[GpuOrder, frozenset[str]] = ("index", frozenset())
        self._positions: dict[str, int] = {}
        self._ordered_at = float("-inf")

    def of(self, view: View, order: GpuOrder) -> tuple[Device, ...]:
        """The devices of ``view`` in an order that is a few seconds old at most."""
        devices = view.devices
        of = (order, frozenset(device.uuid for device in devices))
        if of != self._ordered or not 0 <= view.moment - self._ordered_at < _REORDER_SECONDS:
            self._ordered, self._ordered_at = of, view.moment
            self._positions = {device.uuid: place for place, device in enumerate(sorted_devices(devices, order))}
        return tuple(sorted(devices, key=lambda device: self._positions[device.uuid]))

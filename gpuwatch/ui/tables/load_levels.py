"""How loaded a GPU is, in ranks: normal, high, full. Pure.

Percentages are of what the card itself reports: its memory, its power limit, its slowdown temperature and its
maximum clock. A card without the limit has no rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from gpuwatch.core.model.snapshot import Device
from gpuwatch.ui.tables.device_facts import HOT_CELSIUS, fraction

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


def rank(load: Load, device: Device, thresholds: Thresholds) -> int:
    """:data:`NORMAL`, :data:`HIGH` or :data:`FULL`; normal if it is unknown."""
    if load == "utilization":
        return _reached(device.number("utilization.gpu_percent"), thresholds.utilization)
    if load == "memory":
        return _share("memory.used_bytes", "memory.total_bytes", device, thresholds.memory)
    if load == "temperature":
        return _heat(device, thresholds.temperature)
    if load == "power":
        return _share("power.draw_watts", "power.limit_watts", device, thresholds.power)
    if load == "clock":
        share = fraction(device.number("clocks.sm_mhz"), device.number("clocks.sm_max_mhz"))
        busy = device.number("utilization.gpu_percent")
        if share is None or busy is None or busy < _MIN_BUSY_PERCENT:
            return NORMAL
        return sum(share * 100 <= value for value in thresholds.clock)
    return NORMAL


def _reached(value: float | None, at: Sequence[float]) -> int:
    return NORMAL if value is None else sum(value >= number for number in at)


def _share(metric: str, limit: str, device: Device, at: Sequence[float]) -> int:
    share = fraction(device.number(metric), device.number(limit))
    return NORMAL if share is None else _reached(share * 100, at)


def _heat(device: Device, at: Sequence[float]) -> int:
    celsius = device.number("temperature.gpu_celsius")
    if celsius is None:
        return NORMAL
    slowdown = threshold_celsius(device, "slowdown")
    if slowdown is None or slowdown <= 0:  # a driver that reports nonsense
        return HIGH if at and celsius >= HOT_CELSIUS else NORMAL
    return _reached(celsius / slowdown * 100, at)


def threshold_celsius(device: Device, name: str) -> float | None:
    """A threshold of the card, such as that of ``slowdown``; since Hopper, cards report it as a margin."""
    told = device.number(f"temperature.{name}_celsius")
    if told:
        return told
    celsius, margin, least = (
        device.number(f"temperature.{part}_celsius") for part in ("gpu", "margin", f"{name}_margin")
    )
    return celsius + margin - least if celsius is not None and margin is not None and least is not None else None


INKS = ("text", "high", "full")
"""The ink of each rank, for numbers."""


def bar_ink(usual: str, level: int) -> str:
    """The ink of a bar of this rank: the hue of its quantity, amber only for the highest."""
    return INKS[level] if level == FULL else usual


def mark(load: Load, level: int) -> str:
    """One cell beside a number, so that colour is not the only sign: blank, ``▴`` or ``▲``; a low clock ``▼``."""
    if not level:
        return " "
    if load == "clock":
        return "▼"
    return "▲" if level == FULL or load == "temperature" else "▴"

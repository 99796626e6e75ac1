"""Which part is hot when the driver throttles a GPU thermally: core, memory, or a part without a sensor reading."""

from __future__ import annotations

from typing import NamedTuple

from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.rules.phrasing import seen_as

_COOL_BELOW = 20.0
"""°C below its threshold at which a core is not hot; cards begin to throttle up to 15 °C before it."""
_COOL = 65.0
"""°C below which a core is not hot on any card; used if its thresholds are unknown."""
_MEMORY_NEAR = 10.0
"""°C below its maximum temperature at which memory is hot."""
_COOLING = "Improve the cooling (fans, dust, airflow between cards), or lower the power limit."


class Heat(NamedTuple):
    """The heat's part in a finding."""

    title: str
    evidence: str
    """The temperatures and their thresholds; empty if none is known."""
    action: str


def heat(device: Device, celsius: float | None) -> Heat:
    """``celsius``: core temperature while the GPU was throttled, None if unknown.

    The driver's reason (sw-thermal, hw-thermal) does not name the part (NVML, nvmlClocksEventReasons).
    """
    highest = _least(device, "temperature.operating_max_celsius", "temperature.slowdown_celsius")
    margin = device.number("temperature.margin_celsius")
    memory, memory_most = device.number("temperature.memory_celsius"), device.number("temperature.memory_max_celsius")
    name = seen_as(device)
    facts = []
    if celsius is not None:
        facts.append(f"core {celsius:.0f} °C" + (f" (maximum {highest:.0f} °C)" if highest else ""))
    if margin is not None:
        facts.append(f"{margin:.0f} °C left to the nearest slowdown of the core")
    if memory is not None:
        facts.append(f"memory {memory:.0f} °C" + (f" (maximum {memory_most:.0f} °C)" if memory_most else ""))
    evidence = "; ".join(facts)
    if celsius is None or not _cool(celsius, highest, margin):
        return Heat(f"{name} throttled (thermal)", evidence, _COOLING)
    if memory is not None and memory_most and memory >= memory_most - _MEMORY_NEAR:
        return Heat(f"{name} throttled (thermal): its memory is hot", evidence, _COOLING)
    rest = "its memory, its voltage regulators or a sensor" if memory is None else "its voltage regulators or a sensor"
    return Heat(
        f"{name} throttled (thermal) while its core is cool: {rest}",
        evidence,
        "Improve the airflow over the card; if it stays so when cold (nvidia-smi -q -d TEMPERATURE,PERFORMANCE), have "
        "the card checked.",
    )


def _cool(celsius: float, highest: float | None, margin: float | None) -> bool:
    if highest is not None:
        return celsius < highest - _COOL_BELOW
    if margin is not None:
        return margin > _COOL_BELOW
    return celsius < _COOL


def _least(device: Device, *metrics: str) -> float | None:
    return min((value for metric in metrics if (value := device.number(metric)) is not None), default=None)

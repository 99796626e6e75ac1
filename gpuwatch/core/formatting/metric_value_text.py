"""A reading of a device metric as text, with its unit; and why one is missing."""

from __future__ import annotations

from gpuwatch.core.formatting.durations import clock_duration
from gpuwatch.core.formatting.units import UNKNOWN, byte_rate, energy, percent, size
from gpuwatch.core.model.metrics import MetricSpec, Unit
from gpuwatch.core.model.reading import Missing, Reading
from gpuwatch.core.safe_text import printable


def metric_value_text(spec: MetricSpec, value: Reading) -> str:
    """A reading of a device metric as text, with its unit; ``–`` when it is missing."""
    if isinstance(value, Missing):
        return UNKNOWN
    if isinstance(value, str):
        return value
    match spec.unit:
        case Unit.PERCENT:
            return percent(value)
        case Unit.BYTES:
            return size(value)
        case Unit.BYTES_PER_SECOND:
            return byte_rate(value)
        case Unit.CELSIUS:
            return f"{value:.0f} °C"
        case Unit.WATT:
            return f"{value:.0f} W"
        case Unit.MEGAHERTZ:
            return f"{value:.0f} MHz"
        case Unit.JOULE:
            return energy(value)
        case Unit.SECOND:
            return clock_duration(value) if value >= 60 else f"{value:.1f} s"
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)


def missing_text(why: Missing) -> str:
    """Why a value is missing: the reason, and its detail if there is one."""
    return printable(f"{why.reason.replace('_', ' ')}{f': {why.detail}' if why.detail else ''}")

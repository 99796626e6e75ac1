"""Numbers with their units as people read them; unknown values as ``–``."""

from __future__ import annotations

from gpuwatch.model.metrics import MetricSpec, Unit
from gpuwatch.model.reading import Missing, Reading

UNKNOWN = "–"

_GIB = 1024**3
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float | None) -> str:
    """Bytes in the unit that keeps three digits: ``33.0 GiB``, ``512 MiB``."""
    if count is None:
        return UNKNOWN
    amount = float(count)
    for unit in _BINARY:
        if abs(amount) < 1000 or unit == _BINARY[-1]:
            if unit == "B":
                return f"{amount:.0f} B"
            return f"{amount:.1f} {unit}" if abs(amount) < 100 else f"{amount:.0f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def gib(count: float | None) -> str:
    """Bytes always in GiB with one decimal, for columns that must line up."""
    return UNKNOWN if count is None else f"{count / _GIB:.1f}"


def short_size(count: float | None) -> str:
    """Bytes in at most six characters: ``33.0G``, ``512M``."""
    if count is None:
        return UNKNOWN
    amount = float(count)
    for unit in ("B", "K", "M", "G", "T", "P"):
        if abs(amount) < 1000 or unit == "P":
            if unit in ("B", "K", "M") or abs(amount) >= 1000:
                return f"{amount:.0f}{unit}"
            return f"{amount:.1f}{unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def rate(per_second: float | None) -> str:
    """Bytes per second: ``1.2 GiB/s``."""
    return UNKNOWN if per_second is None else f"{size(per_second)}/s"


def percent(value: float | None, decimals: int = 0) -> str:
    """``97 %`` with a space, as in the rest of the tool."""
    return UNKNOWN if value is None else f"{value:.{decimals}f} %"


def duration(seconds: float | None) -> str:
    """Run time as ``h:mm:ss``, with days in front when there are any: ``3d 04:05``."""
    if seconds is None:
        return UNKNOWN
    whole = int(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}"


def seconds(value: float | None) -> str:
    """A measured time: ``6.42 s``, ``18.3 ms``, ``95 µs``."""
    if value is None:
        return UNKNOWN
    if value >= 1:
        return f"{value:.2f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs"


def per_second(value: float | None) -> str:
    """Steps per second with three digits: ``412``, ``40.9``, ``3.10``."""
    if value is None:
        return UNKNOWN
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def flops(value: float | None) -> str:
    """Floating-point operations per second: ``35.1 GFLOP/s``."""
    if value is None:
        return UNKNOWN
    for unit in ("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s"):
        if value < 1000 or unit == "TFLOP/s":
            return f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")


def reading(spec: MetricSpec, value: Reading) -> str:
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
            return rate(value)
        case Unit.CELSIUS:
            return f"{value:.0f} °C"
        case Unit.WATT:
            return f"{value:.0f} W"
        case Unit.MEGAHERTZ:
            return f"{value:.0f} MHz"
        case Unit.JOULE:
            return f"{value / 3.6e6:.2f} kWh"
        case Unit.SECOND:
            return duration(value) if value >= 60 else f"{value:.1f} s"
        case _:
            return f"{value:g}" if isinstance(value, float) else str(value)

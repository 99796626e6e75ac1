"""What the graphs of a stretch of a recording show: names and ends of axes, bars, and the same in characters."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from gpuwatch.core.formatting.palettes import QUANTITIES
from gpuwatch.core.formatting.reading_text import reading_text
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.recorded_period import GRAPHED, Period, PeriodDevice, PeriodProcess, PeriodRun

NAMES = dict(zip(GRAPHED, ("GPU", "Memory", "Power", "Temp", "SM clock"), strict=True))
"""The metrics, in the order of their graphs."""
INKS = dict(zip(GRAPHED, QUANTITIES, strict=True))
_BLOCKS = "▁▂▃▄▅▆▇█"


def shown(metric: str, value: float | None) -> str:
    """A value with its unit."""
    return UNKNOWN if value is None else reading_text(BY_ID[metric], value)


def known(values: Sequence[float | None]) -> list[float]:
    """The values that were recorded."""
    return [value for value in values if value is not None]


def bottom(metric: str) -> float:
    """Where the axis of a graph begins."""
    axis = BY_ID[metric].axis
    return axis.low if axis is not None else 0.0


def top(device: PeriodDevice, metric: str) -> float:
    """Where the axis of a graph ends."""
    series = device.series.get(metric)
    most = max(known(series.most), default=0.0) if series is not None else 0.0
    return max(device.tops.get(metric) or 0.0, most) or 1.0


def runs_on(period: Period, device: PeriodDevice) -> list[PeriodRun]:
    """The saved runs that used this GPU."""
    return [run for run in period.runs if device.uuid in run.device_uuids]


def processes_on(period: Period, device: PeriodDevice) -> list[PeriodProcess]:
    """Its processes, those that held it longest first."""
    mine = [process for process in period.processes if process.device_uuid == device.uuid]
    return sorted(mine, key=lambda process: min(process.begin, period.end) - min(process.end, period.end))


def graph_lines(device: PeriodDevice, width: int) -> Iterator[str]:
    """A line for each graph: its course, mean and range."""
    for metric, name in NAMES.items():
        series = device.series.get(metric)
        if series is not None and (means := known(series.mean)):
            least, most = min(known(series.least)), max(known(series.most))
            drawn = course(series.mean, bottom(metric), top(device, metric), width)
            mean = shown(metric, sum(means) / len(means))
            yield f"{name:<8}  {drawn}  avg {mean}, {shown(metric, least)} to {shown(metric, most)}"


def course(
    values: Sequence[float | None],
    low: float,
    high: float,
    width: int,
    of: Callable[[list[float]], float] = statistics.fmean,
) -> str:
    """One character for each stretch of time, the mean or whatever ``of`` it is; a space where nothing is known."""
    count = min(width, len(values))
    drawn = []
    for place in range(count):
        part = known(values[place * len(values) // count : (place + 1) * len(values) // count])
        share = (of(part) - low) / ((high - low) or 1.0) if part else 0.0
        drawn.append(_BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)] if part else " ")
    return "".join(drawn)

"""What the graphs of a stretch of a recording show: names and ends of axes, bars, and the same in characters."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.palettes import QUANTITIES
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.recorded_period import GRAPHED, Period, PeriodDevice, PeriodProcess, PeriodRun

GRAPH_NAMES = dict(zip(GRAPHED, ("GPU", "Memory", "Power", "Temp", "SM clock"), strict=True))
"""The metrics, in the order of their graphs."""
GRAPH_COLORS = dict(zip(GRAPHED, QUANTITIES, strict=True))
_BLOCKS = "▁▂▃▄▅▆▇█"


def value_text(metric: str, value: float | None) -> str:
    """A value with its unit; a dash for None."""
    return UNKNOWN if value is None else metric_value_text(BY_ID[metric], value)


def known_values(values: Sequence[float | None]) -> list[float]:
    """The values that were recorded."""
    return [value for value in values if value is not None]


def axis_low(metric: str) -> float:
    """Where the axis of a graph begins."""
    axis = BY_ID[metric].axis
    return axis.low if axis is not None else 0.0


def axis_high(device: PeriodDevice, metric: str) -> float:
    """Where the axis of a graph ends."""
    series = device.series.get(metric)
    most = max(known_values(series.most), default=0.0) if series is not None else 0.0
    return max(device.tops.get(metric) or 0.0, most) or 1.0


def runs_on(period: Period, device: PeriodDevice) -> list[PeriodRun]:
    """The saved runs that used this GPU."""
    return [run for run in period.runs if device.uuid in run.device_uuids]


def processes_on(period: Period, device: PeriodDevice) -> list[PeriodProcess]:
    """Its processes, those that held it longest first."""
    own_processes = [process for process in period.processes if process.device_uuid == device.uuid]
    return sorted(own_processes, key=lambda process: min(process.begin, period.end) - min(process.end, period.end))


def graph_lines(device: PeriodDevice, width: int) -> Iterator[str]:
    """A line for each graph: its course, mean and range."""
    for metric, name in GRAPH_NAMES.items():
        series = device.series.get(metric)
        if series is not None and (means := known_values(series.mean)):
            least, most = min(known_values(series.least)), max(known_values(series.most))
            characters = block_graph(series.mean, axis_low(metric), axis_high(device, metric), width)
            mean = value_text(metric, sum(means) / len(means))
            yield f"{name:<8}  {characters}  avg {mean}, {value_text(metric, least)} to {value_text(metric, most)}"


def block_graph(
    values: Sequence[float | None],
    low: float,
    high: float,
    width: int,
    summarize: Callable[[list[float]], float] = statistics.fmean,
) -> str:
    """A block character for the values of each stretch of time, summarized; a space where nothing is known."""
    count = min(width, len(values))
    characters = []
    for index in range(count):
        recorded_values = known_values(values[index * len(values) // count : (index + 1) * len(values) // count])
        share = (summarize(recorded_values) - low) / ((high - low) or 1.0) if recorded_values else 0.0
        characters.append(_BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)] if recorded_values else " ")
    return "".join(characters)

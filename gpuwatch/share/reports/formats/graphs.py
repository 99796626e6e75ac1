"""Readings of a GPU over a stretch of a recording as inline SVG: graphs under each other on one clock.

Above them its processes and the saved runs as bars; over them findings as bands, events as marks, and what was not
recorded, hatched. Axes are fixed: 0 to 100 %, to the total, to the limit.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator

from markupsafe import Markup, escape

from gpuwatch.core.formatting.text import shorten
from gpuwatch.core.model.period import Period, PeriodDevice, PeriodProcess, PeriodSeries
from gpuwatch.share.reports.chart_data import Graphs
from gpuwatch.share.reports.content import clean
from gpuwatch.share.reports.period_graphs import (
    BOTTOMS,
    NAMES,
    clock,
    events_on,
    findings_on,
    processes_on,
    shown,
    top,
)

_WIDTH = 860
_LEFT, _RIGHT = 92, 14
_LANE, _GRAPH, _BETWEEN, _AXIS = 17, 58, 12, 26
_PROCESSES, _RUNS = 6, 4
"""Bars that are drawn; the others are in the tables."""
_COLUMNS = 96
_LETTER = 5.6
_COLOURS = 6
_EVENTS = 60
_TICKS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800),
    *(604_800, 2_592_000),
)
"""Seconds between two times on the axis."""
_MOST_TICKS = 9
_MARKS = {"error": "✖", "warning": "▲"}

X = Callable[[datetime.datetime], float]


def period_graphs(chart: Graphs) -> Markup:
    """The graphs of one GPU."""
    period, device = chart.period, chart.device
    span = max((period.end - period.begin).total_seconds(), 1e-9)

    def x(at: datetime.datetime) -> float:
        share = (at - period.begin).total_seconds() / span
        return _LEFT + min(max(share, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT)

    lanes = list(_lanes(period, device, x))
    bottom = len(lanes) * _LANE + (6 if lanes else 0)
    graphs = bottom + 14
    metrics = [metric for metric in NAMES if metric in device.series]
    height = graphs + len(metrics) * (_GRAPH + _BETWEEN) + _AXIS
    end = height - _AXIS
    parts = [part for number, lane in enumerate(lanes) for part in lane(number * _LANE)]
    parts += _ticks(period, x, graphs, height)
    parts += _bands(period, device, x, graphs, end)
    for number, metric in enumerate(metrics):
        parts += _graph(device, metric, device.series[metric], graphs + number * (_GRAPH + _BETWEEN))
    parts += _marks(period, device, x, graphs - 4, end)
    parts += _columns(period, device, graphs, end)
    times = f"{clock(period.begin, day=True)} to {clock(period.end, day=True)}"
    label = f"GPU {device.index} from {times}: {', '.join(NAMES[metric] for metric in metrics)}"
    return Markup(
        f'<figure class="chart"><svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f'{"".join(parts)}</svg><p class="values" hidden></p>'
        f"<figcaption>{_legend(period, device)}</figcaption></figure>"
    )


def _lanes(period: Period, device: PeriodDevice, x: X) -> Iterator[Callable[[float], Iterator[str]]]:
    for run in period.runs[:_RUNS]:
        title = f"{clean(run.name)}: {clean(run.verdict)}"
        yield _lane(x(run.begin), x(run.end or period.end), f"run {title}", title, "phase p3")
    for number, one in enumerate(processes_on(period, device)[:_PROCESSES]):
        name = _name(one)
        times = f"{clock(one.begin, day=True)} to {clock(one.end, day=True)}"
        yield _lane(x(one.begin), x(one.end), f"{name}, {times}", name, f"lane c{number % _COLOURS}")


def _name(one: PeriodProcess) -> str:
    whose = f"{clean(one.user)}'s " if one.user else ""
    return f"{whose}{clean(one.program) if one.program else 'process'} ({one.pid})"


def _lane(left: float, right: float, title: str, name: str, look: str) -> Callable[[float], Iterator[str]]:
    def drawn(y: float) -> Iterator[str]:
        width = max(right - left, 2.0)
        yield (
            f'<rect class="{look}" x="{left:.1f}" y="{y + 1:.1f}" width="{width:.1f}" height="{_LANE - 3}" rx="2">'
            f"<title>{escape(title)}</title></rect>"
        )
        text = shorten(name, 48)
        wide = len(text) * _LETTER
        base = y + _LANE - 5
        if wide < width - 8:
            yield f'<text class="tick lane-name" x="{left + 5:.1f}" y="{base:.1f}">{escape(text)}</text>'
        elif right + 5 + wide < _WIDTH:
            yield f'<text class="tick lane-name" x="{right + 5:.1f}" y="{base:.1f}">{escape(text)}</text>'
        elif left - 5 - wide > 0:
            yield (
                f'<text class="tick lane-name" x="{left - 5:.1f}" y="{base:.1f}" text-anchor="end">'
                f"{escape(text)}</text>"
            )

    return drawn


def _bands(period: Period, device: PeriodDevice, x: X, begin: float, end: float) -> Iterator[str]:
    for gap in period.gaps:
        left, width = x(gap.begin), max(x(gap.end) - x(gap.begin), 1.0)
        yield (
            f'<rect class="not-recorded" fill="url(#hatch)" x="{left:.1f}" y="{begin}" width="{width:.1f}"'
            f' height="{end - begin}"><title>not recorded</title></rect>'
        )
    for one in findings_on(period, device):
        left, width = x(one.begin), max(x(one.end) - x(one.begin), 2.0)
        title = f"{clean(one.finding.title)}: {clock(one.begin, day=True)} to {clock(one.end, day=True)}"
        yield (
            f'<rect class="band {one.finding.severity}" x="{left:.1f}" y="{begin - 8}" width="{width:.1f}"'
            f' height="{end - begin + 8}"><title>{escape(title)}</title></rect>'
        )


def _marks(period: Period, device: PeriodDevice, x: X, y: float, end: float) -> Iterator[str]:
    """Events as marks over the graphs; beside each other where many are."""
    for one in events_on(period, device)[:_EVENTS]:
        at = x(one.at)
        look = one.severity if one.severity in _MARKS else "plain"
        yield f'<path class="event {look}" d="M{at:.1f} {y:.1f}V{end:.1f}"/>'
        yield (
            f'<text class="event-mark {look}" x="{at:.1f}" y="{y:.1f}" text-anchor="middle">'
            f"<title>{escape(f'{clock(one.at, day=True)} {clean(one.text)}')}</title>"
            f"{_MARKS.get(one.severity, '•')}</text>"
        )


def _graph(device: PeriodDevice, metric: str, series: PeriodSeries, y: float) -> Iterator[str]:
    low, high = BOTTOMS.get(metric, 0.0), top(device, metric)
    base = y + _GRAPH

    def at(value: float) -> float:
        share = (value - low) / ((high - low) or 1.0)
        return base - min(max(share, 0.0), 1.0) * _GRAPH

    yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base:.1f}" y2="{base:.1f}"/>'
    yield f'<text class="tick name" x="0" y="{y + _GRAPH / 2 + 4:.1f}">{NAMES[metric]}</text>'
    yield f'<text class="tick" x="{_LEFT - 6}" y="{y + 8:.1f}" text-anchor="end">{shown(metric, high)}</text>'
    yield f'<text class="tick low" x="{_LEFT - 6}" y="{base:.1f}" text-anchor="end">{shown(metric, low)}</text>'
    count = len(series.mean)
    step = (_WIDTH - _LEFT - _RIGHT) / max(count, 1)
    for begin, stop in _stretches(series):
        xs = [_LEFT + (place + 0.5) * step for place in range(begin, stop)]
        if stop - begin == 1:  # a point is as wide as its step
            xs = [xs[0] - step / 2, xs[0] + step / 2]
            places = [begin, begin]
        else:
            places = list(range(begin, stop))
        above = " ".join(f"{one:.1f} {at(series.most[n] or 0.0):.1f}" for one, n in zip(xs, places, strict=True))
        below = " ".join(
            f"{one:.1f} {at(series.least[n] or 0.0):.1f}" for one, n in reversed(list(zip(xs, places, strict=True)))
        )
        if any(series.most[n] != series.least[n] for n in places):
            yield f'<path class="range" d="M{above} {below}Z"/>'
        line = " ".join(f"{one:.1f} {at(series.mean[n] or 0.0):.1f}" for one, n in zip(xs, places, strict=True))
        yield f'<path class="line course" d="M{line}"/>'


def _stretches(series: PeriodSeries) -> Iterator[tuple[int, int]]:
    """Where there are values without a gap: begin and end."""
    begin: int | None = None
    for place, value in enumerate((*series.mean, None)):
        if value is not None and begin is None:
            begin = place
        if value is None and begin is not None:
            yield begin, place
            begin = None


def _columns(period: Period, device: PeriodDevice, begin: float, end: float) -> Iterator[str]:
    """Invisible columns with the values of a moment, for pointers and the arrow keys."""
    count = max((len(series.mean) for series in device.series.values()), default=0)
    if not count:
        return
    step = max(1, -(-count // _COLUMNS))
    width = (_WIDTH - _LEFT - _RIGHT) / count
    day = (period.end - period.begin).total_seconds() > 86_400
    for first in range(0, count, step):
        last = min(first + step, count)
        at = period.begin + datetime.timedelta(seconds=first * period.step_seconds)
        values = [
            f"{NAMES[metric]} {shown(metric, value)}"
            for metric in NAMES
            if metric in device.series and (value := _mean(device.series[metric], first, last)) is not None
        ]
        running = [
            f"{clean(one.finding.id)}"
            for one in findings_on(period, device)
            if one.begin <= at + datetime.timedelta(seconds=step * period.step_seconds) and one.end >= at
        ]
        also = f"; {', '.join(dict.fromkeys(running))}" if running else ""
        title = f"{clock(at, day=day)}: {', '.join(values) or 'not recorded'}{also}"
        yield (
            f'<rect class="at" x="{_LEFT + first * width:.1f}" y="{begin}" width="{(last - first) * width:.1f}"'
            f' height="{end - begin}"><title>{escape(title)}</title></rect>'
        )


def _mean(series: PeriodSeries, first: int, last: int) -> float | None:
    known = [one for one in series.mean[first:last] if one is not None]
    return sum(known) / len(known) if known else None


def _ticks(period: Period, x: X, top: float, height: float) -> Iterator[str]:
    """Round times, in local time."""
    seconds = (period.end - period.begin).total_seconds()
    step = next((one for one in _TICKS if seconds / one <= _MOST_TICKS), _TICKS[-1])
    offset = (period.begin.astimezone().utcoffset() or datetime.timedelta()).total_seconds()
    begin = period.begin.timestamp() + offset
    shape = "%m-%d %H:%M" if seconds > 86_400 else "%H:%M" if step >= 60 else "%H:%M:%S"
    for number in range(math.ceil(begin / step), math.floor((begin + seconds) / step) + 1):
        at = datetime.datetime.fromtimestamp(number * step - offset, datetime.UTC)
        left = x(at)
        inner = " inner" if number % 2 else ""
        yield f'<line class="grid" x1="{left:.1f}" x2="{left:.1f}" y1="{top:.1f}" y2="{height - _AXIS:.1f}"/>'
        if _LEFT + 12 <= left <= _WIDTH - _RIGHT - 12:
            yield (
                f'<text class="tick{inner}" x="{left:.1f}" y="{height - 8:.1f}" text-anchor="middle">'
                f"{at.astimezone().strftime(shape)}</text>"
            )


def _legend(period: Period, device: PeriodDevice) -> str:
    lanes = [
        f'<span class="key lane-key"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
        f'<rect class="lane c{number % _COLOURS}" x="1" y="1" width="12" height="12"/></svg>{escape(_name(one))}</span>'
        for number, one in enumerate(processes_on(period, device)[:_PROCESSES])
    ]
    keys = [
        *lanes,
        '<span class="key course"><i></i>mean</span>',
        '<span class="key range"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
        '<rect class="range" x="1" y="1" width="12" height="12"/></svg>least to most</span>',
    ]
    severities = {one.finding.severity for one in findings_on(period, device)}
    for severity in ("error", "warning", "info"):
        if severity in severities:
            keys.append(
                f'<span class="key"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
                f'<rect class="band {severity}" x="1" y="1" width="12" height="12"/></svg>finding ({severity})</span>'
            )
    if period.gaps:
        keys.append(
            '<span class="key"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
            '<rect fill="url(#hatch)" x="1" y="1" width="12" height="12"/></svg>not recorded</span>'
        )
    more = len(processes_on(period, device)) - _PROCESSES
    note = f" {more} more processes are in the table." if more > 0 else ""
    return f'{"".join(keys)}<span class="axis-note">A point is {_length(period.step_seconds)}.{note}</span>'


def _length(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"

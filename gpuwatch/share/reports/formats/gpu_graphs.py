"""Readings of a GPU over a stretch of a recording as inline SVG: graphs under each other on one clock.

Above them as bars: the saved runs and the processes that used it, and its errors and warnings by name; over them the
same as bands, events as marks, and what was not recorded, hatched. Axes are fixed: 0 to 100 %, to the total, to the
limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.recorded_period import Period, PeriodDevice, PeriodProcess, PeriodSeries
from gpuwatch.core.safe_text import shorten
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.session.event_timeline import SEVERITY_SIGNS, IncidentTrack, clock_ticks, incidents_of_period
from gpuwatch.share.reports.formats import svg_parts as svg
from gpuwatch.share.reports.recorded_period_graphs import (
    GRAPH_COLORS,
    GRAPH_NAMES,
    axis_high,
    axis_low,
    known_values,
    processes_on,
    runs_on,
    value_text,
)
from gpuwatch.share.reports.report_elements import PeriodGraphs
from gpuwatch.share.reports.report_text import clean

_LEFT = 92
_LANE_HEIGHT, _GRAPH_HEIGHT, _GAP_HEIGHT, _AXIS_HEIGHT = 17, 58, 12, 26
_MAX_PROCESSES, _MAX_RUNS, _MAX_INCIDENTS = 6, 4, 4
"""Rows of bars that are drawn; the others are in the tables."""
_COLUMNS = 96
_LETTER_WIDTH = 5.6
_MAX_NAME_CHARS = 60
_MAX_COLORS = 6
_MAX_EVENTS = 60
_MAX_TICKS = 9

_TimeToX = Callable[[float], float]
"""The place of a time, in seconds since the epoch."""


def period_graphs(chart: PeriodGraphs) -> Markup:
    """The graphs of one GPU under each other, with their bars and legend."""
    period, device = chart.period, chart.device
    begin, end = period.begin.timestamp(), period.end.timestamp()
    track = incidents_of_period(period).of_gpu(device.uuid)

    def x(at: float) -> float:
        return _LEFT + svg.fraction(at, begin, max(end, begin + 1e-9)) * (svg.RIGHT_EDGE - _LEFT)

    rows = _bar_rows(period, device, track, x)
    graphs = len(rows) * _LANE_HEIGHT + (20 if rows else 14)
    metrics = [metric for metric in GRAPH_NAMES if metric in device.series]
    height = graphs + len(metrics) * (_GRAPH_HEIGHT + _GAP_HEIGHT) + _AXIS_HEIGHT
    bottom = height - _AXIS_HEIGHT
    parts = [bar.svg(number * _LANE_HEIGHT) for number, row in enumerate(rows) for bar in row]
    parts += _time_ticks(begin, end, x, graphs, height)
    parts += _bands(period, track, x, graphs, bottom)
    for number, metric in enumerate(metrics):
        y = graphs + number * (_GRAPH_HEIGHT + _GAP_HEIGHT)
        parts += [f'<g class="of-{GRAPH_COLORS[metric]}">', *_metric_graph(device, metric, y), "</g>"]
    parts += _event_marks(period, track, x, graphs - 4, bottom)
    parts += _hover_columns(period, device, track, graphs, bottom)
    times = f"{_time_text(period, begin)} to {_time_text(period, end)}"
    description = f"GPU {device.index} from {times}: {', '.join(GRAPH_NAMES[metric] for metric in metrics)}"
    return svg.figure(height, description, parts, _legend(period, device, track))


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar with its name in it, or else beside it."""

    left: float
    right: float
    name: str
    title: str
    css_class: str

    @property
    def name_place(self) -> tuple[float, str]:
        """Where the name is, and how it is aligned; no alignment: there is no room."""
        name_width = len(self.name) * _LETTER_WIDTH
        if name_width < self.right - self.left - 8:
            return self.left + 5, "start"
        if self.right + 5 + name_width < svg.VIEWBOX_WIDTH:
            return self.right + 5, "start"
        return (self.left - 5, "end") if self.left - 5 - name_width > 0 else (self.left, "")

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends of the bar and its name together."""
        (at, anchor), name_width = self.name_place, len(self.name) * _LETTER_WIDTH
        begin, end = (at - name_width, at) if anchor == "end" else (at, at + name_width if anchor else at)
        return min(self.left, begin), max(self.right, end)

    def overlaps(self, other: _Bar) -> bool:
        return self.ends[0] < other.ends[1] + 6 and other.ends[0] < self.ends[1] + 6

    def svg(self, y: float) -> str:
        """The bar in a row that begins at ``y``."""
        at, anchor = self.name_place
        bar = (
            f'<rect class="{self.css_class}" x="{self.left:.1f}" y="{y + 1:.1f}" width="{self.right - self.left:.1f}"'
            f' height="{_LANE_HEIGHT - 3}" rx="2"><title>{escape(self.title)}</title></rect>'
        )
        return bar + (
            svg.text_label(at, y + _LANE_HEIGHT - 5, escape(self.name), anchor, "tick lane-name") if anchor else ""
        )


def _bar_rows(period: Period, device: PeriodDevice, track: IncidentTrack, x: _TimeToX) -> list[list[_Bar]]:
    """A row for each run and process; incidents share rows where they are not at the same time."""

    def bar(begin: float, end: float, name: str, title: str, css_class: str) -> _Bar:
        times = f"{_time_text(period, begin)} to {_time_text(period, end)}"
        return _Bar(x(begin), max(x(end), x(begin) + 2), shorten(name, _MAX_NAME_CHARS), f"{title}, {times}", css_class)

    rows: list[list[_Bar]] = []
    for run in runs_on(period, device)[:_MAX_RUNS]:
        name, ended = f"{clean(run.name)}: {clean(run.verdict)}", run.end or period.end
        rows.append([bar(run.begin.timestamp(), ended.timestamp(), name, f"run {name}", "phase p3")])
    for number, process in enumerate(processes_on(period, device)[:_MAX_PROCESSES]):
        name, begin, end = _process_name(process), process.begin.timestamp(), process.end.timestamp()
        rows.append([bar(begin, end, name, name, f"lane c{number % _MAX_COLORS}")])
    incident_rows: list[list[_Bar]] = []
    for incident in sorted(track.incidents, key=lambda incident: (incident.severity != "error", incident.begin)):
        name = clean(incident.text)
        incident_bar = bar(incident.begin, incident.end, name, name, f"band {incident.severity}")
        row = next((row for row in incident_rows if not any(incident_bar.overlaps(other) for other in row)), None)
        if row is not None:
            row.append(incident_bar)
        elif len(incident_rows) < _MAX_INCIDENTS:
            incident_rows.append([incident_bar])
    return rows + incident_rows


def _process_name(process: PeriodProcess) -> str:
    whose = f"{clean(process.user)}'s " if process.user else ""
    return f"{whose}{clean(process.program) if process.program else 'process'} ({process.pid})"


def _time_text(period: Period, at: float) -> str:
    """``14:05:31``, or ``05-11 14:05`` in more than a day, in local time."""
    form = "%m-%d %H:%M" if (period.end - period.begin).total_seconds() > 86_400 else "%H:%M:%S"
    return utc_datetime(at).astimezone().strftime(form)


def _bands(period: Period, track: IncidentTrack, x: _TimeToX, begin: float, end: float) -> Iterator[str]:
    """Their names are in the bars above, and in the values of each moment."""
    for gap in period.gaps:
        left, right = x(gap.begin.timestamp()), x(gap.end.timestamp())
        yield (
            f'<rect class="not-recorded" fill="url(#hatch)" x="{left:.1f}" y="{begin}"'
            f' width="{max(right - left, 1.0):.1f}" height="{end - begin}"/>'
        )
    for incident in track.incidents:
        left, right = x(incident.begin), x(incident.end)
        yield (
            f'<rect class="band {incident.severity}" x="{left:.1f}" y="{begin - 8}"'
            f' width="{max(right - left, 2.0):.1f}" height="{end - begin + 8}"/>'
        )


def _event_marks(period: Period, track: IncidentTrack, x: _TimeToX, y: float, end: float) -> Iterator[str]:
    """Events as marks over the graphs; beside each other where many are."""
    for mark in track.marks[:_MAX_EVENTS]:
        at = x(mark.begin)
        css_class = mark.severity if mark.severity in SEVERITY_SIGNS else "plain"
        yield f'<path class="event {css_class}" d="M{at:.1f} {y:.1f}V{end:.1f}"/>'
        title = escape(f"{_time_text(period, mark.begin)} {clean(mark.text)}")
        sign = f"<title>{title}</title>{SEVERITY_SIGNS.get(mark.severity, '•')}"
        yield svg.text_label(at, y, sign, css_class=f"event-mark {css_class}")


def _metric_graph(device: PeriodDevice, metric: str, y: float) -> Iterator[str]:
    series, base = device.series[metric], y + _GRAPH_HEIGHT
    low, high = axis_low(metric), axis_high(device, metric)

    def y_of(value: float) -> float:
        return base - svg.fraction(value, low, high) * _GRAPH_HEIGHT

    yield from (svg.horizontal_line(_LEFT, y), svg.horizontal_line(_LEFT, base))
    yield f'<text class="tick name" x="0" y="{y + _GRAPH_HEIGHT / 2 + 4:.1f}">{GRAPH_NAMES[metric]}</text>'
    yield svg.text_label(_LEFT - 6, y + 8, value_text(metric, high), "end")
    yield svg.text_label(_LEFT - 6, base, value_text(metric, low), "end", "tick low")
    step = (svg.RIGHT_EDGE - _LEFT) / max(len(series.mean), 1)
    for begin, stop in _value_ranges(series):
        indexes = list(range(begin, stop))
        xs = [_LEFT + (index + 0.5) * step for index in indexes]
        if stop - begin == 1:  # a point is as wide as its step
            indexes, xs = [begin, begin], [xs[0] - step / 2, xs[0] + step / 2]
        above, below, line = (
            [(value, y_of(values[index] or 0.0)) for value, index in zip(xs, indexes, strict=True)]
            for values in (series.most, series.least, series.mean)
        )
        if any(series.most[index] != series.least[index] for index in indexes):
            yield f'<path class="range" d="M{svg.path_points(above)} {svg.path_points(reversed(below))}Z"/>'
        yield f'<path class="line course" d="M{svg.path_points(line)}"/>'


def _value_ranges(series: PeriodSeries) -> Iterator[tuple[int, int]]:
    """Where there are values without a gap: begin and end."""
    for has_values, indexes in groupby(range(len(series.mean)), lambda index: series.mean[index] is not None):
        if has_values:
            first, *rest = indexes
            yield first, first + 1 + len(rest)


def _hover_columns(
    period: Period, device: PeriodDevice, track: IncidentTrack, begin: float, end: float
) -> Iterator[str]:
    count = max((len(series.mean) for series in device.series.values()), default=0)
    if not count:
        return
    width, step = (svg.RIGHT_EDGE - _LEFT) / count, -(-count // _COLUMNS)
    for first, last in svg.equal_parts(count, _COLUMNS):
        at = period.begin.timestamp() + first * period.step_seconds
        until = at + step * period.step_seconds
        values = []
        for metric in GRAPH_NAMES:
            if metric in device.series and (means := known_values(device.series[metric].mean[first:last])):
                values.append(f"{GRAPH_NAMES[metric]} {value_text(metric, sum(means) / len(means))}")
        texts = [clean(incident.text) for incident in track.incidents if incident.begin <= until and incident.end >= at]
        incidents_text = f"; {'; '.join(dict.fromkeys(texts))}" if texts else ""
        title = f"{_time_text(period, at)}: {', '.join(values) or 'not recorded'}{incidents_text}"
        yield svg.hover_column(_LEFT + first * width, begin, (last - first) * width, end - begin, title)


def _time_ticks(begin: float, end: float, x: _TimeToX, top: float, height: float) -> Iterator[str]:
    for number, (at, text) in enumerate(clock_ticks(begin, end, _MAX_TICKS)):
        left = x(at)
        inner = " inner" if number % 2 else ""
        yield f'<line class="grid" x1="{left:.1f}" x2="{left:.1f}" y1="{top:.1f}" y2="{height - _AXIS_HEIGHT:.1f}"/>'
        if _LEFT + 12 <= left <= svg.RIGHT_EDGE - 12:
            yield svg.text_label(left, height - 8, text, css_class=f"tick{inner}")


def _legend(period: Period, device: PeriodDevice, track: IncidentTrack) -> str:
    lanes = enumerate(processes_on(period, device)[:_MAX_PROCESSES])
    present = {incident.severity for incident in track.incidents}
    severities = [severity for severity in SEVERITY_SIGNS if severity in present]
    keys = [
        *(
            svg.legend_entry(f'class="lane c{number % _MAX_COLORS}"', _process_name(process), "key lane-key")
            for number, process in lanes
        ),
        '<span class="key course"><i></i>mean</span>',
        svg.legend_entry('class="range"', "least to most", "key range"),
        *(svg.legend_entry(f'class="band {severity}"', severity) for severity in severities),
    ]
    if period.gaps:
        keys.append(svg.legend_entry('fill="url(#hatch)"', "not recorded"))
    hidden_processes = len(processes_on(period, device)) - _MAX_PROCESSES
    note = (
        f" {count_text(hidden_processes, 'more process is', 'more processes are')} in the table."
        if hidden_processes > 0
        else ""
    )
    return f'{"".join(keys)}<span class="axis-note">A point is {hours_minutes(period.step_seconds)}.{note}</span>'

"""Bars and checks as inline SVG between HTML: the text stays text, so that a phone shows it whole."""

from __future__ import annotations

from markupsafe import Markup

from gpuwatch.model.doctor import State
from gpuwatch.reports.chart_data import Bars, Chart, Marks, Row
from gpuwatch.reports.formats.chart import memory_chart

_WIDE = 1000
_HIGH = 20
_COLOURS = 6
_SIGNS: dict[State, str] = {"pass": "●", "warn": "▲", "fail": "✖", "skip": "○"}
_CELL = 22


def draw(chart: Chart) -> Markup:
    """The chart; everything in it that is text is escaped."""
    if isinstance(chart, Bars):
        return _bars(chart)
    if isinstance(chart, Marks):
        return _marks(chart)
    drawn = memory_chart(chart.run)
    return Markup('<p class="chart-title">{}</p>{}').format(chart.title, drawn) if drawn is not None else Markup("")


def _bars(chart: Bars) -> Markup:
    rows = Markup("").join(_row(chart, row) for row in chart.rows)
    notes = (("Axis", chart.axis), ("┃", chart.mark), ("├─┤", chart.whisker))
    text = " · ".join(f"{sign} {note}" for sign, note in notes if note)
    return Markup(
        '<figure class="bars"><figcaption><b>{}</b><span class="axis-note">{}</span></figcaption>'
        '<div class="rows">{}</div>{}</figure>'
    ).format(
        chart.title,
        text,
        rows,
        Markup('<p class="note">{}</p>').format(chart.more) if chart.more else "",
    )


def _row(chart: Bars, row: Row) -> Markup:
    top = row.total or chart.top or 1.0
    at = 0.0
    shapes: list[Markup] = []
    for number, part in enumerate(row.parts):
        width = min(max(part.amount / top, 0.0), 1.0) * _WIDE
        name = f"part {part.kind}" + (f" c{number % _COLOURS}" if part.kind == "owner" else "")
        fill = Markup(' fill="url(#hatch)"') if part.kind == "unexplained" else ""
        shapes.append(
            Markup('<rect class="{}"{} x="{:.1f}" y="2" width="{:.1f}" height="{}"><title>{}</title></rect>').format(
                name, fill, at, max(width, 1.5), _HIGH - 4, f"{part.name}: {part.shown}"
            )
        )
        at += width
    if row.low is not None and row.high is not None:
        low, high = (min(max(edge / top, 0.0), 1.0) * _WIDE for edge in (row.low, row.high))
        middle = _HIGH / 2
        path = f"M{low:.1f} {middle}H{high:.1f}M{low:.1f} 5V15M{high:.1f} 5V15"
        # Twice, so that it can be told from the bar in light and dark.
        shapes += [Markup('<path class="{}" d="{}"/>').format(name, path) for name in ("halo", "whisker")]
    if row.mark is not None:
        x = min(max(row.mark / top, 0.0), 1.0) * _WIDE
        shapes.append(Markup('<path class="mark" d="M{:.1f} 0V{}"/>').format(x, _HIGH))
    label = f"{row.label}: {row.shown}"
    if len(row.parts) > 1 or (row.parts and row.parts[0].kind != "value"):
        label += "; " + ", ".join(f"{part.name} {part.shown}" for part in row.parts)
    owners = Markup("")
    if any(part.kind != "value" for part in row.parts):
        owners = Markup('<div class="owners">{}</div>').format(Markup("").join(_owner(row)))
    return Markup(
        '<div class="row"><span class="label">{}</span><svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none"'
        ' role="img" aria-label="{}"><rect class="track" x="0" y="2" width="{}" height="{}"/>{}</svg>'
        '<span class="amount">{}</span>{}</div>'
    ).format(row.label, _WIDE, _HIGH, label, _WIDE, _HIGH - 4, Markup("").join(shapes), row.shown, owners)


def _owner(row: Row) -> list[Markup]:
    drawn = []
    for number, part in enumerate(row.parts):
        colour = f" c{number % _COLOURS}" if part.kind == "owner" else ""
        drawn.append(
            Markup(
                '<span class="key"><svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">{}</svg>'
                "{} <b>{}</b></span>"
            ).format(_swatch(part.kind, colour), part.name, part.shown)
        )
    return drawn


def _swatch(kind: str, colour: str = " c0") -> Markup:
    name = f"part {kind}" + (colour if kind == "owner" else "")
    fill = Markup(' fill="url(#hatch)"') if kind == "unexplained" else ""
    return Markup('<rect class="{}"{} x="1" y="1" width="12" height="12"/>').format(name, fill)


def _marks(chart: Marks) -> Markup:
    rows = Markup("").join(_group(name, marks) for name, marks in chart.groups)
    keys = Markup("").join(
        Markup('<span class="key {}">{} {}</span>').format(state, sign, state) for state, sign in _SIGNS.items()
    )
    return Markup(
        '<figure class="bars marks"><figcaption><b>{}</b><span class="keys">{}</span></figcaption>'
        '<div class="rows">{}</div></figure>'
    ).format(chart.title, keys, rows)


def _group(name: str, marks: tuple[tuple[State, str], ...]) -> Markup:
    cells = [
        Markup(
            '<g class="{}"><title>{}</title><rect x="{}" y="1" width="{}" height="{}" rx="4"/>'
            '<text x="{}" y="15.5" text-anchor="middle">{}</text></g>'
        ).format(
            state,
            f"{title}: {state}",
            number * _CELL,
            _CELL - 3,
            _CELL - 3,
            number * _CELL + (_CELL - 3) / 2,
            _SIGNS[state],
        )
        for number, (state, title) in enumerate(marks)
    ]
    counts = {state: sum(one == state for one, _ in marks) for state in _SIGNS}
    text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    width = max(len(marks), 1) * _CELL
    return Markup(
        '<div class="row"><span class="label">{}</span><svg class="cells" width="{}" height="{}" viewBox="0 0 {} {}"'
        ' role="img" aria-label="{}">{}</svg><span class="amount">{}</span></div>'
    ).format(name, width, _CELL, width, _CELL, f"{name}: {text}", Markup("").join(cells), text)

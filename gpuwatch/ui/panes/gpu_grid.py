"""All GPUs as a grid of cards or lines, following the layout. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from gpuwatch.core.model.findings import Finding
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.overview_layout import OverviewLayout, plan_layout
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.panes import gpu_card, gpu_line
from gpuwatch.ui.panes.gpu_line import mig_instance_lines
from gpuwatch.ui.settings.preferences import Preferences

_FindingByGpu = Mapping[str | None, Finding]


def plan_overview(
    view: View,
    preferences: Preferences,
    width: int,
    height: int,
    fields: Sequence[str],
    *,
    processes: int,
    notice: int = 0,
) -> OverviewLayout:
    """The layout of the Overview; ``fields``: those of cards; ``processes``, ``notice``: see :func:`plan_layout`."""
    return plan_layout(
        width,
        height,
        len(view.devices),
        findings=view.has_problem,
        notice=notice,
        processes=-(-processes // 4) * 4,  # rounded up, so that one more rarely changes the layout
        fields=[(field.id, field.card_cells) for field in gpu_card.card_fields(fields)],
        instances=[len(device.mig_instances) for device in view.devices],
        choice=preferences.layout,
        graphs=preferences.graphs,
    )


def gpu_lines(
    view: View, layout: OverviewLayout, width: int, preferences: Preferences, *, cursor: int = -1, top: int = 0
) -> list[Line]:
    """The GPU pane; ``cursor``: index of the GPU under it, or -1; ``preferences``: with those fields that some GPU has.

    ``top``: the first visible row of lines, if not all fit.
    """
    findings = {finding.device_uuid: finding for finding in reversed(view.errors_and_warnings)}  # the worst wins
    if layout.gpus_as == "card":
        return _cards(view, layout, width, cursor, findings, preferences)
    lines = _rows(view, layout, width, cursor, findings, preferences)
    if not layout.scrolls:
        return lines
    room = layout.gpu_height - 1
    return [*lines[top : top + room], _hidden_gpus_line(view, len(lines), top, room, width, findings)]


def rows_of_lines(count: int, layout: OverviewLayout) -> int:
    """Rows that ``count`` devices need as lines."""
    return -(-count // layout.columns)


def _hidden_gpus_line(view: View, rows: int, top: int, room: int, width: int, findings: _FindingByGpu) -> Line:
    """How many GPUs are hidden above and below, and how many of them have findings."""
    hidden: list[list[str | None]] = [[], []]
    for number, device in enumerate(view.devices):
        row = number % rows
        if not top <= row < top + room:
            hidden[row >= top].append(device.uuid)
    builder = LineBuilder(width)
    builder.add("  ")
    for sign, word, there in (("↑", "above", hidden[0]), ("↓", "below", hidden[1])):
        if there:
            wrong = sum(uuid in findings for uuid in there)
            builder.add(f"{sign} {len(there)} more {word}", "accent")
            builder.add(f", ▲ {wrong}" if wrong else "", "warning").add("   ")
    return builder.add("Tab and arrows, or mouse wheel", "dim").fill_to(width).line()


def _cards(
    view: View, layout: OverviewLayout, width: int, cursor: int, findings: _FindingByGpu, preferences: Preferences
) -> list[Line]:
    edges = [width * column // layout.columns for column in range(layout.columns + 1)]
    cards = [
        gpu_card.gpu_card(
            device,
            view,
            edges[number % layout.columns + 1] - edges[number % layout.columns],
            layout,
            finding=findings.get(device.uuid),
            selected=number == cursor,
            preferences=preferences,
        )
        for number, device in enumerate(view.devices)
    ]
    rows = (cards[first : first + layout.columns] for first in range(0, len(cards), layout.columns))
    return [line for row in rows for line in _side_by_side(row)]


def _side_by_side(cells: Sequence[Sequence[list[Span]]], *end: Span) -> list[Line]:
    """Lines of cells that have equally many lines, with what ends each of them."""
    return [Line((*chain.from_iterable(parts), *end)) for parts in zip(*cells, strict=True)]


def _rows(
    view: View, layout: OverviewLayout, width: int, cursor: int, findings: _FindingByGpu, preferences: Preferences
) -> list[Line]:
    cell_width = width // layout.columns
    columns = gpu_line.fit_columns(cell_width, tuple(view.devices), preferences.gpu_fields)
    lines: list[Line] = []
    if layout.heading:
        heading = gpu_line.heading(cell_width, columns, view, preferences.gpu_order)
        lines += _side_by_side([[heading]] * layout.columns, (" " * (width - cell_width * layout.columns), "header"))
    rows = rows_of_lines(len(view.devices), layout)
    for row in range(rows):
        cells = []
        for number in range(row, len(view.devices), rows):
            device = view.devices[number]
            severity = findings[device.uuid].severity if device.uuid in findings else ""
            line = gpu_line.gpu_line(
                cell_width, device, columns, view, preferences.thresholds, finding=severity, selected=number == cursor
            )
            cells.append([line])
        lines += _side_by_side(cells, (" " * (width - cell_width * len(cells)), "text"))
        if layout.mig_lines:
            for below in mig_instance_lines(view.devices[row], view.processes, layout.mig_lines, width - 4):
                lines.append(Line((("    ", "text"), *below.fill_to(width - 4).spans)))
    return lines


def devices_of_rows(view: View, layout: OverviewLayout) -> list[int]:
    """Of lines with MIG instances: the device number of each row."""
    numbers: list[int] = []
    for number, device in enumerate(view.devices):
        numbers += [number] * (1 + min(len(device.mig_instances), layout.mig_lines))
    return numbers

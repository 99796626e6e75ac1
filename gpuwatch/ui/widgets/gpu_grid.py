"""Cards or lines of all GPUs beside and below each other, as the layout says. Pure, no Textual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwatch.ui.layout import Plan
from gpuwatch.ui.lines import Line, Span
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets import gpu_card, gpu_line
from gpuwatch.ui.widgets.mig_line import part_pens
from gpuwatch.ui.widgets.pen import Pen


def gpu_lines(
    view: View, plan: Plan, width: int, fields: Sequence[str], *, chosen: int = -1, top: int = 0
) -> list[Line]:
    """The pane of GPUs; ``chosen`` is the place of the one under the cursor, ``fields`` what is told of each.

    ``top``: the first row of lines that is shown, where not all of them fit.
    """
    found = {finding.device_uuid: finding.severity for finding in reversed(view.wrong)}  # the worst stays
    if plan.style == "card":
        return _cards(view, plan, width, chosen, found, fields)
    lines = _rows(view, plan, width, chosen, found, fields)
    if not plan.scrolls:
        return lines
    room = plan.gpu_height - 1
    return [*lines[top : top + room], _more(view, len(lines), plan.columns, top, room, width, found)]


def rows_of_lines(count: int, plan: Plan) -> int:
    """How many rows ``count`` devices take as lines."""
    return -(-count // plan.columns)


def _more(
    view: View, rows: int, columns: int, top: int, room: int, width: int, found: Mapping[str | None, str]
) -> Line:
    """How many GPUs are above and below what is shown, and whether one of them needs a look."""
    hidden: list[list[str | None]] = [[], []]
    for number, device in enumerate(view.devices):
        row = number % rows
        if not top <= row < top + room:
            hidden[row >= top].append(device.uuid)
    pen = Pen(width)
    pen.add("  ")
    for sign, word, there in (("↑", "above", hidden[0]), ("↓", "below", hidden[1])):
        if there:
            wrong = sum(uuid in found for uuid in there)
            pen.add(f"{sign} {len(there)} more {word}", "accent")
            pen.add(f", ▲ {wrong}" if wrong else "", "warning").add("   ")
    return pen.add("Tab and arrows, or the wheel", "dim").to(width).line()


def _cards(
    view: View, plan: Plan, width: int, chosen: int, found: Mapping[str | None, str], fields: Sequence[str]
) -> list[Line]:
    lines: list[Line] = []
    for first in range(0, len(view.devices), plan.columns):
        row: list[list[Span]] = [[] for _ in range(plan.card_height)]
        for place, device in enumerate(view.devices[first : first + plan.columns]):
            start, end = (width * place // plan.columns, width * (place + 1) // plan.columns)
            card = gpu_card.card(
                device,
                view,
                end - start,
                plan.graph,
                plan.bands,
                plan.facts,
                plan.parts,
                finding=found.get(device.uuid, ""),
                selected=first + place == chosen,
                fields=fields,
            )
            for spans, more in zip(row, card, strict=True):
                spans.extend(more)
        lines += [Line(tuple(spans)) for spans in row]
    return lines


def _rows(
    view: View, plan: Plan, width: int, chosen: int, found: Mapping[str | None, str], fields: Sequence[str]
) -> list[Line]:
    one = width // plan.columns
    at = gpu_line.columns_for(one, tuple(view.devices), fields)
    lines: list[Line] = []
    if plan.heading:
        pen = Pen(width)
        for column in range(plan.columns):
            part = Pen(one)
            gpu_line.heading(part, at, view)
            pen.to(column * one)
            pen.spans += part.spans
            pen.x += part.x
        lines.append(pen.to(width, ink="header").line())
    rows = rows_of_lines(len(view.devices), plan)
    for row in range(rows):
        pen = Pen(width)
        for column in range(plan.columns):
            number = column * rows + row
            if number >= len(view.devices):
                continue
            device = view.devices[number]
            pen.to(column * one)
            part = Pen(one)
            gpu_line.draw(part, device, at, view, finding=found.get(device.uuid, ""), selected=number == chosen)
            pen.spans += part.spans
            pen.x += part.x
        lines.append(pen.to(width).line())
        if plan.parts:
            processes = view.snapshot.processes if view.snapshot is not None else ()
            for below in part_pens(view.devices[row], processes, plan.parts, width - 4):
                lines.append(Line((("    ", "text"), *below.to(width - 4).spans)))
    return lines


def owners(view: View, plan: Plan) -> list[int]:
    """Line style with MIG instances: which device each row is about."""
    found: list[int] = []
    for number, device in enumerate(view.devices):
        found += [number] * (1 + min(len(device.mig_instances), plan.parts))
    return found

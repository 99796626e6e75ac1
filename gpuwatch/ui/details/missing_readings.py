"""Why a cell is empty: the reading, the reason, the driver's answer, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gpuwatch.core.formatting.durations import ago
from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.model.metrics import BY_ID, METRICS, Lane
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import IDLE_SINCE, PROCESS_READINGS, RUN_SECONDS, Device
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.styled_lines import Span, SpanLines
from gpuwatch.ui.tables.process_columns import COLUMNS, command_text, is_on_cpu
from gpuwatch.ui.tables.process_table_rows import Row, UnexplainedMemory

_REASON_TEXTS = {
    "not_supported": "not supported by this device or driver",
    "permission_denied": "permission denied",
    "failed": "the call failed",
    "stale": "no longer readable",
    "device_lost": "the device does not respond",
    "no_sample": "no sample yet",
    "implausible": "no GPU can have the value that the driver answered",
    "unknown": "unknown",
}
_HOW_OFTEN = {
    Lane.FAST: "queried with every sample",
    Lane.SLOW: "queried every few seconds",
    Lane.ONCE: "queried until it is known",
    Lane.GPM: "queried with every sample",
}
_TITLES = {column.reading: (column.title, column.help) for column in COLUMNS if column.reading}


def _title_line(name: str) -> list[Span]:
    """The header and help of its column, else its title."""
    spec = BY_ID.get(name)
    title, help_ = _TITLES.get(name, (spec.title if spec is not None else name.replace("_", " "), ""))
    return [(f"  {title}", "strong"), (f"  {help_}" if help_ else "", "dim")]


def _missing_lines(
    missing: Mapping[str, Missing], order: tuple[str, ...], last_known: Callable[[str], str] | None = None
) -> SpanLines:
    """Each with its reason, the call and how often it is made, and the ``last_known`` value."""
    lines: SpanLines = []
    ranks = {name: rank for rank, name in enumerate(order)}
    for name in sorted(missing, key=lambda n: ranks.get(n, len(ranks))):
        why = missing[name]
        spec = BY_ID.get(name)
        lines.append(_title_line(name))
        detail = printable(why.detail)
        if why.reason == "not_supported" and why.code is None and spec is None and detail:
            # The driver has no such call.
            lines.append([("    ", "text"), (detail, "text")])
            continue
        code = f", NVML code {why.code}" if why.code is not None else ""
        style = "warning" if why.reason == "failed" else "text"
        lines.append([("    ", "text"), (_REASON_TEXTS[why.reason] + code, style)])
        call = spec.call if spec is not None else ""
        notes = [detail or (f"queried with {call}" if call else "")]
        if spec is not None and spec.lane in _HOW_OFTEN and (why.code is not None or why.reason != "not_supported"):
            notes.append("retried once a minute" if why.reason == "not_supported" else _HOW_OFTEN[spec.lane])
        notes.append(last_known(name) if last_known is not None else "")
        lines += [[("    ", "text"), (note, "dim")] for note in notes if note]
    return lines


def _read_at(view: View) -> list[Span]:
    if view.snapshot is None:
        return []
    moment = view.snapshot.taken_at.timestamp()
    return [("as read at ", "dim"), (clock_text(moment), "text"), (f", {ago(max(view.now - moment, 0.0))}", "dim")]


def _last_read(uuid: str, view: View, metric: str) -> str:
    """The last known value of a metric, and when it was read; empty if there is none."""
    spec = BY_ID.get(metric)
    both = zip(reversed(view.history.times), reversed(view.history.series(uuid, metric)), strict=False)  # end now
    known = next(((moment, value) for moment, value in both if value is not None), None)
    if spec is None or known is None:
        return ""
    moment, value = known
    return f"last read at {clock_text(moment)}, {ago(max(view.now - moment, 0.0))}: {metric_value_text(spec, value)}"


def missing_of_device(device: Device, view: View) -> tuple[str, SpanLines]:
    """Title and lines for one device."""
    return "Missing readings", [_read_at(view), *_device_lines(device, view)]


def _device_lines(device: Device, view: View) -> SpanLines:
    name = f"  {printable(device.name)}  "
    lines: SpanLines = [[("GPU ", "dim"), (str(device.index), "strong"), (name, "text"), (device.uuid, "dim")]]
    if device.state != "ok":
        detail = f": {printable(device.state_detail)}" if device.state_detail else ""
        lines.append([(f"state {device.state}{detail}", "error")])
    lines.append([])
    if device.missing:
        order = tuple(spec.id for spec in METRICS)
        lines += _missing_lines(device.missing, order, partial(_last_read, device.uuid, view))
    else:
        lines.append([("  no reading of this device is missing", "ok")])
    return lines


def missing_of_row(row: Row, view: View) -> tuple[str, SpanLines]:
    """Title and lines for one row of the process table, and its device."""
    if isinstance(row, UnexplainedMemory):
        amount = f"{memory(row.amount)} owned by no listed process"
        lines: SpanLines = [[(amount, "strong")], [(row.reason, "text")], _read_at(view)]
        for part, _ in row.parts:
            lines += [[], *_device_lines(part, view)]
        return "Unexplained memory", lines
    lines = [[("process ", "dim"), (str(row.pid), "strong"), ("  " + command_text(row), "text")]]
    if row.note:
        lines.append([(f"note: {printable(row.note)}", "warning")])
    lines += [_read_at(view), []]
    unmapped = "it is on no GPU; Enter shows why" if is_on_cpu(row) else "its device map is unknown"
    for name, value, why in (
        ("USER", row.user, "the owner could not be read"),
        ("FRAMEWORK", row.framework, "none recognized in its memory maps"),
        ("SEES", row.device_map or None, unmapped),
    ):
        if value is None:
            lines.append([(f"  {name}", "strong"), (f"  {printable(row.note or why)}", "text")])
    lines += _missing_lines(row.missing, (*PROCESS_READINGS, IDLE_SINCE, RUN_SECONDS))
    if not row.missing:
        lines.append([("  no reading of this process is missing", "ok")])
    device = view.device(row.device_uuid)
    if device is not None:
        lines += [[], *_device_lines(device, view)]
    return "Missing readings", lines

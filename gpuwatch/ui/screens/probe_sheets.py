"""Sheets of probes: parameters of the next runs, what they will use and risk, one run, settings as code."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from gpuwatch.core.formatting.sentences import count_text, first_and_more, gpu_list_text
from gpuwatch.core.formatting.units import UNKNOWN, gib, memory, size
from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.parsing import parse_integer
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.probing.probe_scripts import MEASUREMENT_SECONDS, WORKLOADS
from gpuwatch.session.background_probes import ProbeParameters
from gpuwatch.session.probe_batch import Preflight
from gpuwatch.share.reports.report_elements import GLYPHS, Content, Table
from gpuwatch.share.reports.run_report import run_content
from gpuwatch.ui.details.finding_lines import entry_lines
from gpuwatch.ui.drawing.styled_lines import Line, Span, SpanLines, wrap_lines
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.screens.sheet_bases import ActionSheet, LinesSheet, SheetAction, SheetScreen, sheet_bindings
from gpuwatch.ui.settings.preferences import InvalidValue
from gpuwatch.ui.tables.process_columns import short_command
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from gpuwatch.ui.widgets.probe_table import STATE_STYLES

_FIELDS = (
    ("workload", "Workload", "the configuration's own; " + " ".join(WORKLOADS)),
    ("seconds", "Seconds", f"{MEASUREMENT_SECONDS:g}"),
    ("memory_limit", "Memory limit", "MB, for configurations with a limit; 1024"),
    ("fraction", "Fraction", "0 to 1, for configurations with a fraction; 0.4"),
    ("visible", "Visible list", "CUDA_VISIBLE_DEVICES, where a configuration sets it"),
    ("virtual", "Virtual GPUs", "1 to 16, for the configuration that has them; 2"),
    ("gpu", "GPU", "index or UUID; all"),
    ("python", "Interpreter", "a Python with TensorFlow; detected by default"),
)
_GROW_OR_LIMIT = frozenset(
    ["growth", "growth-env", "grow-to-limit", "growth-and-limit", "limit", "session-growth", "session-grow-to-limit"]
)
"""Probes that do not reserve all free memory."""
_MAX_PROGRAMS = 6
"""Maximum programs listed; more are counted."""
_MAX_CONFIGURATIONS = 4
"""Maximum configurations named; more are counted."""
_FIRST_TABLES = ("Device map", "Settings", "Fallbacks", "Out of memory", "Errors")
_MAX_LOG_LINES = 60


def parse_parameters(typed: dict[str, str], devices: Sequence[Device]) -> ProbeParameters:
    """The parameters typed; raises :class:`InvalidValue` for the first invalid one."""
    text = {name: value.strip() for name, value in typed.items()}
    if text["workload"] not in ("", *WORKLOADS):
        raise InvalidValue(f"workload must be one of {', '.join(WORKLOADS)}")
    seconds = _number(text["seconds"] or str(MEASUREMENT_SECONDS), "seconds", 0.01, 3600)
    limit, fraction, virtual = text["memory_limit"], text["fraction"], text["virtual"]
    if virtual and parse_integer(virtual) is None:
        raise InvalidValue(f"virtual GPUs: {printable(virtual)!r} is not a whole number")
    return ProbeParameters(
        workload=text["workload"],
        seconds=seconds,
        memory_limit=int(_number(limit, "memory limit", 1, 10**7)) if limit else None,
        fraction=_number(fraction, "fraction", 0.001, 1) if fraction else None,
        visible=printable(text["visible"]),
        virtual=int(_number(virtual, "number of virtual GPUs", 1, 16)) if virtual else None,
        gpu=_device(text["gpu"], devices),
        python=text["python"],
    )


def _number(text: str, name: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidValue(f"{name}: {printable(text)!r} is not a number") from None
    if not low <= value <= high:
        raise InvalidValue(f"{name} must be between {low:g} and {high:g}")
    return value


def _device(text: str, devices: Sequence[Device]) -> str:
    if text in ("", "all"):
        return ""
    found = [d for d in devices if (str(d.index) == text if text.isdigit() else d.uuid.startswith(text))]
    if len(found) != 1:
        known = ", ".join(str(device.index) for device in devices) or "none"
        raise InvalidValue(f"there is no GPU {printable(text)}; here: {known}")
    return found[0].uuid


class ParametersSheet(SheetScreen[ProbeParameters]):
    """Enter applies the parameters, Esc cancels."""

    BINDINGS = sheet_bindings({"escape": "close", "up": "app.focus_previous", "down": "app.focus_next"})

    def __init__(self, parameters: ProbeParameters, devices: Sequence[Device]) -> None:
        super().__init__()
        self._devices = devices
        self._before = parameters
        self._problem = PaintedPane(id="problem")
        self._inputs = {
            name: Input(self._shown(name), placeholder=hint, compact=True, id=name) for name, _, hint in _FIELDS
        }

    def compose(self) -> ComposeResult:
        with Vertical(id="parameters") as box:
            box.border_title = "Parameters of the next runs"
            box.border_subtitle = "Enter Apply  Esc Cancel"
            for name, title, _ in _FIELDS:
                with Horizontal(classes="field"):
                    label = PaintedPane()
                    label.add_class("label")
                    label.paint((Line(((f"{title:<13}", "dim"),)),))
                    yield label
                    yield self._inputs[name]
            yield self._problem

    def _shown(self, name: str) -> str:
        value = getattr(self._before, name)
        if name == "gpu":
            return next((str(device.index) for device in self._devices if device.uuid == value), value)
        return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    @on(Input.Submitted)
    def _apply(self) -> None:
        typed = {name: field.value for name, field in self._inputs.items()}
        try:
            self.dismiss(parse_parameters(typed, self._devices))
        except InvalidValue as wrong:
            self._problem.paint((Line(((f"✖ {wrong}", "error"),)),))


class PreflightSheet(ActionSheet[bool]):
    """Result True: run. Enter cancels unless the cursor was moved; ``y`` runs."""

    def __init__(self, preflight: Preflight, seconds: float, width: int) -> None:
        """``seconds``: the time budget of each measurement."""
        room = min(width * 9 // 10, 104) - 4
        count = len(preflight.configs)
        what = printable(preflight.configs[0] if count == 1 else f"{count} configurations")
        lines = wrap_lines(_preflight_lines(preflight, seconds, room), room)
        choices = (
            SheetAction("Cancel", "start nothing", "starts nothing"),
            SheetAction("Run", what, f"runs {what}", "y"),
        )
        super().__init__(f"Run {what}?", [*lines, []], choices)

    def take(self, number: int) -> None:
        self.dismiss(number > 0)


def _preflight_lines(preflight: Preflight, seconds: float, room: int) -> SpanLines:
    """Who is on the GPU, what the probes take, what is at risk: a line each; then the programs and exceptions."""
    count = len(preflight.configs)
    each = f"{seconds:g} s of measuring" + (" each" if count > 1 else "")
    names = _names_text(preflight.configs)
    if not preflight.devices:
        takes = f"{names}: {each}, on the CPU"
        return [
            _named_line("on the GPU", "no GPU is available: the probes run on the CPU", "text"),
            _named_line("takes", takes, "text"),
            _named_line("at risk", "nothing on a GPU", "ok"),
        ]
    programs = {(process.pid, process.create_time) for process in preflight.compute_processes}
    on_gpu = f"{_gpus_text(preflight)}: {_programs_text(preflight, len(programs))}"
    lines: SpanLines = [
        _named_line("on the GPU", on_gpu, "warning" if programs else "ok"),
        _named_line("takes", _memory_to_take(preflight), "text"),
    ]
    if programs:
        risk = "the other programs can run out of memory if they request more meanwhile; all run slower"
        lines.append(_named_line("▲ at risk", risk, "warning"))
    else:
        lines.append(_named_line("at risk", "nothing: no other compute program is there", "ok"))
    notes = [f"runs {names}; {'one by one, ' if count > 1 else ''}{each}"]
    if preflight.busy_devices:
        are = "are not used: they are" if len(preflight.busy_devices) > 1 else "is not used: it is"
        notes.append(f"{gpu_list_text(device.index for device in preflight.busy_devices)} {are} busy")
    if preflight.sets_visible_itself:
        several = len(preflight.sets_visible_itself) > 1
        chooses = "select their GPUs themselves" if several else "selects its GPUs itself"
        notes.append(f"{_names_text(preflight.sets_visible_itself)} {chooses}")
    lines.append([])
    for process in preflight.compute_processes[:_MAX_PROGRAMS]:
        user = align_left(printable(process.user) if process.user else UNKNOWN, 9)
        held_here = align_right(gib(process.number("gpu_memory_bytes")), 10)
        begin = f"  {align_right(str(process.pid), 9)}  "
        rest = f"{user} GPU {process.device_index} {held_here}  {short_command(process)}"
        lines.append([(begin, "strong"), (cut_to_width(rest, room - len(begin)), "text")])
    if len(preflight.compute_processes) > _MAX_PROGRAMS:
        lines.append([(f"  and {len(preflight.compute_processes) - _MAX_PROGRAMS} more", "dim")])
    return lines + [[(" · ", "dim"), (note, "dim")] for note in notes]


def _named_line(name: str, text: str, style: str) -> list[Span]:
    return [(align_left(f" {name}", 13), "warning" if name.startswith("▲") else "dim"), (text, style)]


def _gpus_text(preflight: Preflight) -> str:
    devices = preflight.devices
    if len(devices) == 1:
        return f"GPU {devices[0].index} {printable(devices[0].name)}"
    return f"GPUs {', '.join(str(device.index) for device in devices)}"


def _programs_text(preflight: Preflight, count: int) -> str:
    if not count:
        return "no compute process"
    held = memory(preflight.held_bytes) if preflight.held_bytes is not None else "an unknown amount of memory"
    return f"{count_text(count, 'program')}, holding {held}"


def _memory_to_take(preflight: Preflight) -> str:
    grows = sum(config in _GROW_OR_LIMIT for config in preflight.configs)
    most = "what it needs, of the free" if grows == len(preflight.configs) else "up to all free"
    if len(preflight.devices) > 2:
        free = [device.number("memory.free_bytes") for device in preflight.devices]
        known = [amount for amount in free if amount is not None]
        total = f"{size(sum(known))} of {len(free)} GPUs" if len(known) == len(free) else f"of {len(free)} GPUs"
        return f"{most}: {total}"
    free_of = (f"{size(device.number('memory.free_bytes'))} of GPU {device.index}" for device in preflight.devices)
    return f"{most}: {', '.join(free_of)}"


def _names_text(names: tuple[str, ...]) -> str:
    """The first ones by name, the rest as a number."""
    return first_and_more(list(map(printable, names)), _MAX_CONFIGURATIONS)


def run_lines(run: Run, width: int) -> SpanLines:
    """The content of a report on this run in ``width`` cells, with secrets masked."""
    shown = masked(run)
    assert isinstance(shown, Run)
    content = run_content(shown)
    verdict = (f"{GLYPHS[content.state]} {content.verdict}  ", STATE_STYLES[content.state])
    lines: SpanLines = [[verdict, (content.reason, "text")]]
    if content.simulated:
        lines.append([(" SIMULATED ", "badge-neutral"), (" " + content.simulated, "dim")])
    lines += [[], *[[(f"  {name:<14}", "dim"), (text, "text")] for name, text in content.facts]]
    for finding in shown.findings:
        if finding.id != "healthy":
            lines += [[], *entry_lines(finding, None)]
    tables = {table.title: table for table in content.tables}
    order = [name for name in _FIRST_TABLES if name in tables] + [name for name in tables if name not in _FIRST_TABLES]
    for name in order:
        lines += [[], *_table_lines(tables[name], width)]
    lines += _log_lines(content)
    return lines


def _table_lines(table: Table, width: int) -> SpanLines:
    lines: SpanLines = [[(table.title, "title")]]
    sizes = [max(width_of(text) for text in column) for column in zip(table.heads, *table.rows, strict=True)]
    if 2 + sum(sizes) + 2 * len(sizes) <= width:
        rows = [(table.heads, "dim")] + [(row, "text") for row in table.rows]
        for row, style in rows:
            cells = [
                (align_right if head in table.right else align_left)(text, size)
                for head, text, size in zip(table.heads, row, sizes, strict=True)
            ]
            lines.append([("  " + "  ".join(cells), style)])
        return lines
    if len(table.heads) == 2:
        return lines + [[(f"  {align_left(name, sizes[0])}  ", "dim"), (text, "text")] for name, text in table.rows]
    for row in table.rows:
        cells = [f"{head} {text}" for head, text in zip(table.heads, row, strict=True) if text not in ("", "–")]
        lines.append([("  · ", "dim"), (" · ".join(cells), "text")])
    return lines


def _log_lines(content: Content) -> SpanLines:
    if not content.log_tail:
        return []
    tail = content.log_tail[-_MAX_LOG_LINES:]
    head: list[Span] = [("End of the log", "title"), (f"  last {count_text(len(tail), 'line')}", "dim")]
    return [[], head, *[[("  ", "dim"), (line, "dim")] for line in tail]]


class RunSheet(LinesSheet[str]):
    """A run; ``e`` shows its settings as code, ``o`` writes a report, ``y`` copies the command that shows it."""

    def __init__(self, run: Run, width: int) -> None:
        title = f"{run.config} · {run.started_at:%Y-%m-%d %H:%M:%S}"
        keys = {"enter": None, "e": "code", "o": "report", "y": "command"}
        super().__init__(title, run_lines(run, width), keys=keys)
        self.pane.styles.max_width = width + 6
        self.pane.ending = "e as code  o report  y copy command  Esc closes"


class CodeSheet(LinesSheet[None]):
    """Source code with dim comments."""

    def __init__(self, title: str, source: str) -> None:
        lines = [_code_spans(line) for line in source.splitlines()]
        super().__init__(f"{title} as code", lines, to_copy=source, keys={"e": None})
        self.pane.ending = "c copies  Esc closes"


def _code_spans(line: str) -> list[tuple[str, str]]:
    code, mark, comment = line.partition("#")
    indent = len(line) - len(line.lstrip(" "))
    if mark and not code.strip():
        return [(line[:indent], "dim"), (printable(mark + comment), "dim")]
    return [(line[:indent], "text"), (printable(line[indent:]), "accent" if "os.environ" in line else "text")]

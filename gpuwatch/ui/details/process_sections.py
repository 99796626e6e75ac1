"""Text sections of the Process tab: identity, device map or why it is on the CPU, settings, environment. Pure."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath

from gpuwatch.core.formatting.command_lines import without_folder
from gpuwatch.core.formatting.durations import clock_duration
from gpuwatch.core.formatting.sentences import number_ranges
from gpuwatch.core.formatting.units import UNKNOWN, memory
from gpuwatch.core.masking.mask_secrets import MASK, mask_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import MappedDevice, Process, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.program_on_cpu import cpu_reason, not_simulated, why_maybe_on_gpu
from gpuwatch.machine.collector.host_processes import DeviceNumbers
from gpuwatch.machine.sources.process_details import ProcessDetails
from gpuwatch.session.process_history import Identity
from gpuwatch.session.view import View
from gpuwatch.ui.details.environment_effects import variable_effects
from gpuwatch.ui.details.finding_lines import cause_page_style, entry_lines
from gpuwatch.ui.drawing.clock_text import date_and_time
from gpuwatch.ui.drawing.styled_lines import Span, SpanLines
from gpuwatch.ui.panes.overview_summary import idle_text
from gpuwatch.ui.tables.process_columns import command_text, device_prefix

_MAX_DEVICES = 2
"""Devices that a process may see before those without memory share a line."""


def identity_lines(
    identity: Identity, rows: tuple[Process, ...], at: float, details: ProcessDetails | None, note: Span
) -> SpanLines:
    """Two lines: the command; then start time, framework and container. ``at``: the moment shown, in epoch seconds."""
    if not rows:
        state = ("not seen since it was selected", "dim") if not note[0] else note
        return [[(" ", "text"), (str(identity[0]), "strong"), ("  ", "text"), state], []]
    first = rows[0]
    value: list[Span] = [(" ", "text"), (str(first.pid), "strong"), ("  ", "text")]
    value += [(printable(first.user), "text") if first.user else (UNKNOWN, "dim"), ("  ", "text")]
    if note[0]:
        value += [note, ("  ", "text")]
    value.append((without_folder(mask_text(command_text(first))), "strong"))
    started: list[Span] = [("since –", "dim")]
    if first.create_time is not None:
        lasted = clock_duration(first.run_seconds(at))
        started = [("since ", "dim"), (date_and_time(first.create_time), "text"), (f" ({lasted})", "dim")]
    unknown = ("no framework recognized in its memory maps", "dim")
    framework = (printable(first.framework), "accent") if first.framework else unknown
    two: list[Span] = [(" ", "text"), *started, ("  ", "text"), framework]
    if first.container:
        two += [("  in ", "dim"), (printable(first.container), "text")]
    if details is not None and details.inner_pid is not None:
        two += [("  another PID namespace, there ", "dim"), (f"pid {details.inner_pid}", "text")]
    if first.note:
        two += [("  ", "text"), (printable(first.note), "warning")]
    if details is not None and details.interpreter:
        two += [("  ", "text"), (printable(details.interpreter), "dim")]
    return [value, two]


def map_lines(rows: tuple[Process, ...], view: View, numbers: DeviceNumbers = ()) -> SpanLines:
    """Each of its device numbers, the physical GPU behind it, and the source of the map."""
    if not rows:
        return []
    name = device_prefix(rows[0].framework) or "device "
    held = {row.device_uuid: row for row in rows}
    device_map, source = most_certain_map(rows, numbers, view.snapshot)
    lines: SpanLines = []

    def add(spans: list[Span], row: Process | None) -> None:
        lines.append(spans)
        if row is not None and (idle := idle_text(view, row)):
            lines.append([(f"  idle {idle}", "text")])

    # Of many devices only those that it uses have their own lines.
    unused = [mapping for mapping in device_map if mapping.uuid not in held]
    folded = unused if len(device_map) > _MAX_DEVICES and len(unused) > 1 else []
    for mapping in (mapping for mapping in device_map if mapping not in folded):
        row = held.pop(mapping.uuid, None)
        certainty = (f"  {mapping.certainty}", "ok" if mapping.certainty == "fact" else "dim")
        amount = f"  {_memory_text(row)}" if row is not None else "  no memory"
        lines.append([(f"{name}{mapping.ordinal} → physical {mapping.index}", "strong"), certainty, (amount, "dim")])
        add([("  ", "text"), (printable(mapping.uuid), "dim")], row)
    if folded:
        ordinals = number_ranges(mapping.ordinal for mapping in folded)
        indices = number_ranges(mapping.index for mapping in folded)
        text = f"{len(folded)} more: {name}{ordinals} → physical {indices}"
        lines.append([(text, "text"), ("  no memory", "dim")])
    for row in (row for row in held.values() if row.device_index is not None):
        mig = f" MIG {printable(row.mig_instance)}" if row.mig_instance else ""
        unnumbered = f"  {_memory_text(row)}; its device number is unknown"
        add([(UNKNOWN, "dim"), (f" → physical {row.device_index}{mig}", "strong"), (unnumbered, "dim")], row)
    if not lines:
        lines.append([("uses no GPU", "dim")])
    elif source:
        word, _, rest = source.partition(" ")  # below which the rest goes on
        lines.append([(f"{word} ", "dim"), (rest, "dim")])
    if not device_map and rows[0].note:
        lines.append([("no map: ", "dim"), (printable(rows[0].note), "warning")])
    return lines


def _memory_text(row: Process) -> str:
    return memory(row.number("gpu_memory_bytes"))


def setting_lines(rows: tuple[Process, ...], details: ProcessDetails | None, view: View) -> SpanLines:
    """Environment variables that affect GPUs, with their effect."""
    if not rows:
        return []
    first = rows[0]
    environment = details.environment if details is not None else None
    note: SpanLines = []
    if environment is None:
        if first.cuda_visible_devices is not None:
            environment = {"CUDA_VISIBLE_DEVICES": first.cuda_visible_devices}
        if details is None:
            note = [[("◌ reading its environment", "dim")]]
        else:
            why = details.problem or details.why.get("environment", "unknown")
            note = [[("– its environment cannot be read: ", "dim"), (why, "warning")]]
        if environment is None:
            return note
    lines: SpanLines = []
    framework = first.framework if not note else None
    for setting in variable_effects(environment, framework, view.devices):
        name = printable(setting.name)
        if setting.value is None:
            if not note:
                lines += [[(f"{name} not set", "dim")], [("  → ", "dim"), (setting.effect, "dim")]]
            continue
        mark: Span = ("  ▲ ", "warning") if setting.wrong else ("  → ", "accent")
        lines.append([(f"{name}=", "text"), (printable(setting.value), "strong")])
        lines.append([mark, (printable(setting.effect), "text")])
    return lines + note


def process_finding_lines(rows: tuple[Process, ...], findings: tuple[Finding, ...], view: View) -> SpanLines:
    """Findings about the process."""
    pids = {row.pid for row in rows}
    lines: SpanLines = []
    for finding in findings:
        if finding.pid in pids:
            lines += [
                [(mask_text(text), style) for text, style in line] for line in entry_lines(finding, view.snapshot)
            ]
    return lines or [[("● ", "ok"), ("no findings about this process", "text")]]


def tree_lines(identity: Identity, rows: tuple[Process, ...], details: ProcessDetails | None) -> SpanLines:
    """Its ancestors, itself, its descendants."""
    if details is None:
        return [[("◌ reading", "dim")]]
    if details.problem:
        return [[("– cannot be read: ", "dim"), (details.problem, "warning")]]
    lines: SpanLines = []
    deep = len(details.parents)
    for number, parent in enumerate(reversed(details.parents)):
        lines.append(_branch(number, parent.pid, parent.command, "dim"))
    lines.append(_branch(deep, identity[0], mask_text(command_text(rows[0])) if rows else "", "strong"))
    lines += [_branch(deep + relative.depth, relative.pid, relative.command, "text") for relative in details.children]
    return lines


def _branch(depth: int, pid: int, command: str, style: str) -> list[Span]:
    lead = "  " * (depth - 1) + "└─" if depth else ""
    return [(lead, "faint"), (f"{pid} ", style), (printable(command), style)]


def environment_lines(details: ProcessDetails | None) -> SpanLines:
    """The whole environment, sorted by name."""
    if details is None:
        return [[("◌ reading", "dim")]]
    if details.environment is None:
        why = details.problem or details.why.get("environment", "unknown")
        return [[("– cannot be read: ", "dim"), (why, "warning")]]
    if not details.environment:
        return [[("empty", "dim")]]
    return [
        [(f"{printable(name)}=", "dim"), (printable(value), "warning" if value == MASK else "text")]
        for name, value in sorted(details.environment.items())
    ]


def most_certain_map(
    rows: tuple[Process, ...], numbers: DeviceNumbers, snapshot: Snapshot | None
) -> tuple[tuple[MappedDevice, ...], str]:
    """The most certain map of a process, and its source in one line; empty if there is no map.

    A real driver does not report which of a process's own device numbers a GPU has: the environment makes it
    likely. It is a fact if the process sees only one GPU and the driver lists it there, and on simulated GPUs,
    whose driver records the devices it gave to a process.
    """
    first = rows[0] if rows else None
    if first is None:
        return (), ""
    by_environment = tuple(sorted(first.device_map, key=lambda mapping: mapping.ordinal))
    if numbers and snapshot is not None:
        exact = tuple(
            MappedDevice(ordinal=ordinal, uuid=uuid, index=device.index, certainty="fact")
            for ordinal, uuid in sorted(numbers)
            if (device := snapshot.device(uuid)) is not None
        )
        source = "fact: reported by the simulated driver"
        if any(mapping.uuid not in dict(numbers).values() for mapping in by_environment):
            source += "; its environment alone suggests others"
        return exact, source
    if not by_environment:
        return (), ""
    if all(mapping.certainty == "fact" for mapping in by_environment):
        return by_environment, "fact: reported by the driver or the framework"
    here = {row.device_uuid for row in rows if row.device_uuid is not None}
    if len(by_environment) == 1 and here == {by_environment[0].uuid} and first.cuda_visible_devices is not None:
        only = by_environment[0]
        exact = (MappedDevice(ordinal=only.ordinal, uuid=only.uuid, index=only.index, certainty="fact"),)
        return exact, "fact: it sees only one GPU, and the driver lists it there"
    return by_environment, "likely: from its environment; the program may select among them"


def cpu_lines(process: Process, view: View, details: ProcessDetails | None) -> SpanLines:
    """Why a program with a GPU framework is on the CPU: the evidence and what to do; without a cause, the commands
    that find it.
    """
    environment = details.environment if details is not None else None
    snapshot = view.snapshot
    if snapshot is None or not view.devices:
        why = "; ".join(printable(problem.detail) for problem in snapshot.problems) if snapshot is not None else ""
        unseen = "unknown: gpuwatch sees no GPU here, so it cannot see who uses one"
        lines: SpanLines = [[("– ", "dim"), (unseen, "text")]]
        lines += [[("  · ", "dim"), (why, "text")]] if why else []
        return [*lines, *_command_lines(process, details)]
    lines = [[("on no GPU", "strong"), ("  NVML lists it on none", "dim")]]
    if not_simulated(snapshot, environment):
        lines.append([("  · ", "dim"), ("these GPUs are simulated, and it was not started on them", "text")])
        return [*lines, [("  → ", "accent"), ("gpuwatch sim -- COMMAND starts a program on simulated GPUs", "text")]]
    reason = cpu_reason(process, view.devices, environment)
    if reason is None:
        lines.append([("  · ", "dim"), ("it was given MIG instances: whether it uses them is not known", "text")])
        return [*lines, *_command_lines(process, details)]
    known = reason.cause != "unknown"
    named: list[Span] = [("  ", "dim"), (reason.cause, cause_page_style(reason.cause)), (" · likely", "dim")]
    lines.append(named if known else [("  cause unknown", "dim")])
    doubt = why_maybe_on_gpu(process, snapshot)
    lines += [[("  · ", "dim"), (line, "text")] for line in (*reason.evidence, doubt) if line]
    return [*lines, *([[("  → ", "accent"), (reason.action, "text")]] if known else _command_lines(process, details))]


def placement_command(process: Process) -> list[str]:
    """``run --placement`` of its command line, with secrets masked: /proc does not keep the quotes."""
    return ["run", "--placement", "--", *command_text(process).split()]


def _command_lines(process: Process, details: ProcessDetails | None) -> SpanLines:
    doctor = shlex.join(["gpuwatch", "doctor", "--python", _interpreter(process, details)])
    return [
        [("  → ", "accent"), ("what keeps its Python from the GPUs:", "text")],
        [("    ", "text"), (doctor, "key")],
        [("  → ", "accent"), ("what the program does, op by op (y copies it):", "text")],
        [("    ", "text"), (f"gpuwatch {' '.join(placement_command(process))}", "key")],
    ]


def _interpreter(process: Process, details: ProcessDetails | None) -> str:
    """Its interpreter: as it was started, since the executable of a virtual environment is a link to another one."""
    started = PurePosixPath(command_text(process).partition(" ")[0])
    if started.is_absolute() and started.name.startswith("python"):
        return str(started)
    environment = (details.environment if details is not None else None) or {}
    for folder in (environment.get("VIRTUAL_ENV"), environment.get("CONDA_PREFIX")):
        if folder and f"{folder}/bin" in environment.get("PATH", "").split(":"):
            return mask_text(printable(f"{folder}/bin/python"))
    return printable(details.interpreter) if details is not None and details.interpreter else "PYTHON"

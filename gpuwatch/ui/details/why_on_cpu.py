"""Why a program with a GPU framework is on the CPU, as lines of the Process tab. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.snapshot import Process
from gpuwatch.explain.diagnosis.conditions.program_on_cpu import cpu_reason, may_be_on_gpu, not_simulated
from gpuwatch.machine.sources.process_details import Details
from gpuwatch.session.displayed_moment import View
from gpuwatch.ui.details.finding_lines import page_link
from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.tables.process_columns import command_text

UNKNOWN_CAUSE = "unknown"
_PYTHON = "python"


def cpu_lines(process: Process, view: View, details: Details | None) -> Lines:
    """The evidence and what to do; where that names no cause, the commands that do."""
    environment = details.environment if details is not None else None
    snapshot = view.snapshot
    if snapshot is None or not view.devices:
        why = "; ".join(printable(problem.detail) for problem in snapshot.problems) if snapshot is not None else ""
        lines: Lines = [[("– ", "dim"), ("unknown: gpuwatch sees no GPU here, so it cannot see who uses one", "text")]]
        lines += [[("  · ", "dim"), (why, "text")]] if why else []
        return [*lines, *_commands(process, environment, details)]
    lines = [[("on no GPU", "strong"), ("  NVML lists it on none", "dim")]]
    doubt = may_be_on_gpu(process, snapshot)
    if not_simulated(snapshot, environment):
        lines.append([("  · ", "dim"), ("these GPUs are simulated, and it was not started on them", "text")])
        return [*lines, [("  → ", "accent"), ("gpuwatch sim -- COMMAND starts a program on simulated GPUs", "text")]]
    reason = cpu_reason(process, view.devices, environment)
    if reason is None:
        lines.append([("  · ", "dim"), ("it was given MIG instances: whether it uses them is not known", "text")])
        return [*lines, *_commands(process, environment, details)]
    if reason.cause == UNKNOWN_CAUSE:
        lines.append([("  cause unknown", "dim")])
    else:
        lines.append([("  ", "dim"), (reason.cause, page_link(reason.cause)), (" · likely", "dim")])
    lines += [[("  · ", "dim"), (line, "text")] for line in (*reason.evidence, *([doubt] if doubt else []))]
    if reason.cause != UNKNOWN_CAUSE:
        return [*lines, [("  → ", "accent"), (reason.action, "text")]]
    return [*lines, *_commands(process, environment, details)]


def placement_command(process: Process) -> list[str]:
    """``run --placement`` of its command line, with secrets masked: /proc does not keep the quotes."""
    return ["run", "--placement", "--", *command_text(process).split()]


def _commands(process: Process, environment: Mapping[str, str] | None, details: Details | None) -> Lines:
    doctor = shlex.join(["gpuwatch", "doctor", "--python", _python(process, environment, details)])
    return [
        [("  → ", "accent"), ("what keeps its Python from the GPUs:", "text")],
        [("    ", "text"), (doctor, "key")],
        [("  → ", "accent"), ("what the program does, op by op (y copies it):", "text")],
        [("    ", "text"), (f"gpuwatch {' '.join(placement_command(process))}", "key")],
    ]


def _python(process: Process, environment: Mapping[str, str] | None, details: Details | None) -> str:
    """Its interpreter: as it was started, since the executable of a virtual environment is a link to another one."""
    started = PurePosixPath(command_text(process).partition(" ")[0])
    if started.is_absolute() and started.name.startswith(_PYTHON):
        return str(started)
    known = environment or {}
    for folder in (known.get("VIRTUAL_ENV"), known.get("CONDA_PREFIX")):
        if folder and f"{folder}/bin" in known.get("PATH", "").split(":"):
            return mask_text(printable(f"{folder}/bin/{_PYTHON}"))
    return printable(details.interpreter) if details is not None and details.interpreter else "PYTHON"

"""The processes of a watched program: devices, memory, out-of-memory failures and speed of each."""

from __future__ import annotations

from gpuwatch.core.formatting.short_names import without_folder
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.run import Run, RunProcess
from gpuwatch.experiment.trials.speed import speed
from gpuwatch.share.reports.content import Table, clean
from gpuwatch.share.reports.tables import device_map

_HEADS = ("Process", "Command", "Framework", "Devices", "Allocator peak", "Held, NVML", "OOMs", "Steps/s", "Ended in")


def watched_processes(run: Run) -> Table:
    """A row for each process; none if the program has only one, which the run describes."""
    rows = tuple(_row(process) for process in run.processes) if len(run.processes) > 1 else ()
    note = "A process without a command is known only from NVML." if any(not row[1] for row in rows) else ""
    return Table(
        "Processes",
        _HEADS,
        rows,
        frozenset({4, 5, 6, 7}),
        note=note,
        optional=(8, 2, 4),
        shorter=((1, without_folder),),
    )


def _row(process: RunProcess) -> tuple[str, ...]:
    framework = process.framework
    peaks = " + ".join(size(peak) for peak in process.allocators.values() if peak)
    held = " + ".join(size(amount) for amount in process.held_bytes.values())
    return (
        str(process.pid),
        clean(process.command) if process.command else "",
        f"{clean(framework.name)} {clean(framework.version)}" if framework is not None else UNKNOWN,
        device_map(process),
        peaks or UNKNOWN,
        held or UNKNOWN,
        str(process.ooms),
        speed(process.throughput) if process.throughput is not None else UNKNOWN,
        ", ".join(clean(error.type) for error in process.errors) or _code(process),
    )


def _code(process: RunProcess) -> str:
    return UNKNOWN if process.exit_code is None else f"exit code {process.exit_code}"

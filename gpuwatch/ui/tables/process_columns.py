"""Columns of the process table: their text, sort value and width.

Pure: no widget, no terminal. To add a column, add an entry to :data:`COLUMNS`; the table, the column chooser,
the sort menu, the filter and its help, the settings file and shell completion follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from gpuwatch.core.formatting.command_lines import without_folder, without_launcher
from gpuwatch.core.formatting.metric_value_text import missing_text
from gpuwatch.core.formatting.units import UNKNOWN, gib, memory, short_gib
from gpuwatch.core.model.snapshot import IDLE_SINCE, RUN_SECONDS, MappedDevice, Process, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.process_labels import program_name, short_framework

_OWNER_CELLS = 12
_WHOLE_COMMAND_CELLS = 40
"""Cells from which on a column of commands shows their interpreters and launchers too."""
Sortable = float | str | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column: header, widths (narrow, wide) and what it shows."""

    id: str
    title: str
    narrow: int
    wide: int
    help: str
    """What it shows, for the chooser and the sort menu."""
    unit: str = ""
    reading: str = ""
    """The process reading it shows, if any."""
    value: Callable[[Process], Sortable] | None = None
    """What it sorts by; by default the reading."""
    text: Callable[[Process, int], str] | None = None
    """Its text in so many cells; by default the value."""
    number: bool = True
    """Numbers are right-aligned and sort largest first, but for those that name a GPU."""
    shown_by_default: bool = True
    empty_reason: str = ""
    """Why it is hidden while no process has a value for it; empty: it is shown anyway."""
    known_late: bool = False
    """With ``empty_reason``: whether the first rows of a process may lack its value."""
    seconds: Callable[[Process, float], float | None] | None = None
    """Of a column that shows a time, which grows while the row stays the same: that time at a moment (seconds since the
    epoch)."""

    @property
    def descends(self) -> bool:
        """Whether it sorts the largest first."""
        return self.number and self.id != "gpu"

    def value_of(self, process: Process) -> Sortable:
        """The value a process sorts by; None if unknown."""
        return self.value(process) if self.value is not None else process.number(self.reading)

    def text_of(self, process: Process, width: int) -> str:
        """The text of a cell, not yet cut to ``width``."""
        if self.text is not None:
            return self.text(process, width)
        value = self.value_of(process)
        if value is None:
            return UNKNOWN
        return printable(value) if isinstance(value, str) else f"{value:.0f}"


def _cpu_text(process: Process, width: int) -> str:
    value = process.number("cpu_percent")
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 1000 and width >= 6 else f"{value:.0f}"


def memory_text(amount: float | None, width: int, most: float | None = None) -> str:
    """A cell of the column of GPU memory, in the unit of ``most``, the largest amount in the table."""
    return memory(amount, most, short=width < 9)


def device_prefix(framework: str | None) -> str:
    """The framework's name for a device: ``GPU:``, ``cuda:``, or empty."""
    return {"tensorflow": "GPU:", "torch": "cuda:"}.get((framework or "").partition(" ")[0], "")


@lru_cache(maxsize=1024)
def device_map_text(device_map: tuple[MappedDevice, ...], framework: str | None, width: int) -> str:
    """The physical GPU behind each of the process's own device numbers: ``GPU:0→1``, or ``0-7→0-7``."""
    if not device_map:
        return UNKNOWN
    ordered = sorted(device_map, key=lambda mapped: mapped.ordinal)
    first = ordered[0]
    prefix = device_prefix(framework)
    if len(ordered) == 1:
        text = f"{prefix}{first.ordinal}→{first.index}"
        return text if width >= 10 else f"{first.ordinal}→{first.index}"
    shift = first.index - first.ordinal
    straight = all(m.index - m.ordinal == shift and m.ordinal == n for n, m in enumerate(ordered))
    if straight:
        last = ordered[-1]
        ways: tuple[str, ...] = (f"{first.ordinal}-{last.ordinal}→{first.index}-{last.index}",)
    else:
        ways = (" ".join(f"{m.ordinal}→{m.index}" for m in ordered), f"{len(ordered)} mapped")
    return next((text for text in ways if len(text) <= width), f"{len(ordered)} GPUs")


@lru_cache(maxsize=4096)
def _masked_command(command: str) -> str:
    from gpuwatch.core.masking.mask_secrets import mask_text  # slow to import, and the first frame does not need it

    return mask_text(printable(command))


def command_text(process: Process) -> str:
    """The command line, printable and with secrets masked; else the name, or why it cannot be read."""
    text = process.command or process.name
    if text:
        return _masked_command(text)
    return f"({printable(process.note)})" if process.note else UNKNOWN


def short_command(process: Process, width: int = 0) -> str:
    """The command line from its script or module on, ``train.py --bs 64``; where there is more room, the whole line
    with the program's name instead of its path.
    """
    return (without_launcher if width < _WHOLE_COMMAND_CELLS else without_folder)(command_text(process))


def owner_and_pid(process: Process) -> str:
    """``alice 4711``; the program where the user cannot be read."""
    return f"{printable(process.user or program_name(process))[:_OWNER_CELLS]} {process.pid}".strip()


def job_text(job: str | None, width: int) -> str:
    """``slurm job 4711`` in ``width`` cells: without its kind if there is no room."""
    if not job:
        return UNKNOWN
    text = printable(job)
    while len(text) > width and " " in text:
        text = text.partition(" ")[2]
    return text


def is_on_cpu(process: Process) -> bool:
    """Whether it is a program with a GPU framework that is on no GPU, as in :attr:`Snapshot.bystanders`."""
    return process.device_uuid is None and process.type == "H" and process.framework is not None


def _gpu_text(process: Process, width: int) -> str:
    if is_on_cpu(process):
        return "CPU"
    return UNKNOWN if process.device_index is None else str(process.device_index)


def _framework_text(process: Process, width: int) -> str:
    if process.framework is None and "denied" in process.note:
        return "– (denied)"
    return short_framework(process.framework, width)


def _idle_value(process: Process) -> float | None:
    """Larger the longer it is idle; the least for one that computes."""
    since = process.number(IDLE_SINCE)
    return None if since is None else -since or -math.inf


def time_column_text(column: Column, process: Process, at: float) -> str:
    """The text of a column that has :attr:`Column.seconds`: whole seconds in the first minute of a run, then the two
    largest units (``14m``, ``2h14m``, ``3d04h``), so that a table of long runs stands still.
    """
    assert column.seconds is not None
    seconds = column.seconds(process, at)
    if seconds is None:
        return UNKNOWN
    if column.id == "idle":
        if not process.number(IDLE_SINCE):
            return "busy"
        return next((f"{seconds // each:.0f}{unit}" for unit, each in _TIME_UNITS if seconds >= each), "<1m")
    if seconds < 60:
        return f"{int(seconds)}s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


_TIME_UNITS = (("d", 86_400), ("h", 3600), ("m", 60))


# fmt: off
COLUMNS: tuple[Column, ...] = (
    Column("gpu", "GPU", 3, 3, "physical GPU, NVML index; CPU: a framework on no GPU", value=lambda p: p.device_index,
        text=_gpu_text),
    Column("pid", "PID", 7, 7, "process id", value=lambda p: p.pid),
    Column("user", "USER", 7, 10, "owner", value=lambda p: p.user or None, number=False),
    Column("type", "TYPE", 5, 5, "C compute, G graphics, M an MPS client", value=lambda p: p.type, number=False),
    Column("mig", "MIG", 7, 9, "its MIG instance: number, and GPU/compute instance",
        value=lambda p: p.mig_instance or None, number=False, empty_reason="no process runs in a MIG instance"),
    Column("container", "JOB", 10, 16, "Slurm job, pod or container", value=lambda p: p.container or None,
        text=lambda p, w: job_text(p.container, w), number=False,
        empty_reason="no process here runs in a container or a job"),
    Column("framework", "FRAMEWORK", 10, 15, "TensorFlow, PyTorch, …, and its version", value=lambda p: p.framework,
        text=_framework_text, number=False, empty_reason="no framework is recognized in any process here",
        known_late=True),
    Column("sees", "SEES", 7, 10, "its own GPU numbers → the physical GPUs that it sees",
        value=lambda p: len(p.device_map) or None, text=lambda p, w: device_map_text(p.device_map, p.framework, w),
        empty_reason="the device map of no process here is known", known_late=True),
    Column("visible", "VISIBLE", 8, 14, "its CUDA_VISIBLE_DEVICES", value=lambda p: p.cuda_visible_devices,
        number=False, shown_by_default=False,
        empty_reason="no process here has CUDA_VISIBLE_DEVICES set and a readable environment"),
    Column("memory", "GPU-MEM", 7, 9, "GPU memory it holds", "GiB", "gpu_memory_bytes"),
    Column("sm", "SM%", 3, 4, "share of time one of its kernels was running", "%", "sm_percent"),
    Column("mbw", "MBW%", 4, 4, "memory bandwidth: share of time it read or wrote GPU memory", "%", "memory_percent"),
    Column("enc", "ENC%", 4, 4, "video encoder utilization", "%", "encoder_percent", shown_by_default=False),
    Column("dec", "DEC%", 4, 4, "video decoder utilization", "%", "decoder_percent", shown_by_default=False),
    Column("idle", "IDLE", 4, 4, "at least so long no kernel of it was seen; busy: it computes",
        "time", IDLE_SINCE, value=_idle_value, seconds=Process.idle_seconds),
    Column("cpu", "CPU%", 5, 6, "host CPU; 100 is one core", "%", "cpu_percent", text=_cpu_text),
    Column("host", "HOST", 6, 9, "host memory that it holds (RSS)", "GiB", "host_memory_bytes",
        text=lambda p, w: (gib if w >= 9 else short_gib)(p.number("host_memory_bytes"))),
    Column("threads", "THR", 4, 4, "number of threads", "", "threads", shown_by_default=False),
    Column("time", "TIME", 6, 6, "run time; in seconds on the Process tab", "time", RUN_SECONDS,
        value=lambda p: None if p.create_time is None else -p.create_time, seconds=Process.run_seconds),
    Column("command", "COMMAND", 10, 20, "command line; → scrolls", value=short_command,
        text=short_command, number=False),
)
# fmt: on
COLUMN_BY_ID = {column.id: column for column in COLUMNS}
DEFAULT_COLUMNS = tuple(column.id for column in COLUMNS if column.shown_by_default)
_LEFT_NUMBERS = frozenset({"gpu", "sees"})
_GPU_ONLY = frozenset({"gpu", "type", "mig", "sees", "visible", "memory", "sm", "mbw", "enc", "dec", "idle"})
_DROP_ORDER = ("type", "mbw", "host", "idle", "framework", "sees", "container", "time")
"""Columns dropped when there is no room, in this order; those not shown by default are dropped next."""
_DROPPED_FIRST = frozenset(_DROP_ORDER[:3])
_MARK_CELLS = 2


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column and its position."""

    column: Column
    start: int
    width: int

    @property
    def at_right(self) -> bool:
        return self.column.number and self.column.id not in _LEFT_NUMBERS


@lru_cache(maxsize=64)
def place_columns(
    width: int, chosen: tuple[str, ...] = DEFAULT_COLUMNS, *, gpus: bool = True
) -> tuple[PlacedColumn, ...]:
    """Columns of ``chosen``, in its order, that fit into ``width`` cells; the command gets the rest.

    Unknown ids are skipped: they are reported where they are read.
    """
    columns = [COLUMN_BY_ID[name] for name in chosen if name in COLUMN_BY_ID and (gpus or name not in _GPU_ONLY)]
    columns = columns or [COLUMN_BY_ID["pid"]]
    wide = width >= 118
    order = [name for name in _DROP_ORDER if name in chosen]
    order += [c.id for c in reversed(columns) if not c.shown_by_default or c.empty_reason]
    order += [c.id for c in reversed(columns) if c.id not in order and c.id not in ("command", "pid")]
    named = any(c.id == "command" for c in columns)

    def need(at_least: int) -> int:
        others = sum((c.wide if wide else c.narrow) + 1 for c in columns if c.id != "command")
        return _MARK_CELLS + others + (at_least if named else -1)

    # The command shrinks in favor of most columns, but not of the rarely used ones.
    while order and need(20 if wide else 16 if width >= 90 and order[0] in _DROPPED_FIRST else 10) > width:
        gone = order.pop(0)
        columns = [column for column in columns if column.id != gone]
    size = {c.id: c.wide if wide else c.narrow for c in columns}
    size["command"] = max(width - need(0), 1)
    placed: list[PlacedColumn] = []
    x = _MARK_CELLS
    for column in columns:
        if column.id == "command" and wide and placed and placed[-1].at_right:
            # A gap after a right-aligned column.
            x += 1
            size["command"] -= 1
        placed.append(PlacedColumn(column, x, max(min(size[column.id], width - x), 1)))
        x += size[column.id] + 1
    return tuple(placed)


def why_unavailable(column: Column, snapshot: Snapshot) -> str:
    """Why no process of ``snapshot`` has a value for a column; empty if one has, or may get one."""
    if column.id in _GPU_ONLY and not snapshot.devices:
        return "there is no GPU here"
    processes = snapshot.processes
    if column.empty_reason:
        known = any(column.value_of(process) is not None for process in (*processes, *snapshot.bystanders))
        later = column.known_late and all(not process.command and not process.note for process in processes)
        return "" if known or later else column.empty_reason
    if not column.reading or not processes:
        return ""
    for process in processes:
        if column.value_of(process) is not None:
            return ""
        why = process.missing.get(column.reading)
        if why is not None and not why.permanent:
            return ""
    why = processes[0].missing.get(column.reading)
    return "could not be read" if why is None else missing_text(why)

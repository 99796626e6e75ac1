"""Rows and columns of the process table: what each cell says, how it sorts, what fits.

Pure: no widget, no terminal. To add a column: one entry in :data:`COLUMNS`; the table, the chooser, the
menu of sorting, the settings file and the completion of shells follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gpuwatch.formatting.brief import short_framework, without_folder
from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, duration, memory, short_size
from gpuwatch.model.snapshot import Device, Mapped, Process, Snapshot

Key = tuple[str | None, int, float | None]
Sortable = float | str | None

NOTABLE_UNEXPLAINED = 100 * 2**20
"""Less than this is rounding, contexts and driver bookkeeping."""


@dataclass(frozen=True, slots=True, eq=False)
class Unexplained:
    """Memory of a device that no listed process owns, as a row of its own."""

    device: Device
    amount: float
    reason: str

    @property
    def key(self) -> Key:
        """No process has pid -1."""
        return (self.device.uuid, -1, None)


Row = Process | Unexplained


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its head, widths (narrow, wide), what it says and how it sorts."""

    id: str
    title: str
    narrow: int
    wide: int
    text: Callable[[Process, int], str]
    value: Callable[[Process], Sortable]
    number: bool = True
    """Numbers stand at the right, and sort largest first."""
    help: str = ""
    """What it shows, for the chooser and the menu of sorting."""
    unit: str = ""
    reading: str = ""
    """The reading of a process that it shows, where it is one."""
    chosen: bool = True
    """Whether it is shown without anybody asking for it."""
    nobody: str = ""
    """Why it is hidden while no process has a value for it; empty: it is shown all the same."""


def _number(reading: str) -> Callable[[Process], Sortable]:
    return lambda process: process.number(reading)


def _whole(reading: str) -> Callable[[Process, int], str]:
    def text(process: Process, width: int) -> str:
        value = process.number(reading)
        return UNKNOWN if value is None else f"{value:.0f}"

    return text


def _cpu(process: Process, width: int) -> str:
    value = process.number("cpu_percent")
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 1000 and width >= 6 else f"{value:.0f}"


def _gpu_memory(process: Process, width: int) -> str:
    return memory(process.number("gpu_memory_bytes"), short=width < 9)


def _host_memory(process: Process, width: int) -> str:
    return short_size(process.number("host_memory_bytes"))


@lru_cache(maxsize=1024)
def short_map(device_map: tuple[Mapped, ...], framework: str | None, width: int) -> str:
    """Which physical GPU each of the process's own numbers is: ``GPU:0→1``, or ``0-7→0-7``."""
    if not device_map:
        return UNKNOWN
    ordered = sorted(device_map, key=lambda mapped: mapped.ordinal)
    first = ordered[0]
    name = (framework or "").partition(" ")[0]
    prefix = {"tensorflow": "GPU:", "torch": "cuda:"}.get(name, "")
    if len(ordered) == 1:
        text = f"{prefix}{first.ordinal}→{first.index}"
        return text if width >= 10 else f"{first.ordinal}→{first.index}"
    shift = first.index - first.ordinal
    straight = all(m.index - m.ordinal == shift and m.ordinal == n for n, m in enumerate(ordered))
    if straight:
        last = ordered[-1]
        return f"{first.ordinal}-{last.ordinal}→{first.index}-{last.index}"
    text = " ".join(f"{m.ordinal}→{m.index}" for m in ordered)
    return text if len(text) <= width else f"{len(ordered)} of them ≠"[:width]


@lru_cache(maxsize=4096)
def _harmless(command: str) -> str:
    from gpuwatch.formatting.secrets import mask_text  # its patterns are many, and the first picture needs none

    return mask_text(printable(command))


def command_text(process: Process) -> str:
    """The command line, harmless and without secrets; the name or the reason where it cannot be read."""
    text = process.command or process.name
    if text:
        return _harmless(text)
    return f"({printable(process.note)})" if process.note else UNKNOWN


def short_command(process: Process) -> str:
    """The command line with the program's name instead of its path: ``python train.py``."""
    return without_folder(command_text(process))


def _framework(process: Process, width: int) -> str:
    if process.framework is None and "denied" in process.note:
        return "– (denied)"
    return short_framework(process.framework, width)


COLUMNS: tuple[Column, ...] = (
    Column(
        "gpu",
        "GPU",
        3,
        3,
        lambda p, w: UNKNOWN if p.device_index is None else str(p.device_index),
        lambda p: p.device_index,
        help="physical GPU, as NVML numbers it",
    ),
    Column("pid", "PID", 7, 7, lambda p, w: str(p.pid), lambda p: p.pid, help="process id"),
    Column(
        "user",
        "USER",
        7,
        10,
        lambda p, w: printable(p.user) if p.user else UNKNOWN,
        lambda p: p.user,
        number=False,
        help="owner",
    ),
    Column(
        "type",
        "TYPE",
        4,
        4,
        lambda p, w: p.type,
        lambda p: p.type,
        number=False,
        help="C compute, G graphics, M an MPS client",
    ),
    Column(
        "mig",
        "MIG",
        7,
        9,
        lambda p, w: printable(p.mig_instance) if p.mig_instance else UNKNOWN,
        lambda p: p.mig_instance,
        number=False,
        help="MIG instance that it runs in: its number, and GPU/compute instance",
        nobody="no process runs in a MIG instance",
    ),
    Column(
        "container",
        "CONTAINER",
        10,
        14,
        lambda p, w: printable(p.container) if p.container else UNKNOWN,
        lambda p: p.container,
        number=False,
        help="container, pod or Slurm job",
        chosen=False,
        nobody="no process here runs in a container or a job",
    ),
    Column(
        "framework",
        "FRAMEWORK",
        10,
        15,
        _framework,
        lambda p: p.framework,
        number=False,
        help="TensorFlow, PyTorch, …, and its version",
    ),
    Column(
        "sees",
        "SEES",
        7,
        10,
        lambda p, w: short_map(p.device_map, p.framework, w),
        lambda p: len(p.device_map) or None,
        help="its own GPU numbers → physical ones",
    ),
    Column(
        "visible",
        "VISIBLE",
        8,
        14,
        lambda p, w: printable(p.cuda_visible_devices) if p.cuda_visible_devices is not None else UNKNOWN,
        lambda p: p.cuda_visible_devices,
        number=False,
        help="its CUDA_VISIBLE_DEVICES",
        chosen=False,
        nobody="no process here has CUDA_VISIBLE_DEVICES set, or shows its environment",
    ),
    Column(
        "memory",
        "GPU-MEM",
        7,
        9,
        _gpu_memory,
        _number("gpu_memory_bytes"),
        help="memory that it holds on the GPU",
        unit="GiB",
        reading="gpu_memory_bytes",
    ),
    Column(
        "sm",
        "SM%",
        3,
        4,
        _whole("sm_percent"),
        _number("sm_percent"),
        help="time in which one of its kernels ran",
        unit="%",
        reading="sm_percent",
    ),
    Column(
        "mbw",
        "MBW%",
        4,
        4,
        _whole("memory_percent"),
        _number("memory_percent"),
        help="time in which it read or wrote GPU memory",
        unit="%",
        reading="memory_percent",
    ),
    Column(
        "enc",
        "ENC%",
        4,
        4,
        _whole("encoder_percent"),
        _number("encoder_percent"),
        help="time in which it used the video encoder",
        unit="%",
        reading="encoder_percent",
        chosen=False,
    ),
    Column(
        "dec",
        "DEC%",
        4,
        4,
        _whole("decoder_percent"),
        _number("decoder_percent"),
        help="time in which it used the video decoder",
        unit="%",
        reading="decoder_percent",
        chosen=False,
    ),
    Column(
        "cpu",
        "CPU%",
        5,
        6,
        _cpu,
        _number("cpu_percent"),
        help="CPU of the host; 100 is one core",
        unit="%",
        reading="cpu_percent",
    ),
    Column(
        "host",
        "HOST",
        6,
        6,
        _host_memory,
        _number("host_memory_bytes"),
        help="memory on the host",
        unit="bytes",
        reading="host_memory_bytes",
    ),
    Column(
        "threads",
        "THR",
        4,
        4,
        _whole("threads"),
        _number("threads"),
        help="threads",
        reading="threads",
        chosen=False,
    ),
    Column(
        "time",
        "TIME",
        8,
        9,
        lambda p, w: duration(p.number("run_seconds")),
        _number("run_seconds"),
        help="since it was started",
        unit="h:mm:ss",
        reading="run_seconds",
    ),
    Column(
        "command",
        "COMMAND",
        10,
        20,
        lambda p, w: short_command(p),
        short_command,
        number=False,
        help="command line; → scrolls it",
    ),
)
BY_ID = {column.id: column for column in COLUMNS}
DEFAULT_COLUMNS = tuple(column.id for column in COLUMNS if column.chosen)
_LEFT_NUMBERS = frozenset({"gpu", "sees"})
_GPU_ONLY = frozenset({"gpu", "type", "mig", "sees", "visible", "memory", "sm", "mbw", "enc", "dec"})
_FOLDING = ("type", "mbw", "host", "framework", "sees", "time")
"""Columns that go when there is no room, the first first. Those that had to be asked for go after them."""
_SHED_EARLY = frozenset(_FOLDING[:3])
_TAKEN_BY_MARK = 2
_GIVEN_UP = frozenset({"not_supported", "permission_denied", "unknown"})
"""Reasons that will not go away by waiting."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A column with its place."""

    column: Column
    start: int
    width: int

    @property
    def at_right(self) -> bool:
        """Whether its text stands at the right."""
        return self.column.number and self.column.id not in _LEFT_NUMBERS


@lru_cache(maxsize=64)
def place(width: int, chosen: tuple[str, ...] = DEFAULT_COLUMNS, *, gpus: bool = True) -> tuple[Placed, ...]:
    """Columns of ``chosen``, in its order, that fit into ``width`` cells; the command takes what is left.

    Unknown ids are left out: who reads them from a person says so.
    """
    columns = [BY_ID[name] for name in chosen if name in BY_ID and (gpus or name not in _GPU_ONLY)]
    columns = columns or [BY_ID["pid"]]
    wide = width >= 118
    order = [name for name in _FOLDING if name in chosen]
    order += [c.id for c in reversed(columns) if not c.chosen or c.nobody]
    order += [c.id for c in reversed(columns) if c.id not in order and c.id not in ("command", "pid")]
    named = any(c.id == "command" for c in columns)

    def need(at_least: int) -> int:
        others = sum((c.wide if wide else c.narrow) + 1 for c in columns if c.id != "command")
        return _TAKEN_BY_MARK + others + (at_least if named else -1)

    # The command gives way to what is numbers, but not to what is rarely looked at.
    while order and need(20 if wide else 16 if width >= 90 and order[0] in _SHED_EARLY else 10) > width:
        gone = order.pop(0)
        columns = [column for column in columns if column.id != gone]
    size = {c.id: c.wide if wide else c.narrow for c in columns}
    size["command"] = max(width - need(0), 1)
    placed: list[Placed] = []
    x = _TAKEN_BY_MARK
    for column in columns:
        if column.id == "command" and wide and placed and placed[-1].at_right:
            # A right-aligned column beside the command needs a little air.
            x += 1
            size["command"] -= 1
        placed.append(Placed(column, x, max(min(size[column.id], width - x), 1)))
        x += size[column.id] + 1
    return tuple(placed)


def unavailable(column: Column, snapshot: Snapshot) -> str:
    """Why no process of ``snapshot`` has a value for a column; empty when one has, or may yet have."""
    if column.id in _GPU_ONLY and not snapshot.devices:
        return "there is no GPU here"
    processes = snapshot.processes
    if column.nobody:
        return "" if any(column.value(process) is not None for process in processes) else column.nobody
    if not column.reading or not processes:
        return ""
    for process in processes:
        if column.reading in process.readings:
            return ""
        why = process.missing.get(column.reading)
        if why is not None and why.reason not in _GIVEN_UP:
            return ""
    why = processes[0].missing.get(column.reading)
    if why is None:
        return "nobody could read it"
    return printable(f"{why.reason.replace('_', ' ')}{f': {why.detail}' if why.detail else ''}")


def rows_of(snapshot: Snapshot) -> list[Row]:
    """Processes, and a row for each device with notable unexplained memory."""
    rows: list[Row] = list(snapshot.processes)
    for device in snapshot.devices:
        amount = device.number("memory.unexplained_bytes")
        if amount is not None and amount >= NOTABLE_UNEXPLAINED:
            reason = next(
                (
                    f.title
                    for f in snapshot.findings
                    if f.device_uuid == device.uuid and f.id == "container.pid-namespace"
                ),
                "held by no process that can be seen from here",
            )
            rows.append(Unexplained(device, amount, reason))
    return rows


def sort_value(row: Row, column: Column) -> Sortable:
    """What a row sorts by; None for unknown."""
    if isinstance(row, Unexplained):
        return {"memory": row.amount, "gpu": row.device.index}.get(column.id)
    return column.value(row)


def in_order(rows: Iterable[Row], column: Column, *, reverse: bool) -> list[Row]:
    """Sorted and stable: equal rows stand by GPU and pid; unknown values are always last."""
    base = sorted(rows, key=_tie)
    known = [(value, row) for row in base if (value := sort_value(row, column)) is not None]
    unknown = [row for row in base if sort_value(row, column) is None]
    if any(isinstance(value, str) for value, _ in known):
        known.sort(key=lambda pair: str(pair[0]).lower(), reverse=reverse)
    else:
        known.sort(key=lambda pair: float(pair[0] or 0), reverse=reverse)
    return [row for _, row in known] + unknown


def _tie(row: Row) -> tuple[int, int]:
    if isinstance(row, Unexplained):
        return (row.device.index, 2**31)
    return (10**6 if row.device_index is None else row.device_index, row.pid)


def matching(rows: Sequence[Row], test: Callable[[Process], bool] | None) -> list[Row]:
    """Rows that a filter keeps; unexplained memory is no process and goes with any filter."""
    if test is None:
        return list(rows)
    return [row for row in rows if isinstance(row, Process) and test(row)]

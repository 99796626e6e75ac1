"""The columns of the list of hosts: their order, widths and sort values. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuwatch.core.formatting.sentences import first_and_more
from gpuwatch.core.safe_text import printable
from gpuwatch.fleet.fleet_summary import HostSummary
from gpuwatch.ui.tables.device_notes import short_name

_DIGITS = re.compile(r"(\d+)")
_MARK_CELLS = 2
"""Cells of the mark at the left that shows the cursor."""
_MIN_NAME_CELLS, _MAX_NAME_CELLS = 8, 32
_MAX_GPUS = 16
"""GPUs that have a cell each."""
_MIN_TAIL_CELLS = 22
"""Least cells of the last column or columns: who uses the GPUs, and what is wrong."""
_MAX_USERS = 3
"""Users whose names a line has."""
_MIN_TWO_TAIL_COLUMNS_CELLS = 52
"""Cells from which who uses the GPUs and what is wrong have a column each."""

Sortable = float | tuple[object, ...] | str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the list."""

    id: str
    title: str
    help: str
    value: Callable[[HostSummary], Sortable | None]
    """What it sorts by; None sorts last."""
    descending: bool = False
    """Whether the largest comes first."""
    at_right: bool = False


def natural_sort_key(name: str) -> tuple[object, ...]:
    """``n2`` before ``n10``."""
    parts = filter(None, _DIGITS.split(name[:200]))
    return tuple((1, "", int(part)) if part.isdecimal() else (0, part.lower(), 0) for part in parts)


def _problem_rank(host: HostSummary) -> float:
    if not host.view.answered:
        return 3.0
    errors = any(finding.severity == "error" for finding in host.errors_and_warnings)
    return 2.0 if errors else 1.0 if host.errors_and_warnings else 0.0


def _used_share(host: HostSummary) -> float | None:
    return host.memory_used / host.memory_total if host.memory_used is not None and host.memory_total else None


# fmt: off
COLUMNS = (
    Column("host", "HOST", "Name", lambda host: natural_sort_key(host.name)),
    Column("free", "FREE", "GPUs that nobody uses", lambda host: host.free_count, descending=True, at_right=True),
    Column("gpus", "GPUS", "Number of GPUs; a sign for each", lambda host: float(len(host.gpus)), descending=True),
    Column("util", "GPU%", "Average utilization", lambda host: host.utilization, descending=True, at_right=True),
    Column("mem", "GPU-MEM", "Used and total GPU memory", _used_share, descending=True, at_right=True),
    Column("free-mem", "FREE-MEM", "Free memory of the GPU that has most", lambda host: host.memory_free,
        descending=True, at_right=True),
    Column("temp", "TEMP", "Hottest GPU", lambda host: host.hottest, descending=True, at_right=True),
    Column("model", "MODEL", "Model of the GPUs", lambda host: host.models[0][0].lower() if host.models else None),
    Column("user", "USED BY", "Users and jobs", lambda host: host.holders[0][0].lower() if host.holders else None),
    Column("state", "STATE", "Errors, warnings, no answer", _problem_rank, descending=True),
)
# fmt: on
COLUMN_BY_ID = {column.id: column for column in COLUMNS}
_DROP_ORDER = ("temp", "model", "free-mem", "mem")
"""Columns dropped when there is no room, in this order."""


@dataclass(frozen=True, slots=True)
class PlacedColumn:
    """A column on screen."""

    column: Column
    x: int
    width: int


def place_columns(width: int, hosts: Sequence[HostSummary]) -> tuple[PlacedColumn, ...]:
    """The columns that fit into ``width`` cells. Who uses the GPUs and what is wrong share the rest."""
    longest_name = max((len(host.name) for host in hosts), default=0)
    gpu_cells = min(max((len(host.gpus) for host in hosts), default=0), _MAX_GPUS)
    model_cells = max((len(model_of(host)) for host in hosts), default=5)
    sizes = {
        "host": min(max(longest_name, _MIN_NAME_CELLS), _MAX_NAME_CELLS, max(width // 4, _MIN_NAME_CELLS)),
        "free": 6,
        "gpus": max(gpu_cells, 4),
        "util": 5,
        "mem": 12,
        "free-mem": 8,
        "temp": 5,
        "model": min(max(model_cells, 6), 18),
    }
    gaps = {"gpus": 2, "model": 2}
    for dropped in range(len(_DROP_ORDER) + 1):
        shown = [column_id for column_id in sizes if column_id not in _DROP_ORDER[:dropped]]
        taken = _MARK_CELLS + sum(sizes[column_id] + gaps.get(column_id, 1) for column_id in shown)
        if width - taken >= _MIN_TAIL_CELLS + (dropped < 2) * (_MIN_TWO_TAIL_COLUMNS_CELLS - _MIN_TAIL_CELLS):
            break
    placed = []
    x = _MARK_CELLS
    for column_id in shown:
        x += gaps.get(column_id, 1) - 1
        placed.append(PlacedColumn(COLUMN_BY_ID[column_id], x, sizes[column_id]))
        x += sizes[column_id] + 1
    x += 1
    rest = max(width - x, 1)
    if rest >= _MIN_TWO_TAIL_COLUMNS_CELLS:
        users_cells = max((len(used_by(host)) for host in hosts), default=0)
        used_by_cells = min(max(users_cells, len("USED BY")) + 2, rest * 2 // 5)
        placed.append(PlacedColumn(COLUMN_BY_ID["user"], x, used_by_cells - 1))
        placed.append(PlacedColumn(COLUMN_BY_ID["state"], x + used_by_cells, rest - used_by_cells))
    else:
        placed.append(PlacedColumn(COLUMN_BY_ID["state"], x, rest))
    return tuple(placed)


def model_of(host: HostSummary) -> str:
    """The models of its GPUs in short: ``H100 80GB``, ``A100 +1``."""
    if not host.models:
        return ""
    name = short_name(host.models[0][0])
    return name if len(host.models) == 1 else f"{name} +{len(host.models) - 1}"


def used_by(host: HostSummary) -> str:
    """``alice ×4, bob ×2``: names with their number of GPUs."""
    if not host.view.answered:
        return ""
    named = [f"{printable(name)} ×{number}" for name, number in host.holders]
    return first_and_more(named, _MAX_USERS)


def sorted_hosts(hosts: Iterable[HostSummary], column: str, *, reverse: bool) -> list[HostSummary]:
    """Sorted hosts; ties by name, unknown values last. ``reverse``: against the column's own order."""
    base = sorted(hosts, key=lambda host: natural_sort_key(host.name))
    chosen = COLUMN_BY_ID[column]
    known = [(value, host) for host in base if (value := chosen.value(host)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=chosen.descending != reverse)
    return [host for _, host in known] + [host for host in base if chosen.value(host) is None]

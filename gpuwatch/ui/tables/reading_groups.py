"""The readings of a GPU in groups, in the order in which people look for them. Pure.

A total that counts is one of errors. Any other metric belongs to the group of the longest prefix of its id in
:data:`_GROUP_OF_PREFIX`, one without a prefix to that of its unit. Within a group :data:`_FIRST_METRICS` come first,
the rest in the order of the table of metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from textwrap import wrap

from gpuwatch.core.formatting import units
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.energy import Energy
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.tables.filter_language import WordFilter

_PREFIXES = {
    "Load": ("utilization.", "activity.", "encoder."),
    "Memory": ("memory.", "bar1.", "activity.dram"),
    "Power and heat": ("power.", "energy_", "temperature.", "fan."),
    "Clocks": ("clocks.", "performance.", "events."),
    "Links": ("pcie.", "nvlink.", "fabric.", "activity.pcie", "activity.nvlink"),
    "Errors": ("ecc.", "remapped_rows.", "retired_pages.", "health."),
    "Identity": ("identity.", "mode.", "mig."),
}
_GROUP_OF_UNIT = {
    Unit.PERCENT: "Load",
    Unit.BYTES: "Memory",
    Unit.WATT: "Power and heat",
    Unit.JOULE: "Power and heat",
    Unit.CELSIUS: "Power and heat",
    Unit.MEGAHERTZ: "Clocks",
    Unit.BYTES_PER_SECOND: "Links",
}
"""What other units measure says nothing about what it is of: the name of a state, a number of parts."""
GROUPS = tuple(_PREFIXES)
_GROUP_OF_PREFIX = {prefix: group for group, prefixes in _PREFIXES.items() for prefix in prefixes}
_FIRST_METRICS = (
    "memory.used_bytes",
    "memory.free_bytes",
    "memory.total_bytes",
    "power.draw_watts",
    "power.limit_watts",
    "temperature.gpu_celsius",
    "temperature.memory_celsius",
    "temperature.margin_celsius",
    "fan.speed_percent",
    "clocks.event_reasons",
    "performance.state",
    "pcie.generation",
    "pcie.width",
    "pcie.rx_bytes_per_second",
    "pcie.tx_bytes_per_second",
    "nvlink.links_active",
    "ecc.uncorrected",
    "ecc.corrected",
    "health.recovery_action",
    "identity.architecture",
)
_RANK = {metric_id: rank for rank, metric_id in enumerate(_FIRST_METRICS)}
_ENERGY_AFTER = "power.limit_watts"
"""Energy since gpuwatch started comes after this metric."""


def group_of(spec: MetricSpec) -> str:
    """Title of the group that a metric is listed in."""
    if spec.counter and spec.unit is Unit.COUNT:
        return "Errors"
    prefix = max((prefix for prefix in _GROUP_OF_PREFIX if spec.id.startswith(prefix)), key=len, default="")
    return _GROUP_OF_PREFIX.get(prefix) or _GROUP_OF_UNIT.get(spec.unit, "Identity")


@lru_cache(maxsize=1)
def metrics_by_group() -> tuple[tuple[str, tuple[MetricSpec, ...]], ...]:
    """Every metric, by group."""
    ordered = sorted(METRICS, key=lambda spec: _RANK.get(spec.id, len(_RANK)))
    return tuple((group, tuple(spec for spec in ordered if group_of(spec) == group)) for group in GROUPS)


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """One reading."""

    title: str
    text: str
    known: bool = True
    short: str = ""
    """A shorter title, for narrow places."""


@dataclass(frozen=True, slots=True)
class ReadingTable:
    """The readings to show."""

    groups: tuple[tuple[str, tuple[ReadingRow, ...]], ...]
    folded: tuple[tuple[str, int], ...]
    """Why readings are folded, and how many."""
    shown: int
    total: int


def _why_folded(spec: MetricSpec, why: Missing) -> str:
    """Why a reading is folded; empty if it has a line."""
    if why.reason == "not_supported":
        return "not supported"
    return "only with --gpm" if spec.lane is Lane.GPM and "--gpm" in why.detail else ""


def reading_table(
    device: Device, wanted: WordFilter | None = None, *, unfolded: bool = False, energy: tuple[ReadingRow, ...] = ()
) -> ReadingTable:
    """The readings of a device that match a filter.

    ``unfolded``: also those that it does not have, which a filter always finds.
    """
    groups, folded, total = [], dict[str, int](), 0
    for group, specs in metrics_by_group():
        rows: list[ReadingRow] = []
        found = wanted is not None and wanted(group)
        for spec in specs:
            value = device.get(spec.id)
            extra = energy if spec.id == _ENERGY_AFTER else ()
            total += 1 + len(extra)
            if isinstance(value, Missing):
                why = _why_folded(spec, value)
                on_demand = (spec.lane, value.reason) == (Lane.ON_DEMAND, "no_sample")
                text = f"{UNKNOWN} {why or ('only in snapshots' if on_demand else value.reason.replace('_', ' '))}"
                row = ReadingRow(spec.title, text, known=False, short=SHORT_TITLES.get(spec.id, ""))
                if why and not unfolded and wanted is None:
                    folded[why] = folded.get(why, 0) + 1
                    rows += extra
                    continue
            else:
                row = ReadingRow(
                    spec.title, printable(metric_value_text(spec, value)), short=SHORT_TITLES.get(spec.id, "")
                )
            for item in (row, *extra):
                if wanted is None or found or wanted(group, item.title, item.short, item.text):
                    rows.append(item)
        if rows:
            groups.append((group, tuple(rows)))
    return ReadingTable(tuple(groups), tuple(folded.items()), sum(len(rows) for _, rows in groups), total)


STARTED = "gpuwatch started"
"""From when on a live dashboard counts."""


def energy_rows(
    of_gpu: Energy | None, of_machine: Energy | None, gpus: int, since: str = STARTED
) -> tuple[ReadingRow, ...]:
    """Energy and mean power, of this GPU, and of all if there are several; ``since``: from when on they are counted."""
    rows = list(_energy_rows("", of_gpu, since))
    if gpus > 1:
        rows += _energy_rows(f", all {gpus} GPUs", of_machine, since)
    return tuple(rows)


def _energy_rows(of: str, used: Energy | None, since: str) -> tuple[ReadingRow, ReadingRow]:
    energy, power = f"Energy since {since}{of}", f"Mean power{of}"
    short = f"Energy since {'start' if since == STARTED else since}{of}"
    if used is None:
        unknown = f"{UNKNOWN} no sample"
        return ReadingRow(energy, unknown, False, short), ReadingRow(power, unknown, False)
    how = " estimated" if used.estimated else ""
    less = f" without {count_text(used.unknown_devices, 'GPU')}" if used.unknown_devices else ""
    return (
        ReadingRow(energy, f"{units.energy(used.joules, 3600)}{how}{less}", short=short),
        ReadingRow(power, f"{used.mean_watts:.0f} W over {hours_minutes(used.seconds)}{how}{less}"),
    )


@lru_cache(maxsize=2048)
def row_lines(row: ReadingRow, width: int) -> tuple[tuple[Span, ...], ...]:
    """A reading in lines of ``width`` cells: the title whole, on more lines if needed, its value at the right."""
    style, strong = ("text", "strong") if row.known else ("dim", "faint")
    room = max(width, 8)
    for title in (row.title, row.short):
        if title and width_of(title) + width_of(row.text) + 1 <= room:
            gap = room - width_of(title) - width_of(row.text)
            return (((title, style), (" " * gap, "text"), (row.text, strong)),)
    title = row.short or row.title
    values = _wrapped(row.text, room)
    titles = _wrapped(title, room)
    lines: list[tuple[Span, ...]] = [((part, style),) for part in titles]
    if width_of(titles[-1]) + width_of(values[0]) + 1 <= room:
        gap = room - width_of(titles[-1]) - width_of(values[0])
        lines[-1] = ((titles[-1], style), (" " * gap, "text"), (values.pop(0), strong))
    lines += [((" " * (room - width_of(part)), "text"), (part, strong)) for part in values]
    return tuple(lines)


def _wrapped(text: str, room: int) -> list[str]:
    """Parts of at most ``room`` cells, split at blanks where possible."""
    cells = room if width_of(text) == len(text) else max(room // 2, 1)  # of wide characters two cells each
    return wrap(text, cells, break_on_hyphens=False) or [text]


SHORT_TITLES = {
    "energy_joules": "Total energy",
    "power.average_watts": "Power, 1 s average",
    "power.instant_watts": "Power, instantaneous",
    "nvlink.tx_bytes_per_second": "NVLink transmit, avg",
    "nvlink.rx_bytes_per_second": "NVLink receive, avg",
    "pcie.tx_bytes_per_second": "PCIe transmit",
    "pcie.rx_bytes_per_second": "PCIe receive",
    "memory.addressing": "Host memory sharing",
    "memory.unexplained_bytes": "Memory of no listed process",
    "temperature.margin_celsius": "Margin to slowdown",
}
"""Shorter titles of readings, for narrow places."""

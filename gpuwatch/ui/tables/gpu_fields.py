"""Fields of a GPU shown beside its bars, in lines and cards. Pure.

To add a field, add an entry to :data:`OPTIONAL_FIELDS`; to add a graph, give its entry one. Lines, cards, the
choosers, the settings file and shell completion follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.formatting.metric_value_text import missing_text
from gpuwatch.core.formatting.units import UNKNOWN, energy, gib_number, gigabytes_per_second, short_gib, whole_number
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.tables.device_notes import pcie_link_text
from gpuwatch.ui.tables.gpu_loads import (
    DEFAULT_THRESHOLDS,
    LEVEL_STYLES,
    NORMAL,
    Load,
    Thresholds,
    level_mark,
    load_level,
)


class GpuGraph(NamedTuple):
    """How a field is drawn as a graph. A field has one if this has a style."""

    caption: str = ""
    """Title of the graph on the tab of a GPU."""
    style: str = ""
    help: str = ""


_NO_GRAPH = GpuGraph()


@dataclass(frozen=True, slots=True)
class GpuField:
    """One field: header, text and width."""

    id: str
    title: str
    """Header above the lines of GPUs."""
    help: str
    unit: str = ""
    metric: str = ""
    """The metric it shows; without one the field is always available."""
    label: str = ""
    """Label in a card."""
    card_cells: int = 0
    """Cells in a card, label and unit included; 0 if cards do not show it, or show it in their frame."""
    line_cells: int = 0
    """Cells in a line, including the leading blank; 0 if lines draw it separately."""
    shown_by_default: bool = True
    load: Load = ""
    """The load that it shows, ranked by glyph and color."""
    text: Callable[[Device], str] | None = None
    """Text in a line, instead of the metric's number."""
    card: Callable[[Device], str] | None = None
    """Text in a card, instead of the metric's number."""
    graph: GpuGraph = _NO_GRAPH
    """Of a metric that has an axis and is in :data:`.recorded_period.GRAPHED`."""


def _power_text(device: Device, cells: int = 1) -> str:
    draw, limit = device.number("power.draw_watts"), device.number("power.limit_watts")
    return f"{whole_number(draw, cells)}/{whole_number(limit, 1)}"


def _memory_card(device: Device) -> str:
    total = gib_number(device.number("memory.total_bytes"))
    return f"{gib_number(device.number('memory.used_bytes')):>{max(len(total), 5)}}/{total} GiB"


def _clock_card(device: Device) -> str:
    now, most = device.number("clocks.sm_mhz"), device.number("clocks.sm_max_mhz")
    return f"{whole_number(now, 4)}/{whole_number(most, 1)} MHz"


def _performance_state(device: Device) -> str:
    state = device.get("performance.state")
    return printable(state) if isinstance(state, str) else UNKNOWN


def _nvlink_text(device: Device, cells: int) -> str:
    rx, tx = device.number("nvlink.rx_bytes_per_second"), device.number("nvlink.tx_bytes_per_second")
    return f"↓{gigabytes_per_second(rx, cells)} ↑{gigabytes_per_second(tx, cells)}"


def _ecc_text(device: Device) -> str:
    """Errors since boot, the uncorrected ones first: they end programs."""
    if device.get("ecc.mode") == "disabled":
        return "off"
    uncorrected, corrected = device.number("ecc.uncorrected"), device.number("ecc.corrected")
    if uncorrected:
        return f"{uncorrected:.0f} uncorrected"
    if corrected:
        return f"{corrected:.0f} corrected"
    if uncorrected is None and corrected is None:
        return UNKNOWN
    if uncorrected is not None and corrected is not None:
        return "no errors"
    return "0 corrected" if uncorrected is None else "0 uncorrected"


THROTTLE_REASONS = (
    ("power", "power cap"),
    ("thermal", "thermal"),
    ("reliability", "voltage"),
    ("board_limit", "board limit"),
    ("sync_boost", "sync boost"),
)
"""Names in the ids of the metrics, and words. The reasons overlap, so their shares cannot be added."""


def _most_throttled(device: Device) -> tuple[float | None, str]:
    """The largest share of time since the previous reading, in percent, and its reason."""
    known = ((device.number(f"events.{name}_percent"), words) for name, words in THROTTLE_REASONS)
    shares = [(share, words) for share, words in known if share is not None]
    if not shares:
        return None, ""
    share, words = max(shares, key=lambda share: (share[0], share[1] == "thermal"))
    return share, words if share else ""


def _throttled_line(device: Device) -> str:
    share, _ = _most_throttled(device)
    return UNKNOWN if share is None else f"{share:.0f}%"


def _throttled_card(device: Device) -> str:
    share, words = _most_throttled(device)
    if share is None:
        return UNKNOWN
    shown = "<1" if 0 < share < 0.5 else f"{share:.0f}"
    return f"{shown:>3} % {words}".rstrip()


def _energy_text(device: Device) -> str:
    return energy(device.number("energy_joules"), 3600)  # in watt-hours beside other GPUs that used more


# fmt: off
OPTIONAL_FIELDS: tuple[GpuField, ...] = (
    GpuField("name", "GPU", "product name, in lines (cards show it in the frame)"),
    GpuField("free", "FREE", "free GPU memory, in lines (cards have it)", metric="memory.free_bytes", line_cells=7,
        text=lambda device: short_gib(device.number("memory.free_bytes"))),
    GpuField("power", "POWER", "power draw and limit", "W", "power.draw_watts", "PWR", card_cells=15, line_cells=11,
        load="power", text=_power_text, card=lambda device: f"{_power_text(device, 4)} W",
        graph=GpuGraph("Power", "power", "power draw up to the limit")),
    GpuField("temperature", "TEMP", "GPU temperature", "°C", "temperature.gpu_celsius", "TEMP", card_cells=11,
        line_cells=6, load="temperature", graph=GpuGraph("Temperature", "temperature", "GPU temperature")),
    GpuField("clock", "SM", "SM clock; in cards with its maximum", "MHz", "clocks.sm_mhz", "SM", card_cells=16,
        line_cells=8, load="clock", card=_clock_card,
        graph=GpuGraph("SM clock", "clock", "SM clock up to its maximum")),
    GpuField("state", "ST", "performance state, P0 is the fastest", metric="performance.state", card_cells=3,
        line_cells=4, text=_performance_state, card=_performance_state),
    GpuField("memory-temperature", "MTEMP", "memory temperature", "°C", "temperature.memory_celsius", "MTEMP",
        card_cells=12, line_cells=6),
    GpuField("nvlink", "NVLINK GB/s", "NVLink throughput in GB/s, in ↓ and out ↑", metric="nvlink.rx_bytes_per_second",
        label="NVLink", card_cells=27, line_cells=15, text=lambda device: _nvlink_text(device, 1),
        card=lambda device: f"{_nvlink_text(device, 6)} GB/s"),
    GpuField("ecc", "ECC", "memory errors since boot", metric="ecc.mode", label="ECC", card_cells=21, line_cells=17,
        text=_ecc_text, card=_ecc_text),
    GpuField("throttled", "THR", "share of time throttled, and the main reason", metric="events.thermal_percent",
        label="THROTTLED", card_cells=27, line_cells=5, text=_throttled_line, card=_throttled_card),
    GpuField("energy", "TOTAL ENERGY", "energy used since the driver was loaded", metric="energy_joules",
        label="TOTAL ENERGY", card_cells=25, line_cells=13, text=_energy_text, card=_energy_text),
    GpuField("fan", "FAN", "fan speed", "%", "fan.speed_percent", "FAN", card_cells=9, line_cells=6),
    GpuField("memory-clock", "MEM CLK", "memory clock", "MHz", "clocks.memory_mhz", "MCLK", card_cells=14,
        line_cells=9),
    GpuField("bandwidth", "BW", "share of time memory was read or written", "%", "utilization.memory_percent",
        "MEM BUSY", card_cells=14, line_cells=6, shown_by_default=False,
        graph=GpuGraph("Memory busy", "memory", "share of time in which memory was read or written")),
    GpuField("encoder", "ENC", "video encoder utilization", "%", "utilization.encoder_percent", "ENC", card_cells=9,
        line_cells=6, shown_by_default=False),
    GpuField("decoder", "DEC", "video decoder utilization", "%", "utilization.decoder_percent", "DEC", card_cells=9,
        line_cells=6, shown_by_default=False),
    GpuField("pcie", "PCIe GB/s", "link generation × width, and GB/s in ↓ and out ↑ (cards show it in the frame)",
        metric="pcie.generation", line_cells=19, shown_by_default=False,
        text=lambda device: pcie_link_text(device, 1) or UNKNOWN),
    GpuField("trend", "UTIL", "utilization history, in lines"),
)
FIXED_FIELDS = (
    GpuField("utilization", "UTIL", "", "%", "utilization.gpu_percent", "GPU", card_cells=9, load="utilization",
        graph=GpuGraph("GPU", "graph", "share of time in which the GPU was busy")),
    GpuField("memory", "MEMORY", "", "", "memory.used_bytes", "MEM", card_cells=19, load="memory", card=_memory_card,
        graph=GpuGraph("Memory", "memory", "GPU memory used")),
)
"""What every card shows, whatever was chosen."""
# fmt: on
FIELDS = {field.id: field for field in OPTIONAL_FIELDS}
DEFAULT_FIELDS = tuple(field.id for field in OPTIONAL_FIELDS if field.shown_by_default)
GRAPHS = {field.id: field for field in (*FIXED_FIELDS, *OPTIONAL_FIELDS) if field.graph.style}
DEFAULT_GRAPHS = tuple(GRAPHS)


def why_unavailable(field: GpuField, devices: Sequence[Device]) -> str:
    """Why no device has a field; empty if one has, or may get it."""
    if not field.metric or not devices:
        return ""
    for device in devices:
        reading = device.get(field.metric)
        if not isinstance(reading, Missing) or not reading.permanent:
            return ""
    why = devices[0].get(field.metric)
    assert isinstance(why, Missing)
    return missing_text(why)


def available_fields(chosen: Sequence[str], devices: Sequence[Device], seen: Collection[str] = ()) -> list[str]:
    """The chosen fields that some device has or may get; ``seen``: those that one had before, which stay."""
    return [name for name in chosen if name in FIELDS and (name in seen or not why_unavailable(FIELDS[name], devices))]


def fields_with_values(chosen: Sequence[str], devices: Sequence[Device]) -> set[str]:
    """The chosen fields of which some device has a value."""
    metrics = {name: FIELDS[name].metric for name in chosen if name in FIELDS and FIELDS[name].metric}
    return {name for name, metric in metrics.items() if any(metric in device.readings for device in devices)}


def _style(field: GpuField, device: Device, level: int) -> str:
    if level:
        return LEVEL_STYLES[level]
    return "dim" if field.metric and isinstance(device.get(field.metric), Missing) else "text"


def line_spans(field: GpuField, device: Device, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> list[Span]:
    """The field in exactly ``field.line_cells`` cells, with a leading blank."""
    if field.text is not None:
        text = field.text(device) + field.unit
    else:
        value = device.number(field.metric)
        text = UNKNOWN if value is None else whole_number(value, 1) + field.unit
    level = load_level(field.load, device, thresholds) if field.load else NORMAL
    style = _style(field, device, level)
    cells = f"{text[: field.line_cells - 1]:>{field.line_cells}}"
    if level and len(text) < field.line_cells - 1:
        cells = cells[: -len(text) - 1] + level_mark(field.load, level) + text
    unit = len(field.unit)
    if style != "text" or not unit or not cells.endswith(field.unit):
        return [(cells, style)]
    return [(cells[:-unit], style), (cells[-unit:], "dim")]


SORT_ARROW = "↓"
"""Marks the load by which GPUs are sorted."""


def card_spans(
    field: GpuField, device: Device, thresholds: Thresholds = DEFAULT_THRESHOLDS, *, sorted_by: str = "index"
) -> list[Span]:
    """The field in exactly ``field.card_cells`` cells: label, mark, value, unit. Blank if the card does not have it."""
    why = device.get(field.metric) if field.metric else None
    if isinstance(why, Missing) and why.reason == "not_supported":
        return [(" " * field.card_cells, "text")]
    level = load_level(field.load, device, thresholds) if field.load else NORMAL
    if field.id == "ecc" and device.number("ecc.uncorrected"):
        level, sign = 2, "▲"
    else:
        sign = level_mark(field.load, level)
    if field.card is not None:
        value, unit = field.card(device), ""
    else:
        unit = f" {field.unit}"
        room = field.card_cells - len(field.label) - 1 - len(unit)
        value = whole_number(device.number(field.metric), room)
    of_order = field.load == sorted_by
    label = field.label + (sign.strip() or SORT_ARROW * of_order or sign) if field.label else ""
    rest = field.card_cells - len(label) - len(unit)
    return [
        (label, LEVEL_STYLES[level] if level else "sorted" if of_order else "dim"),
        (f"{value[:rest]:<{rest}}", _style(field, device, level)),
        (unit, "dim"),
    ]

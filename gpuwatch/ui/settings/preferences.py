"""The dashboard's preferences, and their keys in the settings file. Pure, no Textual.

To add a setting: a field of :class:`Preferences` and an entry in :data:`SETTINGS`; reading, checking
and saving follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.formatting.suggest import did_you_mean
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.collector.protocol import DEFAULT_INTERVAL_SECONDS
from gpuwatch.ui.drawing.overview_layout import LAYOUT_CHOICES, LayoutChoice
from gpuwatch.ui.drawing.textual_themes import DEFAULT_THEME, is_theme, known_themes
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.tables.filter_language import FilterError
from gpuwatch.ui.tables.gpu_fields import DEFAULT_FIELDS, DEFAULT_GRAPHS, FIELDS, GRAPHS
from gpuwatch.ui.tables.gpu_loads import DEFAULT_THRESHOLDS, ORDERS, GpuOrder, Thresholds
from gpuwatch.ui.tables.process_columns import COLUMNS, DEFAULT_COLUMNS
from gpuwatch.ui.tables.process_filter import parse_process_filter

MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 0.25, 60.0
"""Allowed seconds between samples."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The user's settings, with their defaults."""

    theme: str = DEFAULT_THEME
    ascii: bool | None = None
    """None: only if the terminal cannot show more."""
    interval: float = DEFAULT_INTERVAL_SECONDS
    """Seconds between samples."""
    read_only: bool = False
    tab: str = TABS[0].id
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    """Columns of the process table, in order."""
    sort: str | None = None
    """A column; None: GPU memory, or CPU without GPUs."""
    descending: bool | None = None
    """None: the column's default order."""
    tree: bool = False
    filter: str = ""
    gpu_fields: tuple[str, ...] = DEFAULT_FIELDS
    """Fields shown of each GPU beside its bars, in order."""
    layout: LayoutChoice = "automatic"
    """How GPUs are drawn."""
    gpu_order: GpuOrder = "index"
    graphs: tuple[str, ...] = DEFAULT_GRAPHS
    """Graphs in the cards of GPUs, in order."""
    utilization_thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS.utilization
    memory_thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS.memory
    temperature_thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS.temperature
    power_thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS.power
    clock_thresholds: tuple[float, ...] = DEFAULT_THRESHOLDS.clock
    gpm: bool = False
    """Whether to collect GPM metrics, which use hardware counters that other tools may need."""
    own_collector: bool = False
    """Whether to query the driver even if a recorder on this machine does."""
    notify: bool = False
    """Whether findings are shown on the desktop, through the terminal."""

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(*(getattr(self, f"{load}_thresholds") for load in Thresholds._fields))


class InvalidValue(ValueError):
    """An invalid value; the message says why."""

    def __init__(self, message: str, valid_part: object = None) -> None:
        super().__init__(message)
        self.valid_part = valid_part
        """What of it can be used; None: nothing."""


Choices = Callable[[], Mapping[str, str]]


class Setting(NamedTuple):
    """One key of the file."""

    table: str
    """Empty for the top level."""
    key: str
    field: str
    """Name of the field of :class:`Preferences`."""
    convert: Callable[[object], object]
    """Converts a value of the file; raises :class:`InvalidValue` for an invalid one."""
    help: str = ""
    """Its meaning in a few words, for the comment of a new entry."""
    example: object = None
    """A value for the comment, if the default is to have none."""
    choices: Choices | None = None
    """What may be chosen, by name with a short explanation; None: anything that can be converted."""

    @property
    def name(self) -> str:
        """Its dotted name: ``processes.sort``."""
        return f"{self.table}.{self.key}" if self.table else self.key

    def toml_value(self, preferences: Preferences) -> object:
        """Its value as the file has it."""
        value = getattr(preferences, self.field)
        return list(value) if isinstance(value, tuple) else value


def _quoted(value: object) -> str:
    return f"“{printable(value)}”" if isinstance(value, str) else repr(value)


def _as_flag(value: object) -> object:
    if not isinstance(value, bool):
        raise InvalidValue(f"is {_quoted(value)}, not true or false")
    return value


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"is {_quoted(value)}, not text in quotes")
    return value


def _as_interval(value: object) -> object:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not MIN_INTERVAL_SECONDS <= value <= MAX_INTERVAL_SECONDS
    ):
        raise InvalidValue(
            f"is {_quoted(value)}, not a number from {MIN_INTERVAL_SECONDS:g} to {MAX_INTERVAL_SECONDS:g}"
        )
    return float(value)


def _as_theme(value: object) -> object:
    name = _as_text(value)
    if not is_theme(name):
        raise InvalidValue(f"is {_quoted(name)}, not a known theme{did_you_mean(name, known_themes())}")
    return name


def _one_of(table: str, key: str, field: str, noun: str, choices: Choices, help: str, example: str = "") -> Setting:
    def convert(value: object) -> str:
        name, names = _as_text(value), choices()
        if name not in names:
            raise InvalidValue(f"is {_quoted(name)}, not a known {noun}{did_you_mean(name, names)}")
        return name

    return Setting(table, key, field, convert, help, example or None, choices)


def _some_of(table: str, key: str, field: str, noun: str, choices: Choices, *, help: str) -> Setting:
    """A setting that is a list of some names; of one with an unknown name, the known ones are used."""

    def convert(value: object) -> tuple[str, ...]:
        names = choices()
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise InvalidValue(f"is {_quoted(value)}, not a list of names in quotes")
        good = tuple(dict.fromkeys(name for name in value if name in names))
        for name in value:
            if name not in names:
                raise InvalidValue(f"has the unknown {noun} {_quoted(name)}{did_you_mean(name, names)}", good or None)
        if not good:
            raise InvalidValue(f"is empty: name at least one {noun}")
        if len(good) < len(value):
            raise InvalidValue(f"names a {noun} twice", good)
        return good

    return Setting(table, key, field, convert, help, choices=choices)


def _as_filter(value: object) -> object:
    text = _as_text(value)
    try:
        parse_process_filter(text)
    except FilterError as error:
        raise InvalidValue(f"is invalid: {error}") from None
    return text


def _as_thresholds(value: object, *, falling: bool = False) -> tuple[float, ...]:
    """At most two percentages; ``falling``: the second is the lower one."""
    if not isinstance(value, list) or not all(
        isinstance(entry, (int, float)) and not isinstance(entry, bool) and 0 <= entry <= 200 for entry in value
    ):
        raise InvalidValue(f"is {_quoted(value)}, not a list of percentages")
    found = tuple(float(entry) for entry in value)
    if len(found) > 2:
        raise InvalidValue(f"has {len(found)} percentages: give at most two, for high and very high")
    if found != tuple(sorted(found, reverse=falling)):
        raise InvalidValue(f"is not in {'falling' if falling else 'rising'} order")
    return found


def _columns() -> Mapping[str, str]:
    return {column.id: column.help for column in COLUMNS}


# fmt: off
SETTINGS: tuple[Setting, ...] = (
    Setting("", "theme", "theme", _as_theme, help="colors; Ctrl+P, Theme lists them",
        choices=lambda: dict.fromkeys(known_themes(), "")),
    Setting("", "ascii", "ascii", _as_flag, help="draw with ASCII only; unset: if the terminal needs it", example=True),
    Setting("", "interval", "interval", _as_interval,
        help=f"seconds between samples, {MIN_INTERVAL_SECONDS:g} to {MAX_INTERVAL_SECONDS:g}"),
    Setting("", "read-only", "read_only", _as_flag, help="true: send no signals"),
    Setting("", "gpm", "gpm", _as_flag, help="SM, tensor core and DRAM activity; uses hardware counters"),
    Setting("", "own-collector", "own_collector", _as_flag, help="true: take no samples from gpuwatch record"),
    Setting("", "notify", "notify", _as_flag,
        help="true: show warnings and errors on the desktop, through the terminal"),
    _one_of("", "tab", "tab", "tab", lambda: {tab.id: tab.help for tab in TABS},
        help="first tab: " + ", ".join(tab.id for tab in TABS)),
    _some_of("processes", "columns", "columns", "column", _columns, help="columns, from left to right"),
    _one_of("processes", "sort", "sort", "column", _columns, help="column to sort by; unset: GPU memory",
        example="memory"),
    Setting("processes", "descending", "descending", _as_flag, help="largest first; unset: the column's own order",
        example=True),
    Setting("processes", "tree", "tree", _as_flag, help="show the process tree"),
    Setting("processes", "filter", "filter", _as_filter, help="as typed after /: user:alice mem>2GiB"),
    _some_of("gpus", "fields", "gpu_fields", "field", lambda: {field.id: field.help for field in FIELDS.values()},
        help="fields beside the bars, in order"),
    _one_of("gpus", "layout", "layout", "layout", lambda: dict.fromkeys(LAYOUT_CHOICES, ""),
        help=f"{', '.join(LAYOUT_CHOICES)}; 16 or more GPUs are always lines"),
    _one_of("gpus", "order", "gpu_order", "order", lambda: dict.fromkeys(ORDERS, ""),
        help=f"sorted by {', '.join(ORDERS)}"),
    _some_of("gpus", "graphs", "graphs", "graph", lambda: {field.id: field.graph.help for field in GRAPHS.values()},
        help="graphs in cards, in order"),
    *(
        Setting("thresholds", load, f"{load}_thresholds", _as_thresholds, help=f"high and very high, % of {of}")
        for load, of in (
            ("utilization", "the time; [] for never"),
            ("memory", "the memory"),
            ("temperature", "the slowdown temperature"),
            ("power", "the power limit"),
        )
    ),
    Setting("thresholds", "clock", "clock_thresholds", lambda value: _as_thresholds(value, falling=True),
        help="low and very low under load, % of the maximum SM clock"),
)
# fmt: on

"""Types of charts: bars, marks, the timeline of a run, memory by group over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpuwatch.core.model.doctor import CheckState
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.recorded_period import Period, PeriodDevice
from gpuwatch.core.model.run import Run

PartKind = Literal[
    "owner",
    "others",
    "unexplained",
    "reserved",
    "process",
    "used",
    "held",
    "context",
    "free",
    "value",
    "weights",
    "kept",
    "optimizer",
    "variables",
    "gradients",
    "activations",
    "inputs",
    "workspace",
    "unattributed",
]
MEMORY_GROUPS: dict[str, tuple[PartKind, str]] = {
    "weights": ("weights", "parameters of the model"),
    "weights and caches": ("kept", "in use since before the recording began: parameters, buffers, caches"),
    "caches": ("kept", "keys and values kept between steps"),
    "arrays": ("weights", "arrays that the program keeps"),
    "executables": ("kept", "compiled programs, which the device holds too"),
    "optimizer state": ("optimizer", "what the optimizer keeps, such as momentum"),
    "other variables": ("variables", "variables that do not belong to Keras, and Keras variables that are not trained"),
    "inputs": ("inputs", "data copied to the GPU that has the shape of an input"),
    "created": ("inputs", "tensors that the program creates outside modules, such as torch.zeros"),
    "activations": ("activations", "results of the layers' forward ops"),
    "gradients": ("gradients", "results of the backward pass"),
    "workspace": (
        "workspace",
        "buffers of kernels, such as what cuBLAS keeps in each thread, and of the optimizer's update",
    ),
    "unattributed": ("unattributed", "recorded, but its name does not say what it was for"),
}
"""The groups of a memory profile, in the order in which they are stacked, what lives long at the bottom: how each is
drawn, and what it is."""


@dataclass(frozen=True, slots=True)
class BarPart:
    """One part of a bar, in the unit of its chart."""

    kind: PartKind
    name: str
    amount: float
    text: str


@dataclass(frozen=True, slots=True)
class BarRow:
    """One bar: its parts from the left, and the text after it."""

    label: str
    parts: tuple[BarPart, ...]
    text: str
    low: float | None = None
    high: float | None = None
    """A whisker from low to high: the range of most measurements."""
    tick: float | None = None
    """A tick: a limit, or the granted amount."""
    total: float | None = None
    """Scale of this row, if rows differ (GPUs of several sizes)."""


@dataclass(frozen=True, slots=True)
class BarChart:
    """Bars on one axis from 0 to ``top``."""

    title: str
    rows: tuple[BarRow, ...]
    top: float
    axis: str
    tick: str = ""
    """What the tick means."""
    whisker: str = ""
    note: str = ""
    """A note on bars that are not shown."""
    keys: tuple[BarPart, ...] = ()
    """The kinds of parts, named once for all bars; empty: below each bar."""


@dataclass(frozen=True, slots=True)
class CheckMarks:
    """Checks by group, one sign each."""

    title: str
    groups: tuple[tuple[str, tuple[tuple[CheckState, str], ...]], ...]


@dataclass(frozen=True, slots=True)
class MemoryTimeline:
    """The memory of a run over time."""

    title: str
    run: Run


@dataclass(frozen=True, slots=True)
class MemoryAreas:
    """The memory of a profile over time, stacked by group, or by the lines that held most at the peak."""

    title: str
    profile: MemoryProfile
    by: Literal["group", "line"] = "group"


@dataclass(frozen=True, slots=True)
class PeriodGraphs:
    """Readings of a GPU over a stretch of a recording, with its processes, findings and events on the same clock."""

    period: Period
    device: PeriodDevice


Chart = BarChart | CheckMarks | MemoryTimeline | MemoryAreas | PeriodGraphs

"""What differs between two machines, or one machine at two times. ``gpuwatch.diff/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

Change = Literal["came", "went", "stayed"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two things that are compared."""

    name: str
    """A name that the other one does not have."""
    kind: str
    """``recording``, ``snapshot``, ``diagnostic``, ``doctor``, ``run``; of memory ``PyTorch snapshot`` and the like."""
    host: str | None
    """Name of the machine; null if unknown."""
    begin: datetime.datetime | None
    """When it was taken; of a recording, the start of the stretch; null if the file does not say."""
    end: datetime.datetime | None
    """The same, or the end of the stretch."""
    samples: int
    """Samples of the stretch; 1 for anything but a recording."""


class FactChange(msgspec.Struct, frozen=True, kw_only=True):
    """A fact, such as a version, that differs between the sides."""

    part: str
    """``Machine``, ``GPU 0``, ``Versions``, ``Run`` and so on."""
    name: str
    """What it is."""
    values: tuple[str | None, str | None]
    """On each side; null if it does not exist there."""


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A cause on one side or both."""

    id: str
    """Id of the cause."""
    change: Change
    """``came``: only on the second side; ``went``: only on the first; ``stayed``: on both."""
    severity: str
    """The highest: ``error``, ``warning`` or ``info``."""
    title: str
    """The title of one of these findings."""
    where: tuple[str, str]
    """The GPUs on each side; empty without any."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A number over a stretch of time."""

    median: float
    """The median; of a counter, its growth per hour."""
    low: float
    """25th percentile."""
    high: float
    """75th percentile."""
    points: int
    """Number of values: samples, or means of minutes or hours."""


class NumberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number that differs by more than its noise."""

    part: str
    """``GPU 0``, ``Run``."""
    name: str
    """What it is."""
    metric: str
    """The id of the metric."""
    unit: str
    """Its unit; empty without one."""
    values: tuple[Spread, Spread]
    """The value on each side."""
    threshold: float
    """The least difference of the medians that counts."""


class HolderChange(msgspec.Struct, frozen=True, kw_only=True):
    """A holder of memory that grew or shrank between two snapshots of a program's memory."""

    device: str
    """The framework's device."""
    group: str
    """What the memory is for: weights, activations and so on."""
    source: str
    """Line of the program; empty if unknown."""
    layer: str
    """Layer, or line of a library, through which it was allocated."""
    op: str
    """Op or variable."""
    counts: tuple[int, int]
    """Allocations on each side."""
    held_bytes: tuple[int, int]
    """Bytes on each side."""


class Diff(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.diff/1"):
    """What differs between two reports, recordings, snapshots, runs, or files of a program's memory."""

    sides: tuple[Side, Side]
    """What is compared: the first is the reference."""
    simulated: bool
    differs: bool
    """Whether anything differs: a fact, a number, or a finding that came or went."""
    facts: tuple[FactChange, ...] = ()
    """What differs in versions, GPUs, limits, modes and settings."""
    findings: tuple[FindingChange, ...] = ()
    """Causes that came, went and stayed."""
    numbers: tuple[NumberChange, ...] = ()
    """What differs by more than its noise."""
    holders: tuple[HolderChange, ...] = ()
    """Holders of a program's memory that differ, what grew most first."""
    alike: int = 0
    """Facts and numbers that were compared and do not differ."""
    notes: tuple[str, ...] = ()
    """What could not be compared, one sentence each."""

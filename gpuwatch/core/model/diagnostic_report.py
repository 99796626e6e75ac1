"""The diagnostic report: everything that a helper would ask for. ``gpuwatch.diagnostic/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot

Effect = Literal["effect", "warning", "misspelt", "too-late", "unknown"]
"""The effect of an environment variable.

``effect``: it is read, and its value is valid.
``warning``: it is read, and its value is harmful or invalid.
``misspelt``: nothing reads it.
``too-late``: the program set it after its framework had started.
``unknown``: not checked, or unknown to gpuwatch.
"""


MACHINE_SOURCE = "the machine now"
"""Source of findings of the snapshot, in :attr:`SourcedFinding.sources`."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the report that could not be gathered, or was left out."""

    part: str
    why: str


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Output of another program."""

    name: str
    """``nvidia-smi``, ``kernel log``."""
    lines: tuple[str, ...]


class SourcedFinding(Finding, frozen=True, kw_only=True):
    """A finding and its sources."""

    sources: tuple[str, ...] = ()
    """``doctor``, ``the machine now``, ``run of train.py``: everything that reported it."""


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """An environment variable that affects GPUs, or has nearly the name of one that does."""

    name: str
    value: str
    effect: Effect
    note: str = ""
    """Its effect in words."""
    program: str | None = None
    """The command line of the watched program that had this value; None: the shell that made the report."""


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.diagnostic/1"):
    """The machine now, the doctor's checks, the latest runs, and the findings from all of them."""

    taken_at: datetime.datetime
    took_seconds: float
    gpuwatch_version: str
    simulated: bool
    redacted: bool = False
    host: str | None = None
    primary: str | None = None
    """A cause id; None if nothing could be checked."""
    findings: tuple[SourcedFinding, ...] = ()
    """The findings of all parts, the primary one first, without duplicates."""
    snapshot: Snapshot | None = None
    doctor: Doctor | None = None
    variables: tuple[Variable, ...] = ()
    programs: tuple[Run, ...] = ()
    """The user's own programs, newest first."""
    probes: Comparison | None = None
    """The latest run of each configuration."""
    surroundings: dict[str, str] = {}
    """The environment of the machine: ``Slurm``, ``Google Colab``, ``WSL``, ``Secure Boot``, with details."""
    excerpts: tuple[Excerpt, ...] = ()
    """nvidia-smi's table, and the kernel's lines about GPUs."""
    missing: tuple[Gap, ...] = ()

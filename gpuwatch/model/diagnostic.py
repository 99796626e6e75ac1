"""The diagnostic report: everything that somebody who helps would ask for. ``gpuwatch.diagnostic/1``."""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from gpuwatch.model.doctor import Doctor
from gpuwatch.model.findings import Finding
from gpuwatch.model.run import Comparison, Run
from gpuwatch.model.snapshot import Snapshot

Effect = Literal["effect", "warning", "misspelt", "too-late", "unknown"]
"""What a variable that is set does.

``effect``: it is read, and says something that its reader understands.
``warning``: it is read, and what it says is harmful or not understood.
``misspelt``: nothing reads it.
``too-late``: a program set it when its framework had started already.
``unknown``: nobody looked, or gpuwatch does not know it.
"""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the report that could not be gathered, or was left out."""

    part: str
    why: str


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """What another program said, in its own words."""

    name: str
    """``nvidia-smi``, ``kernel log``."""
    lines: tuple[str, ...]


class SourcedFinding(Finding, frozen=True, kw_only=True):
    """A finding, and who told it."""

    sources: tuple[str, ...] = ()
    """``doctor``, ``the machine now``, ``run of train.py``; every one that told it."""


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """An environment variable that bears on GPUs, or nearly has the name of one that does."""

    name: str
    value: str
    effect: Effect
    note: str = ""
    """What it does, in words."""
    program: str | None = None
    """The command line of the watched program that had it so; None: the shell in which the report was made."""


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.diagnostic/1"):
    """The machine now, the doctor, the latest runs, and what all of them together say."""

    taken_at: datetime.datetime
    took_seconds: float
    gpuwatch_version: str
    simulated: bool
    redacted: bool = False
    """Whether users, hosts and paths were replaced."""
    host: str | None = None
    primary: str | None = None
    """A cause id; None where nothing could be looked at."""
    findings: tuple[SourcedFinding, ...] = ()
    """Of all parts, the primary one first; what several parts told is there once."""
    snapshot: Snapshot | None = None
    doctor: Doctor | None = None
    variables: tuple[Variable, ...] = ()
    programs: tuple[Run, ...] = ()
    """The user's own programs, newest first."""
    probes: Comparison | None = None
    """The latest run of each configuration."""
    surroundings: dict[str, str] = {}
    """What the machine runs in, or for: ``Slurm``, ``Google Colab``, ``WSL``, ``Secure Boot``, with what is known."""
    excerpts: tuple[Excerpt, ...] = ()
    """nvidia-smi's table, and the kernel's lines about GPUs."""
    missing: tuple[Gap, ...] = ()

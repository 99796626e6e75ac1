"""A log or recording explained: what happened, why, and what to do. ``gpuwatch.explanation/1``."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import DeviceMapping, Fallback, Oom, Placement, RunError
from gpuwatch.core.model.snapshot import Snapshot

FileKind = Literal[
    "log", "TensorFlow profile", "PyTorch snapshot", "PyTorch memory timeline", "JAX memory profile", "DCGM diagnostic"
]
TestStatus = Literal["pass", "warn", "fail", "skip"]


class GpuTest(msgspec.Struct, frozen=True, kw_only=True):
    """A result of ``dcgmi diag``: one test on one GPU, or on several together."""

    category: str = ""
    """DCGM's category of the test: ``Deployment`` tests the software, the others the hardware."""
    name: str
    gpus: str = ""
    """The GPUs by DCGM's numbers, ``GPU 0``; empty if it has none."""
    status: TestStatus
    """``pass``, ``warn``, ``fail``, or ``skip`` for what was not run."""
    messages: tuple[str, ...] = ()
    """The warnings and remarks of the test."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.explanation/1"):
    """The explanation of a log or a recording."""

    source: str | None = None
    """The file's name."""
    kind: FileKind = "log"
    """What the file is, by its content."""
    lines: int
    frameworks: tuple[str, ...] = ()
    device_map: tuple[DeviceMapping, ...] = ()
    placements: tuple[Placement, ...] = ()
    ooms: tuple[Oom, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    errors: tuple[RunError, ...] = ()
    findings: tuple[Finding, ...] = ()
    primary: str | None = None
    unrecognised: tuple[str, ...] = ()
    """Lines of the frameworks' GPU code that no rule recognizes."""
    memory_profiles: tuple[MemoryProfile, ...] = ()
    """Who held the memory at the peak, in a recording; the fullest allocator first."""
    gpu_tests: tuple[GpuTest, ...] = ()
    """The tests of a diagnostic, in its order."""
    machine: Snapshot | None = None
    """The machine, if the log has the output of ``nvidia-smi -q``: without host, and with the readings that it has."""

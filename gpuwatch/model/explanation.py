"""A log explained: what happened, why, and what to do. ``gpuwatch.explanation/1``."""

from __future__ import annotations

import msgspec

from gpuwatch.model.findings import Finding
from gpuwatch.model.run import DeviceMapping, Fallback, Oom, Placement, RunError


class Explanation(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.explanation/1"):
    """The explanation of a log."""

    source: str | None = None
    """The log's name."""
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
    """Lines of the frameworks' GPU code that no rule recognises."""

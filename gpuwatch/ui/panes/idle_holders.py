"""Processes that hold GPU memory while idle, and since when. Pure, no Textual."""

from __future__ import annotations

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import IDLE_SINCE, Process
from gpuwatch.session.view import MAX_UNKNOWN_ONSET_SECONDS, View
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.tables.process_columns import owner_and_pid


def idle_holders(view: View) -> list[tuple[float, Process, Finding]]:
    """Idle processes, as a finding judges them, and the bytes that each holds; the one with most first."""
    found = [finding for finding in view.findings if finding.id == "idle.memory-held" and finding.until is None]
    holders = [
        (row.number("gpu_memory_bytes") or 0.0, row, finding)
        for finding in found
        for row in view.processes
        if (row.pid, row.device_uuid) == (finding.pid, finding.device_uuid)
    ]
    return sorted(holders, key=lambda holder: -holder[0])


def idle_text(view: View, row: Process) -> str:
    """``4 min, since 02:31``; ``at least since`` if it may have been idle before. Empty if it is not idle, or
    is no longer on its GPU."""
    finding = next((found for *_, its, found in idle_holders(view) if its is row), None)
    since = idle_since(row, finding)
    if not since or not any(other is row for other in view.processes):
        return ""
    begun, first = clock_text(since, view.moment)[:-3], view.since.first
    seen = first is not None and since > first + MAX_UNKNOWN_ONSET_SECONDS and not (finding and finding.may_be_older)
    return f"{steady_duration(view.moment - since)}, {'' if seen else 'at least '}since {begun}"


def idle_since(row: Process, finding: Finding | None) -> float | None:
    """When it was last seen to begin; None if that is unknown, or it is not idle."""
    told = row.number(IDLE_SINCE)
    return told or (finding.since.timestamp() if finding is not None and finding.since is not None else None)


def nobody_idle(view: View) -> str:
    """That no process is judged an idle holder, and which one comes nearest."""
    idle = [(row.idle_seconds(view.moment), row) for row in view.processes if row.number("gpu_memory_bytes")]
    resting = [(seconds, row) for seconds, row in idle if seconds]
    if not resting:
        unknown = any(seconds is None for seconds, _ in idle)
        return "whether a process is idle cannot be read" if unknown else "no process holds memory idle"
    seconds, row = max(resting, key=lambda found: found[0])
    longest = owner_and_pid(row), steady_duration(seconds), memory(row.number("gpu_memory_bytes"))
    return f"nobody idle for long; longest: {', '.join(longest)}"

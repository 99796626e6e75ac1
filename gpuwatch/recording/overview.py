"""What is in a recording, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.formatting.terminal import file_name
from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import size
from gpuwatch.history.machine_event import lasted
from gpuwatch.recording.reader import Recording
from gpuwatch.recording.time_expressions import shown

_LISTED = 5
"""Problems, and gaps, that are listed."""
GAP = 2.5
"""A gap is longer than so many intervals."""


def overview(path: Path) -> Iterator[str]:
    """The lines; :class:`~gpuwatch.errors.GpuwatchError` if it cannot be read."""
    with Recording(path) as recording:
        runs = recording.runs
        yield f"{file_name(path)}: {size(path.stat().st_size)}, schema {recording.schema}"
        for name, value in recording.notes.items():
            yield f"  {printable(name)}: {printable(value)}"
        if recording.begin is None or recording.end is None:
            yield "  no samples yet"
            return
        time = lasted(recording.end - recording.begin)
        yield f"  time      {shown(recording.begin)} to {shown(recording.end)} ({time})"
        every = f", every {runs[-1].interval:g} s" if runs else ""
        yield f"  samples   {recording.samples:,}{every}"
        if recording.covered:
            yield f"            {recording.covered:,} more are hidden: the clock was set back, their time came twice"
        yield from _machine(recording)
        lives = recording.processes()
        users = len({one.user for one in lives if one.user})
        of = f", of {users} user{'s' if users != 1 else ''}" if users else ""
        yield f"  processes {len({(one.pid, one.create_time) for one in lives})} on GPUs{of}"
        events, findings = recording.events(), recording.findings()
        yield f"  events    {len(events):,}"
        wrong = [one for one in findings if one.finding.severity != "info"]
        yield f"  problems  {len(wrong) or 'none'}"
        for one in wrong[:_LISTED]:
            yield f"            {shown(one.since)}  {printable(one.finding.title)}"
        yield from _gaps(recording)
        for run in runs:
            ended = "still running, or killed"
            if run.ended is not None:
                ended = f"to {shown(run.ended)}" + (f", ended {printable(run.why)}" if run.why else "")
            yield f"  recorder  {shown(run.began)} {ended} (gpuwatch {printable(run.version)})"


def _machine(recording: Recording) -> Iterator[str]:
    last = recording.at(float("inf"))
    if last is None:
        return
    snapshot = last.snapshot
    yield f"  machine   {printable(snapshot.host.hostname or 'unknown')}{' (simulated)' if snapshot.simulated else ''}"
    if snapshot.driver is not None:
        yield f"  driver    {printable(snapshot.driver.version or 'unknown')}"
    for device in snapshot.devices:
        yield f"  GPU {device.index}     {printable(device.name)} {printable(device.uuid)}"


def _gaps(recording: Recording) -> Iterator[str]:
    interval = max((run.interval for run in recording.runs), default=1.0)
    gaps = list(recording.gaps(max(GAP * interval, interval + 1.0)))
    if not gaps:
        yield "  gaps      none"
        return
    yield f"  gaps      {len(gaps)}, {lasted(sum(end - begin for begin, end in gaps))} in total"
    for begin, end in sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_LISTED]:
        yield f"            {shown(begin)} to {shown(end)} ({lasted(end - begin)})"

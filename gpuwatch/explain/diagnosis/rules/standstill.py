"""A watched program that lives and makes no more steps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core.formatting.text import printable
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.program_threads import Standstill, ThreadStack
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import rule, warning_of

_LEAST = 15.0
"""Seconds without a step."""
_STOOD = 10.0
"""Seconds for which the thread of the steps must stand at one line."""
_LONGER = 3.0
"""How many times longer than the longest pause between two steps before."""
_CPU = 0.2
"""Share of a core above which the process computes something, if no steps."""
_GPU = 5.0
"""Percent of utilization above which a GPU computes: one step may be long."""
_TIMEOUT = re.compile(r"Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!")
_DUMP = ("  ", "Thread 0x", "Current thread 0x")
"""Beginnings of the lines of faulthandler's dump after that (CPython's Modules/faulthandler.c)."""


@rule("program.stalled")
def no_more_steps(evidence: Evidence) -> Iterator[Finding]:
    """Not of a program that ended by itself, nor of one that computes: it may evaluate, save or make one long step."""
    run = evidence.run
    found = run.standstill if run is not None else None
    if run is None or found is None:
        return
    limit = _own_limit(run)
    if not (limit or run.verdict == "interrupted" or run.outcome.signal is not None):
        return
    without = (run.phases.total_seconds or found.until_seconds) - found.since_seconds
    longest = max((step.seconds for step in run.step_times), default=0.0)
    if (
        without < max(_STOOD if limit else _LEAST, _LONGER * longest)
        or found.stood_seconds < _STOOD
        or _computes(run, found)
    ):
        return
    place = next((thread.place for thread in found.threads[:1] if thread.place), "")
    yield warning_of(
        "program.stalled",
        title=f"The program made no step in its last {without:.0f} s"
        + (f": it stands at {printable(place)}" if place else ""),
        evidence=(
            *([f"its faulthandler ended it: {limit}"] if limit else ()),
            f"its last step, number {found.steps}, was {found.since_seconds:.0f} s after the start",
            f"seen {found.until_seconds:.0f} s after the start: at one line for {found.stood_seconds:.0f} s,"
            f" with {found.cpu_seconds:.2f} s of CPU time",
            *map(_stack, found.threads),
        ),
        action="Find out what that line waits for: a queue that nobody fills, a lock, a file, a process or rank that"
        " has ended. While it hangs, py-spy dump --pid PID shows the same for every process.",
    )


def _own_limit(run: Run) -> str:
    """The line of ``faulthandler.dump_traceback_later(…, exit=True)``, after which only its dump came; else empty."""
    lines = [line.rstrip() for line in run.log_tail] if run.outcome.exit_code == 1 and not run.errors else []
    said = max((at for at, line in enumerate(lines) if _TIMEOUT.fullmatch(line)), default=len(lines))
    only_dump = all(not line or line.startswith(_DUMP) for line in lines[said + 1 :])
    return lines[said] if said < len(lines) and only_dump else ""


def _computes(run: Run, found: Standstill) -> bool:
    busy = [point.gpu_percent or 0.0 for point in run.memory.timeline if point.t > found.since_seconds + 2]
    return found.cpu_seconds > _CPU * found.stood_seconds or max(busy, default=0.0) > _GPU


def _stack(thread: ThreadStack) -> str:
    return f"{printable(thread.name)}: {' < '.join(map(printable, thread.frames))}"

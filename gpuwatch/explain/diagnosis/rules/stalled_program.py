"""A watched program that still runs but makes no more steps, and a cluster that waits for tasks that never connect."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import takewhile

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run, signal_name
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import rule, warning_finding

_MIN_STANDSTILL_SECONDS = 15.0
"""Seconds without a step."""
_SAME_LINE_SECONDS = 10.0
"""Seconds for which the thread of the steps must stand at one line."""
_MIN_PAUSE_RATIO = 3.0
"""How many times longer than the longest pause between two steps before."""
_MIN_BUSY_CORE_SHARE = 0.2
"""Share of a core above which the process computes something, if no steps."""
_MIN_BUSY_GPU_PERCENT = 5.0
"""Percent of utilization above which a GPU computes: one step may be long."""
_WAITING_FOR_TASKS = re.compile(r"\] Waiting for ([1-9]\d*)/(\d+) tasks to connect\.")
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)\s*")
_TIMEOUT = re.compile(r"Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!")
_DUMP_LINE_STARTS = ("  ", "Thread 0x", "Current thread 0x")
"""Beginnings of the lines of faulthandler's dump after that (CPython's Modules/faulthandler.c)."""


@rule("program.stalled", needs="run")
def no_more_steps(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Not of a program that ended by itself, nor of one that computes: it may evaluate, save or make one long step."""
    found = run.standstill
    if found is None:
        return
    timeout_line = _faulthandler_timeout(run)
    if not (timeout_line or run.verdict == "interrupted" or run.outcome.signal is not None):
        return
    seconds_without_step = (run.phases.total_seconds or found.until_seconds) - found.since_seconds
    longest = max((step.seconds for step in run.step_times), default=0.0)
    min_seconds = max(_SAME_LINE_SECONDS if timeout_line else _MIN_STANDSTILL_SECONDS, _MIN_PAUSE_RATIO * longest)
    busy = [point.gpu_percent or 0.0 for point in run.memory.timeline if point.t > found.since_seconds + 2]
    computes = max(busy, default=0.0) > _MIN_BUSY_GPU_PERCENT
    computes = computes or found.cpu_seconds > _MIN_BUSY_CORE_SHARE * found.stood_seconds
    if seconds_without_step < min_seconds or found.stood_seconds < _SAME_LINE_SECONDS or computes:
        return
    place = next((thread.place for thread in found.threads[:1] if thread.place), "")
    yield warning_finding(
        "program.stalled",
        title=f"The program made no step in its last {seconds_without_step:.0f} s"
        + (f": it is at {printable(place)}" if place else ""),
        evidence=(
            *([f"its faulthandler ended it: {timeout_line}"] if timeout_line else ()),
            f"its last step, number {found.steps}, was {found.since_seconds:.0f} s after the start",
            f"seen {found.until_seconds:.0f} s after the start: at one line for {found.stood_seconds:.0f} s,"
            f" with {found.cpu_seconds:.2f} s of CPU time",
            *(f"{printable(thread.name)}: {' < '.join(map(printable, thread.frames))}" for thread in found.threads),
        ),
        action="Find out what that line waits for: a queue that nothing fills, a lock, a file, a process or rank that"
        " has ended. While it hangs, py-spy dump --pid PID shows the same for every process.",
    )


@rule("program.stalled", needs="run")
def cluster_incomplete(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """TensorFlow's coordination service waits for a task of the cluster that never connected.

    From its own lines: each task that connects is logged, and after that how many are still missing.
    """
    if run.verdict in ("ok", "fallback") or run.throughput is not None or run.step_times:
        return
    lines = run.log_tail
    first_line = max((at + 1 for at, line in enumerate(lines) if line.startswith("… ")), default=0)
    waits = [
        (at, match) for at, line in enumerate(lines) if at >= first_line and (match := _WAITING_FOR_TASKS.search(line))
    ]
    if not waits or any(" has connected to coordination service" in line for line in lines[waits[-1][0] :]):
        return
    last_wait_line, match = waits[-1]
    task_lines = takewhile(_TASK.fullmatch, lines[last_wait_line + 2 : last_wait_line + 12])
    tasks = [f"{task[1]} {task[2]}" for line in task_lines if (task := _TASK.fullmatch(line))]
    tasks_text = f": {', '.join(tasks)}" if tasks else ""
    yield warning_finding(
        "program.stalled",
        title=f"The cluster waited until the end for {match[1]} of {match[2]} tasks that never connected{tasks_text}",
        evidence=[
            printable(lines[last_wait_line].strip()),
            *(f"TF_CONFIG: {task} is {printable(address)}" for task, address in _addresses(run) if task in tasks),
            *(
                f"process {process.pid} was ended by {signal_name(-process.exit_code)}"
                for process in run.processes
                if process.exit_code is not None and process.exit_code < 0
            ),
        ],
        action="Start every task that TF_CONFIG names, each with its own index and an address that the others can "
        "reach, or name only tasks that are started: TensorFlow waits for all of them.",
    )


def _addresses(run: Run) -> Iterator[tuple[str, str]]:
    """``worker 1`` and its address, of the first process with a cluster."""
    text = next(
        (process.environment["TF_CONFIG"] for process in run.processes if "TF_CONFIG" in process.environment), "{}"
    )
    try:
        jobs = json.loads(text)["cluster"]
        yield from ((f"{job} {at}", str(address)) for job, names in jobs.items() for at, address in enumerate(names))
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _faulthandler_timeout(run: Run) -> str:
    """The line of ``faulthandler.dump_traceback_later(…, exit=True)``, after which only its dump came; else empty."""
    lines = [line.rstrip() for line in run.log_tail] if run.outcome.exit_code == 1 and not run.errors else []
    timeout_at = max((at for at, line in enumerate(lines) if _TIMEOUT.fullmatch(line)), default=len(lines))
    only_dump = all(not line or line.startswith(_DUMP_LINE_STARTS) for line in lines[timeout_at + 1 :])
    return lines[timeout_at] if timeout_at < len(lines) and only_dump else ""

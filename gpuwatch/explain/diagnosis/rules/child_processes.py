"""Child processes that failed, were killed, ran out of memory, or were forked after TensorFlow had started."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from gpuwatch.core.formatting.sentences import and_more, count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, info_finding, rule
from gpuwatch.explain.diagnosis.rules.error_evidence import error_line, quoted, raised_at
from gpuwatch.explain.diagnosis.rules.process_ends import host_memory_evidence, signal_meaning
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.log_parser import parse

EXIT_0_TITLE = "It exited with code 0, although"
"""Beginning of the title for a program whose exit code hides a failure."""
_CHECK_EXIT_CODES = "make it check how its processes end (process.exitcode, check=True)."
_MAX_PROCESSES = 8
_FORKS = "forks_after_start"
"""Name of the watcher's result with the number of processes that were forked (_gpuwatch_forks.py)."""


def broken_pool(evidence: Evidence) -> tuple[str, ...]:
    """The error of a program whose pool lost a process that a signal ended, and its place; empty without one."""
    run, log = evidence.run, evidence.log
    if run is None or not (run.killed_children and log.errors):
        return ()
    error = log.errors[-1]
    return (error_line(error), *raised_at(log, error)) if error.type == "BrokenProcessPool" else ()


@rule("unknown", needs="run")
def child_killed(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """By the signal that the parent was told; SIGTERM and the parent's own kill() are no surprise."""
    if not run.killed_children or run.verdict == "interrupted":
        return
    first = run.killed_children[0]
    number = signal.Signals(first.signal)
    others = len(run.killed_children) - 1
    process_text = f"its process {first.pid}" + and_more(others)
    event_text = f"{process_text} {'were' if others else 'was'} ended by {number.name}"
    succeeded = run.outcome.exit_code == 0
    event_text += ", so its pool of processes broke" if (pool_error := broken_pool(evidence)) else ""
    yield finding(
        "unknown",
        "error" if pool_error else "warning",
        title=f"{EXIT_0_TITLE} {event_text}" if succeeded else f"{event_text[:1].upper()}{event_text[1:]}",
        evidence=(
            *pool_error,
            *(
                _process_text(child.pid, signal.Signals(child.signal).name, child.command)
                for child in run.killed_children[:_MAX_PROCESSES]
            ),
            *(host_memory_evidence(run) if number == signal.SIGKILL else ()),
        ),
        action=signal_meaning(run, number).action
        + (f" The program that started it continues: {_CHECK_EXIT_CODES}" if succeeded else ""),
        pid=first.pid,
    )


@rule("unknown", needs="run")
def child_failed(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """By its exit code, which the parent was told and may have meant."""
    if run.outcome.exit_code != 0:
        return
    failed = [process for process in run.processes if process.exit_code is not None and process.exit_code > 0]
    if failed:
        others = and_more(len(failed) - 1)
        yield info_finding(
            "unknown",
            title=f"{EXIT_0_TITLE} its process {failed[0].pid}{others} ended with exit code {failed[0].exit_code}",
            evidence=[
                _process_text(process.pid, f"exit code {process.exit_code}", process.command)
                for process in failed[:_MAX_PROCESSES]
            ],
            action="Nothing to do if the program expects it. Otherwise: the program that started it continues: "
            + _CHECK_EXIT_CODES,
            pid=failed[0].pid,
        )


def _process_text(pid: int, end: str, command: str) -> str:
    return f"process {pid}: {end}" + (f", {quoted(command, 80)}" if command else "")


@rule("memory.request-too-large", needs="run")
def child_out_of_memory(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """A child that asked for more at once than its own limit: its parent has its output, and gpuwatch its exception."""
    if run.ooms:
        return
    for process in [process for process in run.processes if process.exit_code and process.errors][:_MAX_PROCESSES]:
        granted = {device_name(entry.framework_device): entry.granted_bytes for entry in process.device_map}
        for oom in parse("\n".join(error.message for error in process.errors)).ooms[:1]:
            requested, limit = oom.requested_bytes, granted.get(device_name(oom.device or ""))
            if requested is not None and limit is not None and requested > limit:
                chosen = run.settings.get("memory_limit")
                chosen = chosen if chosen is not None and chosen.effective == limit >> 20 else None
                yield finding(
                    "memory.request-too-large",
                    "info" if run.outcome.exit_code == 0 else "warning",
                    title=f"Out of memory: process {process.pid} asked for {size(requested)} at once, but its limit is "
                    f"{size(limit)}",
                    evidence=(
                        f"process {process.pid}: {printable(process.errors[0].message)[:200]}",
                        f"memory_limit {chosen.asked} MiB was set at {printable(chosen.source)}" if chosen else "",
                    ),
                    action="Raise the process's memory limit, or request less at once (a smaller batch).",
                    pid=process.pid,
                )


@rule("program.forked")
def forked_after_start(evidence: Evidence) -> Iterator[Finding]:
    """Processes forked by multiprocessing after TensorFlow started its GPUs: a note, as what they do is unknown."""
    if (count := evidence.result(_FORKS, int)) > 0:
        yield info_finding(
            "program.forked",
            title=f"{count_text(count, 'process was', 'processes were')} forked after TensorFlow had started its GPUs",
            evidence=[f"multiprocessing forked {count_text(count, 'time')} while TensorFlow had logical GPUs"],
            action="Do not use TensorFlow in them. Start them before its first op, or with"
            " multiprocessing.get_context('spawn').",
        )

"""Failures that no cause of gpuwatch explains: said, so that they are not taken for health."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import CAUSES, Finding
from gpuwatch.model.run import Run, RunError

_TAIL = 8
"""Lines that may follow the exception with which a program ended: the rest of its message, notes of a shell."""
_ENOUGH = frozenset(
    {
        "build.gpu-jit",
        "cuda.libraries-skipped",
        "driver.cuinit",
        "driver.not-running",
        "visibility.none-available",
        "cuda.missing-library",
        "memory.library-failed",
    }
)
"""Topics that are no cause by themselves, from which rules conclude one."""
_ON_PURPOSE = ("KeyboardInterrupt", "SystemExit")
_CUT = "The log ends within a Python traceback, before the error itself"

HOST_MEMORY = "ended.host-memory"
ENDINGS = {
    "ended.assert": (
        "A kernel stopped at an assertion: an index or a label is out of range",
        "Check that labels are from 0 to classes - 1 and indices within their table; CUDA_LAUNCH_BLOCKING=1, or the"
        " same step on the CPU, shows the line.",
    ),
    "ended.nccl-timeout": (
        "Ranks of a job waited for one that never came, until NCCL gave up",
        "Look for the rank that stopped first: its own log tells why (an exception, out of memory, fewer batches).",
    ),
    "ended.nccl": (
        "NCCL failed while GPUs exchanged data",
        "Set NCCL_DEBUG=WARN and read its first line; in a container give it --ipc=host or a larger --shm-size.",
    ),
    "ended.shared-memory": (
        "Workers of the DataLoader ran out of shared memory",
        "Start the container with --ipc=host or a larger --shm-size, or use fewer workers.",
    ),
    HOST_MEMORY: (
        "The host's memory (RAM) was used up, not the GPU's",
        "Keep less data in memory (read it in batches), use fewer workers, or give the job more memory (--mem, limits"
        " of a container).",
    ),
    "ended.killed": (
        "SIGKILL ended the program: mostly the kernel's, because the host's memory (RAM) was used up",
        "Look in dmesg for 'Out of memory: Killed process'. Then keep less data in memory, use fewer workers, or give"
        " the job more memory.",
    ),
    "ended.fork": (
        "A forked process used CUDA, which only the process that started it can",
        "Start processes that use the GPU with the method 'spawn', or let none of them touch the GPU before the fork.",
    ),
    "ended.xla-flags": (
        "XLA_FLAGS (or TF_XLA_FLAGS) has a flag that this build does not know, which ends the program at its start",
        "Take the flag out of the variable, or unset it: the flags of XLA change from version to version.",
    ),
    "ended.fatal": (
        "A check inside the framework failed and ended the program",
        "Read that line; if it is the framework's own fault, report it there.",
    ),
    "ended.crash": (
        "The program crashed: a signal ended it",
        "Read the lines before it. An illegal instruction at the import means that this build wants a newer CPU.",
    ),
    "ended.worker": (
        "A worker of the DataLoader died: mostly for want of the host's memory",
        "Use fewer workers or less data in memory, and look in dmesg for the kernel's out-of-memory killer.",
    ),
}
"""Topic to title and action, for failures that are told by a line of their own."""


@rule("unknown")
def unrecognised_error(evidence: Evidence) -> Iterator[Finding]:
    """The work ended in an error that no topic explains: said, so that it is not taken for health."""
    log = evidence.log
    lines = _run_ended(evidence.run, log) if evidence.run is not None else _log_ended(log)
    if not lines and evidence.run is not None and evidence.run.verdict == "timeout":
        yield _deadline(evidence.run)
        return
    if not lines:
        return
    name = lines[0].partition(":")[0]
    title = f"It ended in {name}, which is none of the causes that gpuwatch knows" if name.isidentifier() else ""
    action = "Read the end of the log; if it is the framework's or the driver's own fault, report it there."
    known = next((topic for topic in ENDINGS if log is not None and topic in log.topics), None)
    if evidence.run is not None and evidence.run.host_memory_out:
        known = HOST_MEMORY  # by the kernel's own count
    if known is not None:
        title, action = ENDINGS[known]
        lines = list(dict.fromkeys((*(log.lines_of(known) if log is not None else ()), *lines)))
    elif lines == [_CUT]:
        title, action = _CUT, "Look at the whole log: the last line of a traceback tells the error."
        lines = []
        if log is not None:
            begun = max(log.last_frame_line or 0, log.open_traceback_line or 0)
            lines = [f"of {log.lines} lines, line {begun} is the last that tells where the error was"]
    yield finding("unknown", "error", "fact", title=title, evidence=lines, action=action)


def _run_ended(run: Run, log: LogFacts | None) -> list[str]:
    """What a run's end has to say, where nothing that is known explains it."""
    if run.ooms:
        return []
    unexpected = [error for error in run.errors if not error.expected]
    lines = [_line(error) for error in unexpected if not _known(error.message)]
    if lines:
        return lines
    if run.verdict != "error" or unexpected or _explains(log):
        return []
    ending = f"killed by signal {run.outcome.signal}" if run.outcome.signal else f"exit code {run.outcome.exit_code}"
    if run.host_memory_out:
        ending += ", and the kernel counted one more process killed for want of memory"
    last = log.errors[-1:] if log is not None else []
    return [*map(_line, last), ending]


def _deadline(run: Run) -> Finding:
    """gpuwatch itself ended it: too little time is the first thing to think of, and no fault of the machine."""
    phases = run.phases
    reached = [
        f"{name} took {seconds:.1f} s"
        for name, seconds in (
            ("the import", phases.import_seconds),
            ("starting the devices", phases.device_init_seconds),
            ("the first step", phases.first_step_seconds),
        )
        if seconds is not None
    ]
    spent = f"it was killed after {phases.total_seconds:.0f} s" if phases.total_seconds is not None else ""
    return finding(
        "unknown",
        "warning",
        "fact",
        title="The probe did not end before its deadline, so it could not show its subject",
        evidence=[spent or "it was killed", *(reached or ["it did not come as far as the end of the import"])],
        action="Raise --deadline (or lower --seconds). If it ends at no deadline, look in dmesg for a GPU that hangs.",
    )


def _log_ended(log: LogFacts | None) -> list[str]:
    """The failure with which a log ends, where nothing that is known explains it."""
    if log is None or _explains(log):
        return []
    told = [line for topic in ENDINGS for line in log.lines_of(topic)][:1]
    if told:
        return told
    last = log.last_error_line
    if last is not None and log.lines - last <= _TAIL:
        error = log.errors[-1]
        return [] if error.type in _ON_PURPOSE else [_line(error)]
    frame, head = log.last_frame_line, log.open_traceback_line
    if frame is not None and log.lines - frame <= _TAIL and (last or 0) < frame:
        return [_CUT]
    return [_CUT] if head is not None and (last or 0) < head else []


def _explains(log: LogFacts | None) -> bool:
    """Whether a log names a cause that can end the work."""
    return log is not None and (bool(log.ooms) or any(topic in CAUSES or topic in _ENOUGH for topic in log.topics))


def _known(message: str) -> bool:
    return any(topic in CAUSES for topic in topics_of(message))


def _line(error: RunError) -> str:
    return f"{error.type}: {error.message.splitlines()[0][:300] if error.message else ''}".rstrip(": ")

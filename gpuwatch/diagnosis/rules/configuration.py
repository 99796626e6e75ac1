"""Settings that came too late, or exclude each other; and failures that nothing here recognises."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.rules.placement import error_lines
from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import CAUSES, Finding, Severity
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
    }
)
"""Topics that are no cause by themselves, from which rules conclude one."""
_ON_PURPOSE = ("KeyboardInterrupt", "SystemExit")


@rule("config.too-late")
def too_late(evidence: Evidence) -> Iterator[Finding]:
    """A device setting after the first use of a device."""
    lines, expected = error_lines(evidence, "config.too-late")
    if lines:
        severity: Severity = "info" if expected else "error"
        yield finding(
            "config.too-late",
            severity,
            "fact",
            evidence=lines,
            action="Make the tf.config calls right after the import, before any tensor or model is made.",
        )


@rule("config.inconsistent")
def inconsistent(evidence: Evidence) -> Iterator[Finding]:
    """Settings that TensorFlow refuses together."""
    lines, expected = error_lines(evidence, "config.inconsistent")
    if lines:
        severity: Severity = "info" if expected else "error"
        yield finding(
            "config.inconsistent",
            severity,
            "fact",
            evidence=lines,
            action="Set memory growth alike on every GPU, and use either growth or a memory limit, not both.",
        )


@rule("unknown")
def unrecognised_error(evidence: Evidence) -> Iterator[Finding]:
    """The work ended in an error that no topic explains: said, so that it is not taken for health."""
    lines = _run_ended(evidence.run, evidence.log) if evidence.run is not None else _log_ended(evidence.log)
    if not lines and evidence.run is not None and evidence.run.verdict == "timeout":
        yield _deadline(evidence.run)
        return
    if not lines:
        return
    name = lines[0].partition(":")[0]
    yield finding(
        "unknown",
        "error",
        "fact",
        title=f"It ended in {name}, which is none of the causes that gpuwatch knows" if name.isidentifier() else "",
        evidence=lines,
        action="Read the end of the log; if it is the framework's or the driver's own fault, report it there.",
    )


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
    """The exception with which a log ends, where nothing that is known explains it."""
    if log is None or log.last_error_line is None or log.lines - log.last_error_line > _TAIL or _explains(log):
        return []
    error = log.errors[-1]
    return [] if error.type in _ON_PURPOSE else [_line(error)]


def _explains(log: LogFacts | None) -> bool:
    """Whether a log names a cause that can end the work."""
    return log is not None and (bool(log.ooms) or any(topic in CAUSES or topic in _ENOUGH for topic in log.topics))


def _known(message: str) -> bool:
    return any(topic in CAUSES for topic in topics_of(message))


def _line(error: RunError) -> str:
    return f"{error.type}: {error.message.splitlines()[0][:300] if error.message else ''}".rstrip(": ")

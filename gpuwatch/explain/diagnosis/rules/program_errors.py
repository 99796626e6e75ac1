"""The exceptions of a program, as findings about its end show them, and whether a known cause explains them."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.core.model.findings import CAUSES
from gpuwatch.core.model.run import RunError
from gpuwatch.explain.diagnosis.rules.build import NO_NCCL
from gpuwatch.explain.diagnosis.rules.phrasing import at
from gpuwatch.explain.logs.exceptions import telling
from gpuwatch.explain.logs.facts import LogFacts

ON_PURPOSE = ("KeyboardInterrupt", "SystemExit")
BEFORE_IT = "raised while another was handled, the first of them:"
END = 8
"""Lines that may follow the exception that ended a program: the rest of its message, notes of a shell."""
_ENOUGH = frozenset(
    {
        "build.gpu-jit",
        "cuda.libraries-skipped",
        "driver.cuinit",
        "driver.not-running",
        "visibility.none-available",
        "cuda.missing-library",
        NO_NCCL,
        "memory.library-failed",
        "ended.kernel",
        "driver.other-module",
        "memory.dnn-missing",
    }
)
"""Topics that are not causes themselves, but from which rules infer one."""


def names_cause(topics: Iterable[str]) -> bool:
    """Whether one of these topics is a cause, or enough for a rule to infer one."""
    return any(topic in CAUSES or topic in _ENOUGH for topic in topics)


def line_of(error: RunError) -> str:
    """``type: message`` of an exception, shortened."""
    return f"{error.type}: {telling(error.message)[:300]}".rstrip(": ")


def raised_first(log: LogFacts, error: RunError) -> str:
    """The exception at the beginning of the chain that this one ends, in a line; empty without a chain."""
    first = log.raised_first.get(f"{error.type}: {error.message}", "")
    name, _, message = first.partition(": ")
    return line_of(RunError(type=name, message=message)) if first and name not in ON_PURPOSE else ""


def raised_at(log: LogFacts, error: RunError) -> list[str]:
    """The user's own line that led to an exception, if its traceback is in the log, and the first of its chain."""
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    first = raised_first(log, error)
    return [*([at("raised at", frame)] if frame is not None else []), *([f"{BEFORE_IT} {first}"] if first else [])]


def ends_log(log: LogFacts) -> bool:
    """Whether the last exception stands at the end of the log."""
    return log.last_error_line is not None and log.lines - log.last_error_line <= END

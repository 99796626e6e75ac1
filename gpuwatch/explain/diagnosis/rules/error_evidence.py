"""Errors of a program as evidence: quoted lines, lines that state a cause, exceptions with the place of their raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import RunError
from gpuwatch.core.parsing import word_set
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding
from gpuwatch.explain.logs.log_facts import Frame, LogFacts
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.python_exceptions import essential_line

NO_NCCL = "cuda.nccl-missing"
"""The topic of TensorFlow's error when a collective operation needs NCCL and it is missing."""
INTENDED_ENDS = ("KeyboardInterrupt", "SystemExit")
FIRST_IN_CHAIN_LABEL = "raised while another was handled, the first of them:"
END_LINES = 8
"""Lines that may follow the exception that ended a program: the rest of its message, notes of a shell."""
_TOPICS_IMPLYING_A_CAUSE = word_set(
    f"build.gpu-jit cuda.libraries-skipped driver.cuinit driver.not-running visibility.none-available {NO_NCCL}"
    " cuda.missing-library memory.library-failed ended.kernel driver.other-module memory.dnn-missing"
)
"""Topics that are not causes themselves, but from which rules infer one."""


def quoted(text: str, max_chars: int) -> str:
    """A line of a log or program, shortened to ``max_chars``, secrets masked."""
    return shorten(mask_text(printable(text)), max_chars)


def at_line(what: str, frame: Frame) -> str:
    """``requested at train.py, line 7: x = tf.zeros(shape)``, secrets masked."""
    code = f": {quoted(frame.code, 120)}" if frame.code else ""
    return f"{what} {printable(frame.file)}, line {frame.line}{code}"


def line_stating(message: str, cause: str) -> str:
    """The line of a multi-line message that states ``cause``; its first line is often only a heading."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if cause in topics_of(line)), lines[0] if lines else "")


def error_lines(evidence: Evidence, cause: str) -> tuple[list[str], bool]:
    """Lines of the run's errors and of the log that state ``cause``, and whether all were expected."""
    lines: list[str] = []
    expected = False
    if evidence.run is not None:
        matching = [error for error in evidence.run.errors if cause in topics_of(error.message)]
        lines += [f"{error.type}: {line_stating(error.message, cause)[:300]}" for error in matching]
        expected = bool(matching) and all(error.expected for error in matching)
    from_log = evidence.log.lines_of(cause)
    if lines:
        lines += [line for line in from_log if not any(line.endswith(known[-60:]) for known in lines)][:2]
    else:
        lines += from_log
    return lines, expected


def stated_error(evidence: Evidence, cause: str, action: str, title: str = "") -> Iterator[Finding]:
    """The finding for an error that the framework reports: a note if it was expected."""
    lines, expected = error_lines(evidence, cause)
    if lines:
        yield finding(cause, "info" if expected else "error", "fact", title=title, evidence=lines, action=action)


def names_cause(topics: Iterable[str]) -> bool:
    """Whether one of these topics is a cause, or enough for a rule to infer one."""
    return any(topic in CAUSES or topic in _TOPICS_IMPLYING_A_CAUSE for topic in topics)


def raised_for(evidence: Evidence, cause: str) -> bool:
    """Whether an exception of the log, or an unexpected one of the run, states ``cause``."""
    of_run = evidence.run.errors if evidence.run is not None else ()
    errors = (*evidence.log.errors, *(error for error in of_run if not error.expected))
    return any(cause in topics_of(error.message) for error in errors)


def error_line(error: RunError) -> str:
    """``type: message`` of an exception, shortened."""
    return f"{error.type}: {essential_line(error.message)[:300]}".rstrip(": ")


def frame_of(log: LogFacts, error: RunError) -> Frame | None:
    """The frame of the user's code that led to an exception; None if its traceback is not in the log."""
    return log.error_frames.get(f"{error.type}: {error.message}")


def first_in_chain(log: LogFacts, error: RunError) -> str:
    """The exception at the beginning of the chain that this one ends, in a line; empty without a chain."""
    first = log.first_in_chain.get(f"{error.type}: {error.message}", "")
    name, _, message = first.partition(": ")
    return error_line(RunError(type=name, message=message)) if first and name not in INTENDED_ENDS else ""


def raised_at(log: LogFacts, error: RunError) -> list[str]:
    """The user's own line that led to an exception, if its traceback is in the log, and the first of its chain."""
    frame = frame_of(log, error)
    first = first_in_chain(log, error)
    lines = [at_line("raised at", frame)] if frame is not None else []
    return [*lines, f"{FIRST_IN_CHAIN_LABEL} {first}"] if first else lines


def ends_log(log: LogFacts) -> bool:
    """Whether the last exception stands at the end of the log."""
    return log.last_error_line is not None and log.line_count - log.last_error_line <= END_LINES

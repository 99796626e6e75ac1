"""What a shell, launcher or scheduler reports of a process that failed, and errors that follow from another's end."""

from __future__ import annotations

import re

from gpuwatch.core.model.run import RunError
from gpuwatch.explain.diagnosis.rules.error_evidence import ON_PURPOSE, ends_log, error_line, frame_of, names_cause
from gpuwatch.explain.diagnosis.rules.program_error_messages import (
    LOST_PEER,
    NCCL_INTERNAL,
    NCCL_TIMEOUT,
    Meaning,
    first_match,
    section_rows,
)
from gpuwatch.explain.logs import reported_ends
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.message_topics import topics_of

_MAX_EPILOGUE_LINES = 200
"""Lines that may follow the last report of a bad end: summaries of a scheduler. After more, the program went on."""
_PEER_TOPICS = frozenset({LOST_PEER, NCCL_INTERNAL, NCCL_TIMEOUT})
_FILE_AND_CODE_EXCEPTIONS = frozenset(
    {"FileNotFoundError", "IsADirectoryError", "PermissionError", "UnicodeDecodeError", "JSONDecodeError"}
    | {"ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError"}
)
"""Types of exceptions that follow from no GPU's state, though a name in their message may have one of its words."""
_DRIVER_WORDS = re.compile(r"nvidia|libcuda\.so|nvcc")
_GPU_WORDS = re.compile(r"cuda|blas|dnn|nccl|gpu|device|kernel|memory|driver|\bsm_|graph execution", re.IGNORECASE)
_WHERE_LOGS_ARE = "(torchrun --log-dir DIR --tee 3; srun -o %t.log"


def reported_end(log: LogFacts) -> tuple[str, str]:
    """The topic and line of a shell, launcher or scheduler that reports a bad end; empty if none does."""
    if (
        log.reported_end
        and not _crash_reported_before_error(log)
        and log.lines - log.reported_end_line_number <= _MAX_EPILOGUE_LINES
    ):
        return log.reported_end, log.reported_end_line
    last = log.errors[-1] if log.errors and not log.received_sigterm else None
    went_on = log.went_on_after_last_error or bool(log.steps_printed_after_error)
    near_end = (
        log.last_error_line is not None and log.lines - log.last_error_line <= _MAX_EPILOGUE_LINES and not went_on
    )
    waited_for_child = last is not None and reported_ends.waited_for_a_child(last.message) and own_error(log) is None
    if last is not None and near_end and not waited_for_child and reported_ends.is_about_child(last.type, last.message):
        return reported_ends.end_of_child(last.message), error_line(last)
    return "", ""


def _crash_reported_before_error(log: LogFacts) -> bool:
    """Whether a crash was reported before the traceback that ends the log: a worker's, or an earlier command's."""
    if log.reported_end != reported_ends.CRASH or not ends_log(log) or not log.last_error_has_traceback:
        return False
    last = log.errors[-1]
    return log.reported_end_line_number < (log.last_error_line or 0) and not reported_ends.is_about_child(
        last.type, last.message
    )


def own_error(log: LogFacts) -> RunError | None:
    """The last exception that is not about another process."""
    own = (error for error in reversed(log.errors) if not reported_ends.is_about_child(error.type, error.message))
    return next(
        (error for error in own if error.type not in ON_PURPOSE and not _PEER_TOPICS & {*topics_of(error_line(error))}),
        None,
    )


def follows_from_another_process(log: LogFacts) -> bool:
    """Whether the last exception follows from the end of another process, whose error stands before."""
    last = log.errors[-1] if log.errors else None
    return last is not None and last.type not in ON_PURPOSE and own_error(log) is not last


def ended_by_own_error(log: LogFacts) -> bool:
    """Whether an exception ended the program that has nothing to do with a GPU."""
    went_on = log.went_on_after_last_error or log.steps_printed_after_error or log.last_error_in
    if not log.errors or not log.last_error_has_traceback or went_on:
        return False
    error = log.errors[-1]
    if follows_from_another_process(log) or ("gpu.none" in log.topics and "process group" in error.message):
        return False  # without a GPU there are no groups of NCCL
    frame = frame_of(log, error)
    if error.type in _FILE_AND_CODE_EXCEPTIONS:
        return _DRIVER_WORDS.search(error.message) is None
    text = f"{error.message} {frame.code if frame is not None else error.type}"
    return not names_cause(topics_of(error_line(error))) and _GPU_WORDS.search(text) is None


def own_error_lines(log: LogFacts) -> list[str]:
    """That exception as evidence; empty without one."""
    own = own_error(log)
    return [error_line(own)] if own is not None else []


def lost_rank(log: LogFacts) -> Meaning:
    """What a lost connection to another rank means."""
    own = own_error(log)
    if own is not None:
        return Meaning(
            f"Another rank failed first; the other error in this log is {own.type}",
            "Read that error. If it is not the other rank's, that rank's own log says why it ended"
            f" {_WHERE_LOGS_ARE}).",
            certainty="likely",
        )
    return Meaning(
        "The connection to another rank was lost: that rank failed first, or the network did",
        f"Read the other rank's own log: its last lines say why it ended {_WHERE_LOGS_ARE}). If every rank lost its"
        " connection, check the network and dmesg for killed processes.",
    )


def process_failure(report: str) -> Meaning:
    """What the report of a process that failed means, if its own error is not in the log."""
    return first_match(section_rows("reports"), report) or Meaning(
        "A process of the job failed, and its own error is not in this log",
        f"Read that process's own output: its last lines say why {_WHERE_LOGS_ARE}).",
    )

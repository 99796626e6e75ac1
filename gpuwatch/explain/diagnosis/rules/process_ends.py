"""How processes ended: by a signal, an error of their own, after another one, or as a launcher or scheduler reports."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.run import Run, RunError
from gpuwatch.explain.diagnosis.rules.error_evidence import INTENDED_ENDS, ends_log, error_line, frame_of, names_cause
from gpuwatch.explain.diagnosis.rules.program_error_messages import (
    DATALOADER_WORKER,
    ENDINGS,
    HOST_MEMORY,
    LOST_PEER,
    NCCL_INTERNAL,
    NCCL_TIMEOUT,
    SIGNALS,
    Meaning,
    first_match,
    row_named,
    section_rows,
)
from gpuwatch.explain.logs import reported_ends
from gpuwatch.explain.logs.line_times import hours_between
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.message_topics import topics_of

_FAULTHANDLER_ACTION = "Run it with python -X faulthandler, which prints the Python line at the crash."
_NOT_BY_OOM_KILLER = "by SIGKILL, not by the kernel's OOM killer: its counter did not change"
_FIND_SENDER_ACTION = (
    "Find out who sent it: the scheduler (sacct -j JOB), a supervisor, systemd-oomd (journalctl -u systemd-oomd)"
)
_BY_SIGNAL = re.compile(r"killed by signal: ([A-Z][\w ]{1,40})")
_CRASH_WORDS = {
    signal.SIGSEGV: ("segmentation fault", "sigsegv"),
    signal.SIGBUS: ("bus error", "undefined portion of a memory object"),
    signal.SIGFPE: ("floating point exception", "sigfpe", "erroneous arithmetic"),
    signal.SIGILL: ("illegal instruction",),
    signal.SIGABRT: ("abort", "terminate called", "corrupt"),
}
_SIGNAL_NUMBER = re.compile(
    r"\b(?:(?:with|on|by|caught) signal |return code = -|exit ?code *: -|exit status -|(?:status|code) (?=1[34]\d))"
    r"(\d{1,3})\b"
)
_WINDOWS_MEANINGS = {
    **dict.fromkeys(("0xc0000005", "-1073741819", "3221225477"), row_named("segfault")._replace(
        title="It crashed with an access violation (0xC0000005): native code made an illegal memory access")),
    **dict.fromkeys(("0xc000001d", "-1073741795", "3221225501"), SIGNALS[signal.SIGILL]),
    **dict.fromkeys(("0xc0000409", "-1073740791", "3221226505"), SIGNALS[signal.SIGABRT]._replace(
        title="It crashed with status 0xC0000409: a check in native code failed (a buffer overrun, abort)")),
}  # fmt: skip
_WINDOWS_STATUS = re.compile("|".join(map(re.escape, _WINDOWS_MEANINGS)))
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
_MAX_HOURS_TO_CONSEQUENCE = 3
"""Hours in which other ranks notice that one failed: NCCL's timeout is half an hour, and few set two."""
_WHERE_LOGS_ARE = "(torchrun --log-dir DIR --tee 3; srun -o %t.log)"


def ending_signal(run: Run) -> signal.Signals | None:
    """The signal that ended a program, unless the user wanted that; a shell returns 128 plus its number."""
    number = run.outcome.signal or (run.outcome.exit_code or 0) - 128
    if run.verdict != "error" or run.ooms:
        return None
    return next((known for known in SIGNALS if known == number), None)


def signal_meaning(run: Run, number: signal.Signals) -> Meaning:
    """What a signal means, given what is known about host memory."""
    meaning = SIGNALS[number]
    if number != signal.SIGKILL:
        return meaning if run.outcome.signal else meaning._replace(certainty="likely")
    if run.host_memory_out:
        return ENDINGS[HOST_MEMORY]
    if run.host_memory is not None and run.host_memory.oom_kills == 0:  # the kernel counts its OOM kills
        action = f"{_FIND_SENDER_ACTION}, a user's kill -9, or the program itself."
        meaning = Meaning(f"It was killed {_NOT_BY_OOM_KILLER}", action)
    return meaning._replace(certainty="likely")


def worker_meaning(text: str, run: Run | None) -> tuple[Meaning, list[str]]:
    """What the death of a DataLoader's worker means, by its signal, and evidence of host memory where it matters.

    SIGKILL is judged by the kernel's count of its OOM kills, where that is known.
    """
    match = _BY_SIGNAL.search(text)
    if match is None:
        return row_named("worker-exited"), []
    if match[1] == "Bus error":
        return ENDINGS["ended.shared-memory"], []
    if match[1].startswith("Terminated"):
        return ENDINGS[reported_ends.TERMINATED], []
    if match[1] != "Killed":
        title = f"A DataLoader worker ended with a signal: {match[1]}"
        return Meaning(title, f"{_FAULTHANDLER_ACTION} Or use num_workers=0."), []
    meaning, host = ENDINGS[DATALOADER_WORKER], run.host_memory if run is not None else None
    if host is not None and (host.kernel_line or host.oom_kills):
        title = "A DataLoader worker was killed when the kernel ran out of host memory (RAM)"
        meaning = meaning._replace(title=title)
    elif host is not None and host.oom_kills == 0:
        action = f"{_FIND_SENDER_ACTION}, or the program itself."
        meaning = Meaning(f"A DataLoader worker was killed {_NOT_BY_OOM_KILLER}", action)
    return meaning, [*host_memory_evidence(run)] if run is not None else []


def crash_meaning(line: str) -> Meaning:
    """The meaning of the signal that a line names."""
    text = line.lower()
    if (status := _WINDOWS_STATUS.search(text)) is not None:
        return _WINDOWS_MEANINGS[status[0]]
    if (found := _SIGNAL_NUMBER.search(text)) is not None:
        meaning = next((meaning for number, meaning in SIGNALS.items() if number == int(found[1]) & 127), None)
        if meaning is not None:
            return meaning
    named = (number for number, words in _CRASH_WORDS.items() if any(word in text for word in words))
    return next(map(SIGNALS.__getitem__, named), ENDINGS[reported_ends.CRASH])


def host_memory_evidence(run: Run) -> Iterator[str]:
    """Evidence: host memory as measured while the program ran."""
    host = run.host_memory
    if host is None:
        return
    if host.kernel_line:
        yield host.kernel_line
    if host.peak_bytes is not None:
        text = f"its largest process had at most {size(host.peak_bytes)} of host memory"
        if host.limit_bytes is not None:
            text += f", its control group's limit is {size(host.limit_bytes)}"
        elif host.total_bytes is not None:
            text += f", the host has {size(host.total_bytes)}"
        yield text
    if host.oom_kills is not None:
        yield f"the kernel's OOM killer ended {count_text(host.oom_kills, 'process')} meanwhile"
    else:
        yield "the counter of the kernel's OOM killer cannot be read here"


def reported_end(log: LogFacts) -> tuple[str, str]:
    """The topic and line of a shell, launcher or scheduler that reports a bad end; empty if none does."""
    report_is_near_end = log.line_count - log.reported_end_line_number <= _MAX_EPILOGUE_LINES
    if log.reported_end and report_is_near_end and not _crash_reported_before_error(log):
        return log.reported_end, log.reported_end_line
    last = log.errors[-1] if log.errors and not log.received_sigterm else None
    went_on = log.went_on_after_last_error or log.steps_printed_after_error
    at = log.last_error_line
    near_end = at is not None and log.line_count - at <= _MAX_EPILOGUE_LINES and not went_on
    waited_for_child = last is not None and reported_ends.waited_for_a_child(last.message) and own_error(log) is None
    if last is not None and near_end and not waited_for_child and reported_ends.is_about_child(last.type, last.message):
        return reported_ends.topic_of_child_end(last.message), error_line(last)
    return "", ""


def _crash_reported_before_error(log: LogFacts) -> bool:
    """Whether a crash was reported before the traceback that ends the log: a worker's, or an earlier command's."""
    if log.reported_end != reported_ends.CRASH or not ends_log(log) or not log.last_error_has_traceback:
        return False
    of_child = reported_ends.is_about_child(log.errors[-1].type, log.errors[-1].message)
    return log.reported_end_line_number < (log.last_error_line or 0) and not of_child


def own_error(log: LogFacts) -> RunError | None:
    """The last exception that is not about another process, and may explain how the log ends."""
    error = _last_own_error(log)
    return error if error is not None and not _is_long_over(log, error) else None


def _is_long_over(log: LogFacts, error: RunError) -> bool:
    """Whether an exception came too long before the end of the log to explain it: in steps, or in hours."""
    place, last = (log.error_places.get(f"{found.type}: {found.message}") for found in (error, log.errors[-1]))
    if place is None:
        return False
    until_last = hours_between(place.time, last.time) if last is not None else 0.0
    return place.line <= log.last_error_line_before_many_steps or until_last > _MAX_HOURS_TO_CONSEQUENCE


def _last_own_error(log: LogFacts) -> RunError | None:
    own = (error for error in reversed(log.errors) if not reported_ends.is_about_child(error.type, error.message))
    own = (error for error in own if error.type not in INTENDED_ENDS)
    return next((error for error in own if _PEER_TOPICS.isdisjoint(topics_of(error_line(error)))), None)


def follows_from_another_process(log: LogFacts) -> bool:
    """Whether the last exception follows from the end of another process, whose error stands before."""
    last = log.errors[-1] if log.errors else None
    return last is not None and last.type not in INTENDED_ENDS and _last_own_error(log) is not last


def ended_by_error_unrelated_to_gpus(log: LogFacts) -> bool:
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
    """The exception of :func:`own_error` as evidence; empty without one."""
    own = own_error(log)
    return [error_line(own)] if own is not None else []


def lost_rank_meaning(log: LogFacts) -> Meaning:
    """What a lost connection to another rank means."""
    own = own_error(log)
    if own is not None:
        return Meaning(
            f"Another rank failed first; the other error in this log is {own.type}",
            f"Read that error. If it is not the other rank's, that rank's own log says why it ended {_WHERE_LOGS_ARE}.",
            certainty="likely",
        )
    return Meaning(
        "The connection to another rank was lost: that rank failed first, or the network did",
        f"Read the other rank's own log: its last lines say why it ended {_WHERE_LOGS_ARE}. If every rank lost its"
        " connection, check the network and dmesg for killed processes.",
    )


def failed_process_meaning(report: str) -> Meaning:
    """What the report of a process that failed means, if its own error is not in the log."""
    return first_match(section_rows("reports"), report) or Meaning(
        "A process of the job failed, and its own error is not in this log",
        f"Read that process's own output: its last lines say why {_WHERE_LOGS_ARE}.",
    )

"""Failures that no known cause explains, also of programs that exited with 0: reported, so that none looks healthy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.run import Run, RunError
from gpuwatch.core.safe_text import shorten
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, info_finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules import error_meanings
from gpuwatch.explain.diagnosis.rules.child_processes import EXIT_0_TITLE, broken_pool
from gpuwatch.explain.diagnosis.rules.error_evidence import (
    END_LINES,
    INTENDED_ENDS,
    ends_log,
    error_line,
    first_in_chain,
    names_cause,
    raised_at,
)
from gpuwatch.explain.diagnosis.rules.error_meanings import MAX_TITLE_CHARS
from gpuwatch.explain.diagnosis.rules.missing_gpus import requires_a_gpu
from gpuwatch.explain.diagnosis.rules.out_of_memory import ADDRESS_SPACE
from gpuwatch.explain.diagnosis.rules.process_ends import (
    crash_meaning,
    ended_by_error_unrelated_to_gpus,
    ending_signal,
    failed_process_meaning,
    host_memory_evidence,
    lost_rank_meaning,
    own_error,
    own_error_lines,
    reported_end,
    signal_meaning,
    worker_meaning,
)
from gpuwatch.explain.diagnosis.rules.program_error_messages import (
    DATALOADER_WORKER,
    ENDINGS,
    HOST_MEMORY,
    LOST_PEER,
    NCCL_INTERNAL,
    NCCL_TIMEOUT,
    TENSORRT_FAILED,
    Meaning,
    first_match,
    row_named,
)
from gpuwatch.explain.diagnosis.rules.simulation_limits import (
    errors_of_cuda_libraries,
    lacks_compiler,
    why_pytorch_has_no_gpu,
)
from gpuwatch.explain.logs import reported_ends
from gpuwatch.explain.logs.interrupts import mentions_keyboard
from gpuwatch.explain.logs.log_facts import FAILURE, WORK, LogFacts
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.progress_and_success_patterns import SERVER_STOPPED
from gpuwatch.explain.logs.python_exceptions import essential_line, is_error

_MAX_LINES_AFTER_TRACEBACK = 500
"""Lines of prints and summaries that may follow the last traceback, if none shows that the program went on."""
_IMPORT_EXCEPTIONS = ("ImportError", "ModuleNotFoundError")
"""Libraries print such tracebacks of parts that they do without."""
_DETAIL_TOPICS = ("compiler.message", "ray.worker-exit")
"""Topics whose lines add details to a known error: messages of the compiler or of Ray's raylet."""
_PROCESS_FAILED_IN = "A process of the job failed in"
_TYPE_MISMATCH, _ASSERT = "ended.two-types", "ended.assert"
_EXPLAINED_BELOW = ("ended.nccl", NCCL_INTERNAL, reported_ends.CRASH)
"""Topics of whose lines the next ones say more: NCCL's last error, the text of a C++ exception, the signal's name."""
_TABLE_TOPICS = (
    *_EXPLAINED_BELOW,
    reported_ends.FATAL,
    reported_ends.NOT_STARTED,
    _TYPE_MISMATCH,
    _ASSERT,
    TENSORRT_FAILED,
)
"""Topics of whose lines the table of messages may know more."""
_READ_END_ACTION = "Read the end of the log; if it is a bug in the framework or the driver, report it there."
_NEAR_ADDRESS_LIMIT_BYTES = 16 << 30
"""A limit of the address space may be the reason within this distance: a CUDA context reserves more than it uses."""
_ADDRESS_SPACE_KEYS = ("threads", "unmapped", "host-memory")
"""What a limit of the address space can be the reason of."""
_MIN_LATER_CELL_ERRORS = 3
"""Errors of a notebook after one of which they cannot all be consequences."""
_MAX_MESSAGE_LINES = 20
"""Lines of an exception's message that are looked at."""
_MIN_MESSAGE_CHARS = 8
"""Characters from which a message is recognized within another."""
_CUT_TRACEBACK = "The log ends in the middle of a Python traceback, before the error itself"


_End = tuple[Meaning, list[str]]
"""A failure without a known cause, and its evidence."""
_SAME_END_LINES = 2
"""Lines that may follow the last traceback of what ended with it; a program that went on prints more."""
CONTINUED_TITLE = "It continued after"
"""Beginning of the title for a program that exited with 0 after an exception."""


@rule("unknown", error_meanings.PROGRAM_ERROR)
def unrecognised_error(evidence: Evidence) -> Iterator[Finding]:
    """The program ended with an unrecognized error, reported so that it does not look healthy."""
    run, log = evidence.run, evidence.log
    if run is not None and (why_pytorch_has_no_gpu(run) or errors_of_cuda_libraries(run)):
        return  # reported as a limit of the simulation
    if run is not None and run.outcome.exit_code and broken_pool(evidence):
        return  # reported with the process that was lost
    lines = _unexplained_end_of_run(run, log) if run is not None else _unexplained_end_of_log(log)
    if not lines:
        if run is not None and run.verdict == "timeout":
            yield _deadline_finding(run)
        return
    end = _end_of_run(run, log, lines) if run is not None else _end_of_log(log, lines)
    if end is None:
        name = lines[0].partition(":")[0]
        title = f"{_how_it_ended(run, log)} {shorten(lines[0], MAX_TITLE_CHARS)}" if name.isidentifier() else ""
        end = Meaning(title, _READ_END_ACTION), lines
    (meaning, lines), action = end, end[0].action
    if log.errors and lines and _names_exception(lines[0], log.errors[-1]):
        place_lines = raised_at(log, log.errors[-1])
        lines = [lines[0], *place_lines, *lines[1:]]
        if action == _READ_END_ACTION:
            action = error_meanings.advice_for_error(log.errors[-1], log)
    # A cause that the log names stays the first, whatever the program did later.
    severity: Severity = "warning" if run is None and _names_ending_cause(log) else "error"
    yield finding(meaning.cause, severity, meaning.certainty, title=meaning.title, evidence=lines, action=action)


@rule("unknown", needs="log")
def refused_requests(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """Requests that a server which works on could not fulfil."""
    if evidence.run is not None or log.ending_kind != WORK:
        return
    for line in log.lines_of("server.refused"):
        is_logged_error = any(error.message and error.message in line for error in log.errors)
        if not is_logged_error and (meaning := error_meanings.message_meaning(line)) is not None:
            yield info_finding("unknown", title=meaning.title, evidence=(line,), action=meaning.action)


def _end_of_run(run: Run, log: LogFacts, lines: list[str]) -> _End | None:
    """The end of a program that was observed; None if nothing is known of it."""
    if (limited := _address_space(run, log, lines)) is not None:
        return limited
    shown_topic = next((topic for topic in ENDINGS if topic in log.topics), None)
    # the first by the kernel's own count
    topic = HOST_MEMORY if run.host_memory_out else shown_topic or _reported_topic(log)
    number = ending_signal(run)
    if number is not None and topic in (None, HOST_MEMORY, reported_ends.KILLED, reported_ends.CRASH):
        return signal_meaning(run, number), [*lines, *host_memory_evidence(run)]
    return _end_by_topic(run, log, topic, lines)


def _address_space(run: Run, log: LogFacts, lines: list[str]) -> _End | None:
    """The end by the limit of the address space, if there is one, not far away, and the system refused memory."""
    limit, peak = (run.results.get(name) for name in ADDRESS_SPACE)
    if not isinstance(limit, int) or limit - (peak if isinstance(peak, int) else 0) > _NEAR_ADDRESS_LIMIT_BYTES:
        return None
    lines_with_causes = _without_repeats(lines, log.lines_of(reported_ends.FATAL, HOST_MEMORY))
    refused = first_match(error_meanings.SYSTEM, "\n".join(lines_with_causes))
    if refused is None or refused.key not in _ADDRESS_SPACE_KEYS:
        return None
    measured = f", of which {size(peak)} were in use at most" if isinstance(peak, int) else ""
    meaning = row_named("address-space")._replace(certainty="likely")
    return meaning, [f"limit of its address space: {size(limit)}{measured}", *lines_with_causes]


def _end_of_log(log: LogFacts, lines: list[str]) -> _End | None:
    """The end that a log shows; None if nothing is known of it."""
    topic = next(_ending_topics(log), None)
    if topic == HOST_MEMORY and ends_log(log) and ended_by_error_unrelated_to_gpus(log):
        # The kernel may have killed another program.
        lines = [error_line(log.errors[-1]), *log.lines_of(HOST_MEMORY)]
        known = _end_by_topic(None, log, _reported_topic(log), lines)
        return known or (Meaning(f"It ended in {shorten(lines[0], MAX_TITLE_CHARS)}", _READ_END_ACTION), lines)
    # NCCL's "internal error" may be the lost connection itself.
    peer = LOST_PEER in log.topics and topic in (None, NCCL_INTERNAL)
    if peer or (topic == NCCL_TIMEOUT and own_error(log) is not None):
        topic = _reported_topic(log)
        if topic in (None, reported_ends.CRASH, reported_ends.TERMINATED):
            own = own_error(log)
            if own is not None and (meaning := error_meanings.message_meaning(error_line(own))) is not None:
                return meaning, _without_repeats(own_error_lines(log), raised_at(log, own))
            return lost_rank_meaning(log), _without_repeats(own_error_lines(log), log.lines_of(LOST_PEER, NCCL_TIMEOUT))
    return _end_by_topic(None, log, topic or _reported_topic(log), lines)


def _ending_topics(log: LogFacts) -> Iterator[str]:
    """The topics of ends in a log; not of memory that a cell of a notebook lacked, after which another one failed."""
    errors = log.errors[:-_MIN_LATER_CELL_ERRORS] if log.open_traceback_line is not None else []
    earlier = set(map(error_line, errors))
    for topic in ENDINGS:
        if topic in log.topics and not (topic == HOST_MEMORY and earlier.issuperset(log.lines_of(topic))):
            yield topic


def _end_by_topic(run: Run | None, log: LogFacts, topic: str | None, lines: list[str]) -> _End | None:
    """What a topic of the log, the launcher's report or the last error says."""
    topic_lines = log.lines_of(topic) if topic is not None else ()
    if topic == TENSORRT_FAILED:
        topic_lines = (*log.lines_of("tensorrt.message")[:1], *topic_lines)
    if topic == DATALOADER_WORKER:
        lines = _without_repeats(topic_lines, lines)
        worker, host = worker_meaning(" ".join(lines), run)
        return worker, [*lines, *host]
    if topic is not None:
        reports = topic_lines or lines
        meaning = _first_meaning(["\n".join(reports), *reports]) if topic in _TABLE_TOPICS else None
        detail_lines = log.lines_of("ended.told") if topic in _EXPLAINED_BELOW else ()
        meaning = _first_meaning(detail_lines) or meaning
        crashed = topic == reported_ends.CRASH
        if meaning is None:
            meaning = crash_meaning(" ".join((*lines, *detail_lines))) if crashed else ENDINGS[topic]
        if crashed and (text := " ".join(detail_lines).partition("what():")[2].strip()):
            meaning = meaning._replace(title=f"A C++ exception was not caught: {shorten(text, MAX_TITLE_CHARS)}")
        return _end_with_evidence(meaning, log, topic_lines, lines, detail_lines)
    if (report := reported_end(log))[0] and (own := own_error(log)) is not None:
        title = f"A process of the job failed; the last error before is {shorten(error_line(own), MAX_TITLE_CHARS)}"
        meaning = _known_meaning([error_line(own)]) or _meaning_by_type(run, log, own, _PROCESS_FAILED_IN)
        meaning = meaning or Meaning(title, error_meanings.advice_for_error(own, log))
        return _end_with_evidence(meaning, log, [error_line(own)], raised_at(log, own), report[1:], lines)
    if report[0]:
        compiler_lines = _compiler_lines(log)
        meaning = _first_meaning([*compiler_lines, report[1]])
        also = log.lines_of(*_DETAIL_TOPICS) if meaning is not None else ()
        return meaning or failed_process_meaning(report[1]), _without_repeats(compiler_lines, report[1:], lines, also)
    of_frame = error_meanings.meaning_of_frame(log.errors[-1], log) if log.errors else None
    first_of_all = first_in_chain(log, log.errors[-1]) if log.errors else ""
    if meaning := of_frame or _known_meaning(lines) or _first_meaning([first_of_all] if first_of_all else ()):
        place_lines = raised_at(log, log.errors[-1]) if log.errors else ()
        return _end_with_evidence(meaning, log, lines[:1], place_lines, lines[1:], log.lines_of(*_DETAIL_TOPICS))
    if (below := _known_line_of_message(run, log)) is not None:
        meaning, line = below
        return _end_with_evidence(meaning, log, lines[:1], [line], raised_at(log, log.errors[-1]) if log.errors else ())
    last = next((error for error in log.errors[-1:] if _names_exception(lines[0], error)), None)
    if last is not None and (meaning := _meaning_by_type(run, log, last, _how_it_ended(run, log))) is not None:
        return meaning, _without_repeats(lines[:1], raised_at(log, last), lines[1:])
    if lines == [_CUT_TRACEBACK]:
        name = log.open_traceback_error
        title = f"The log ends in the middle of the traceback of {name}, before its message" if name else _CUT_TRACEBACK
        before = log.ending_line if log.ending_kind == FAILURE else ""
        if before and (meaning := error_meanings.message_meaning(before)) is not None:
            return meaning, [before]
        last_line = max(log.last_frame_line or 0, log.open_traceback_line or 0)
        shown_until = f"of {log.line_count} lines, line {last_line} is the last that shows where the error was"
        action = "Look at the whole log: the last line of a traceback names the error."
        return Meaning(title, action), [before, shown_until] if before else [shown_until]
    return None


def _end_with_evidence(meaning: Meaning, log: LogFacts, *parts: Iterable[str]) -> _End:
    """An end with its evidence; if it is known only that a compiler failed, what that itself said comes first."""
    compiler_lines = _compiler_lines(log) if meaning.key in ("compile", reported_ends.NOT_COMPILED) else []
    return _first_meaning(compiler_lines) or meaning, _without_repeats(compiler_lines, *parts)


def _compiler_lines(log: LogFacts) -> list[str]:
    """The compiler's first line that has a meaning; empty without one."""
    return [*filter(error_meanings.message_meaning, log.lines_of(_DETAIL_TOPICS[0]))][:1]


def _first_meaning(lines: Iterable[str]) -> Meaning | None:
    return next(filter(None, map(error_meanings.message_meaning, lines)), None)


def _meaning_by_type(run: Run | None, log: LogFacts, error: RunError, how: str) -> Meaning | None:
    """What the type of an exception says; None if that is nothing, or of a probe, which is gpuwatch's own program."""
    return error_meanings.meaning_by_type(error, log, how) if run is None or run.is_program else None


def _reported_topic(log: LogFacts) -> str | None:
    topic = reported_end(log)[0]
    return topic if topic in ENDINGS else None


def _without_repeats(*parts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(chain(*parts)))


def _names_exception(line: str, error: RunError) -> bool:
    """Whether a line names this exception, or TensorFlow's own that passes it on."""
    text = essential_line(error.message)
    return line.startswith(error.type) or (len(text) >= _MIN_MESSAGE_CHARS and text in line)


def _how_it_ended(run: Run | None, log: LogFacts) -> str:
    """What is certain of the last exception: without a traceback it may have been handled and only printed."""
    if run is not None and run.verdict == "interrupted":
        return "Before it was interrupted, it raised"
    if run is not None:
        return "It ended in"
    if log.last_error_in:
        return f"A {log.last_error_in} of the program ended in"
    if log.server_answered_after_error:
        return "A request to the server ended in"
    last = log.last_error_line if log.last_error_line is not None else log.line_count
    went_on = SERVER_STOPPED in log.ending_line or (log.ending_line_is_last and log.ending_kind == WORK)
    printed = not log.last_error_has_traceback and last < log.line_count
    return "The last error is" if went_on or printed or log.line_count - last > END_LINES else "It ended in"


def _known_meaning(lines: list[str]) -> Meaning | None:
    """What the last error means, before a line that only tells the exit code."""
    last = "\n".join(lines[-2:])
    compiler = row_named("compile") if reported_ends.is_about_compiler(last) else None
    return error_meanings.message_meaning(last) or compiler


def _known_line_of_message(run: Run | None, log: LogFacts) -> tuple[Meaning, str] | None:
    """The line below the first of the last exception's message that says what it means; None without one."""
    if run is not None:
        error = next((error for error in reversed(run.errors) if not error.expected), None)
        below = error.message.splitlines()[1:] if error is not None else []
    else:
        error = log.errors[-1] if log.errors and ends_log(log) and log.last_error_has_traceback else None
        below = [*reversed(log.last_lines[: log.line_count - (log.last_error_line or 0)])] if error is not None else []
    for line in (line.strip() for line in below[:_MAX_MESSAGE_LINES]):
        text = line if is_error(line) or error is None else f"{error.type}: {line}"
        if line and (meaning := error_meanings.message_meaning(text)) is not None:
            return meaning, line
    return None


def _unexplained_end_of_run(run: Run, log: LogFacts) -> list[str]:
    """The finding about a run's end that nothing else explains."""
    if run.ooms:
        return []
    unexpected = [error for error in run.errors if not error.expected]
    unknown = [error for error in unexpected if not names_cause(topics_of(error.message))]
    if run.simulation == "plugin":
        unknown = [error for error in unknown if not lacks_compiler(error.message)]
    if unknown:
        return [*map(error_line, unknown)]
    if run.verdict != "error" or unexpected or _names_ending_cause(log):
        return []
    number = ending_signal(run)
    signal_name = f" ({number.name})" if number is not None and run.outcome.signal is None else ""
    return [*map(error_line, log.errors[-1:]), run.outcome.text + signal_name]


def _deadline_finding(run: Run) -> Finding:
    """gpuwatch itself ended it at its deadline: probably too little time, not a fault of the machine."""
    phases = run.phases
    reached = {
        "the import": phases.import_seconds,
        "starting the devices": phases.device_init_seconds,
        "the first step": phases.first_step_seconds,
    }
    took = [f"{name} took {seconds:.1f} s" for name, seconds in reached.items() if seconds is not None]
    spent = f"it was killed after {phases.total_seconds:.0f} s" if phases.total_seconds is not None else ""
    return warning_finding(
        "unknown",
        title="The probe did not finish before its deadline",
        evidence=[spent or "it was killed", *(took or ["it did not finish the import"])],
        action="Raise --deadline (or lower --seconds). If it never finishes, check dmesg for a hung GPU.",
    )


def _unexplained_end_of_log(log: LogFacts) -> list[str]:
    """The failure at the end of a log that nothing else explains."""
    if _names_ending_cause(log):
        return []
    passed = mentions_keyboard(log.interrupt_line) and not ends_log(log) and not log.reported_end
    if log.interrupt_line and (log.failed_after_interrupt or passed):
        return []  # code that lacked what the interrupted work had not made, or an error before the person's interrupt
    endings = [line for topic in _ending_topics(log) for line in log.lines_of(topic)][:1]
    if endings:
        return endings
    _, report = reported_end(log)
    if report:
        return [report, *own_error_lines(log)]
    last = log.last_error_line
    if ends_log(log):
        error = log.errors[-1]
        ended_on_request = log.received_sigterm and reported_ends.is_about_child(error.type, error.message)
        handled = (
            ended_on_request
            or log.went_on_after_last_error
            or (log.last_error_in == "thread" and log.ending_line_is_last and log.ending_kind == WORK)
            or (log.went_on_after_oom and "memory" in f"{error.type} {error.message}".lower())
        )
        return [] if error.type in INTENDED_ENDS or handled or requires_a_gpu(log) else [error_line(error)]
    if last is not None and _ended_at_last_error(log):
        return [] if log.errors[-1].type in INTENDED_ENDS else [error_line(log.errors[-1])]
    if log.interrupt_line.startswith("^C"):
        return []  # what a terminal echoes: the traceback is of the interrupt
    frame, head = log.last_frame_line, log.open_traceback_line
    if frame is not None and log.line_count - frame <= END_LINES and (last or 0) < frame:
        return [_CUT_TRACEBACK]
    return [_CUT_TRACEBACK] if head is not None and (last or 0) < head else []


def _ended_at_last_error(log: LogFacts) -> bool:
    """Whether no line after the last traceback shows that the program went on: not summaries, further lines of a
    message, or prints that Python wrote when the program ended."""
    imported = log.errors[-1].type in _IMPORT_EXCEPTIONS if log.errors else False
    raised = log.last_error_has_traceback and not log.last_error_in and not imported
    near = log.last_error_line is not None and log.line_count - log.last_error_line <= _MAX_LINES_AFTER_TRACEBACK
    went_on = log.steps_printed_after_error or log.went_on_after_last_error
    return raised and (near or log.other_program_worked) and not went_on


def _names_ending_cause(log: LogFacts) -> bool:
    """Whether a log names a cause that can end the program."""
    ran_out = bool(log.ooms) and not log.went_on_after_oom
    without = {"memory.masked"} if "ended.assert" in log.topics else set()
    return ran_out or names_cause(log.topics.keys() - without)


@rule("unknown", needs="program")
def error_despite_success(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """The program exited with 0, but its log shows an exception with its traceback: it need not have done its work."""
    log = evidence.log
    if run.verdict != "ok" or run.outcome.exit_code != 0:
        return
    if not log.errors or not log.last_error_has_traceback or run.ooms or log.last_error_line is None:
        return
    error = log.errors[-1]
    if error.type in INTENDED_ENDS or names_cause(topics_of(error.message)):
        return
    at_end = log.line_count - log.last_error_line <= _SAME_END_LINES and not log.went_on_after_last_error
    title = f"{CONTINUED_TITLE} {error.type}, whose traceback is in its log"
    if log.last_error_in:
        title = f"{EXIT_0_TITLE} a {log.last_error_in} of it ended in {error.type}"
    elif at_end:
        title = f"{EXIT_0_TITLE} its stderr ends in the traceback of {error.type}"
    yield finding(
        "unknown",
        "warning" if at_end or log.last_error_in else "info",
        title=title,
        evidence=(error_line(error), *raised_at(log, error)),
        action="If the program does not handle this error on purpose, let it exit with another code (sys.exit(1)), so"
        " that scripts and schedulers notice.",
    )

"""The finding reported when no rule fires: it claims no more than the evidence allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.findings import Certainty, Finding
from gpuwatch.explain.diagnosis.rule_registry import finding, healthy_finding, likely_info, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import quoted
from gpuwatch.explain.diagnosis.rules.error_meanings import advice_in_message, meaning_by_kind, message_meaning
from gpuwatch.explain.diagnosis.rules.program_error_messages import Meaning, row_named
from gpuwatch.explain.logs import interrupts, log_ending
from gpuwatch.explain.logs.device_names import is_gpu
from gpuwatch.explain.logs.log_facts import FAILURE, KERAS_WORK, WORK, LogFacts
from gpuwatch.explain.logs.log_frameworks import shows_only_tensorflow
from gpuwatch.explain.logs.message_topics import topics_of

NO_GPU_NAMED = "No errors found, but the log mentions no GPU: TensorFlow may have run on the CPU"
NOTHING_KNOWN = "Nothing recognized: no line says whether the program worked, or how it ended"
_WHAT_WOULD_SHOW_IT = (
    "The exit code (echo $?; sacct -j JOB) or more of the log, including stderr, would show that; gpuwatch run --"
    " python train.py shows both."
)
_DEVICE_UNKNOWN = "No problems found; the log does not say on which device the work ran"
_ERRORS_BEFORE = "No problem at its end, after the errors below; the log does not say on which device the work ran"
_ONLY_WARNED = "No failure in the log: its last lines are warnings; the log does not say on which device the work ran"
_FAILURE, _READ_LINES_BEFORE = row_named("last-lines")[:2]
_SERVER_NOT_READY = row_named("server-not-ready")
_UNCLEAR_FAILURE = "Whether it failed is not clear: near its end a line mentions a failure"
_LINES_BELOW_FAILURE = 3
"""Lines below a failure that may tell the way out."""
_WRAPPER_KEYS = ("compile", "cmake", "cmake-first", "pip-build")
"""Keys of what a tool says of a failure that the lines before it tell better."""
_NO_FRAMEWORK = "No failure in the log, and no framework that gpuwatch recognizes; last line"
_TOPIC_MEANINGS = {
    "ray.worker-exit": row_named("ray-worker"),
    "kernel.trace": row_named("kernel-trace"),
    "horovod.stalled": row_named("horovod-stall"),
}
"""Topics that say what happened where nothing else does, and no work came after."""
_TIME_LIMIT = re.compile(r"time limit|max(?:imum)? (?:run|wall|training)?[ -]?time", re.IGNORECASE)
_AFTER_WORK = "Stopped by Ctrl+C (SIGINT) after its work; no failure in the log"
_PROVISIONAL_TITLES = (NO_GPU_NAMED, NOTHING_KNOWN, _FAILURE, _UNCLEAR_FAILURE)
"""Beginnings of titles that the rest of a log may contradict."""
_MAX_LINES_AFTER_INTERRUPT = 60
"""Lines that may follow the KeyboardInterrupt that ended a program: Python's, of what it ended on the way."""
_NEAR_END_LINES = 10
"""Lines that may follow one that is near the end."""
_MAX_SHOWN_CHARS, _MAX_FAILURE_CHARS, _MAX_ERROR_CHARS = 100, 160, 70
"""Characters of the last line in a title, of one that reports a failure, whose point may come late, of an error."""


def shows_nothing(found: Finding) -> bool:
    """Whether a finding says only that a log, or the last start in it, tells too little."""
    return found.title.startswith((NOTHING_KNOWN, _UNCLEAR_FAILURE, _SERVER_NOT_READY.title))


def is_provisional(found: Finding) -> bool:
    """Whether the rest of a log may contradict a finding."""
    return found.title.startswith(_PROVISIONAL_TITLES)


def default_finding(log: LogFacts, others: Iterable[Finding] = ()) -> Finding:
    """Of a log alone: ``healthy``, with a weaker claim if it names no GPU; ``unknown`` if nothing in it is known, or if
    its last lines report a failure.

    TensorFlow logs every GPU that it uses when it starts. If it logs none, the reason may be a CPU build, hidden log
    lines, or (since 2.21) NVML that does not work; but many programs import it without using it. PyTorch never logs
    its GPU, and an excerpt may lack the line. ``others``: notes of other rules.
    """
    if (stopped := _interrupt_finding(log)) is not None:
        return stopped
    if log.ending_kind not in (WORK, KERAS_WORK) and (crash := log.lines_of("kernel.crash")):
        return _warning_finding(row_named("kernel-crash"), *crash[:2])
    if log.ending_kind == FAILURE:
        meanings = ((message_meaning(line), line) for line in (log.ending_line, *log.last_lines))
        found = [(meaning, line) for meaning, line in meanings if meaning is not None]
        for meaning, _ in sorted(found, key=lambda item: item[0].key in _WRAPPER_KEYS)[:1]:
            shown = next(line for other, line in reversed(found) if other == meaning)
            return _warning_finding(meaning, log.ending_line if shown in log.ending_line else shown)
        title = f"{_FAILURE}: {quoted(log.ending_line, _MAX_FAILURE_CHARS)}"
        lines_below = [*takewhile(lambda line: line not in log.ending_line, log.last_lines)][-_LINES_BELOW_FAILURE:]
        said = advice_in_message("\n".join((log.ending_line, *reversed(lines_below))))
        kind = None if said else meaning_by_kind(log.ending_line)
        action = f"Do what the log says: {said}." if said else kind.action if kind is not None else _READ_LINES_BEFORE
        return _warning_finding(Meaning(title, action[0].upper() + action[1:]), log.ending_line)
    if log.error_of_every_item:
        known = message_meaning(log.error_of_every_item) or row_named("every-item")
        title = known.title.format(quoted(log.error_of_every_item, _MAX_SHOWN_CHARS))
        return _warning_finding(known._replace(title=title), log.error_of_every_item)
    for topic, known in _TOPIC_MEANINGS.items():
        worked = log.ending_kind in (WORK, KERAS_WORK) and topic not in topics_of(log.last_line)
        if not worked and (lines := log.lines_of(topic)):
            return _warning_finding(known, *lines[:2])
    if log.nan_loss_line:
        return _warning_finding(row_named("loss-is-nan"), log.nan_loss_line, certainty="fact")
    if log.leaked_resources_line:
        return _warning_finding(row_named("ended-in-work"), log.ending_line, log.leaked_resources_line)
    if "server.starting" in log.topics and "server.started" not in log.topics:
        return _warning_finding(_SERVER_NOT_READY, log.ending_line or log.last_output_line or log.last_line)
    if log.ending_kind and (refused := log.lines_of("checkpoint.refused")):
        return _warning_finding(row_named("weights-refused"), refused[0], log.ending_line)
    if log.unexplained_failure_line:
        title = f"{_UNCLEAR_FAILURE}: {quoted(log.unexplained_failure_line, _MAX_SHOWN_CHARS)}"
        return _warning_finding(Meaning(title, _WHAT_WOULD_SHOW_IT), log.unexplained_failure_line)
    names_a_gpu = _names_a_gpu(log)
    on_cpu = not names_a_gpu and _used_tensorflow(log)
    if log.ending_kind and not on_cpu:
        line = log.ending_line
        near = log.lines_after_ending_line <= _NEAR_END_LINES and log.lines_after_ending_line * 3 <= log.line_count
        position = "last line" if log.ending_line_is_last else "near its end" if near else "before its last lines"
        beginning = _claim_about_end(log) or "No failure in the log"
        title = f"{beginning}; {position}: {quoted(line, _MAX_SHOWN_CHARS)}"
        return healthy_finding(title=title, evidence=(line, log.logged_error))
    if names_a_gpu:
        return healthy_finding()
    if not on_cpu:
        if log.last_warning:
            return healthy_finding(title=_ONLY_WARNED, evidence=(log.last_warning,))
        if log.last_output_line:
            past, action = _claim_about_end(log), "" if log.frameworks else _WHAT_WOULD_SHOW_IT
            beginning = "No failure in the log; last line" if log.frameworks else _NO_FRAMEWORK
            beginning = f"{past}; last line" if past else beginning
            title = f"{beginning}: {quoted(log.last_output_line, _MAX_SHOWN_CHARS)}"
            return healthy_finding(title=title, evidence=(log.last_output_line, log.logged_error), action=action)
        if not log.frameworks and not log.errors and not any(others):
            return likely_info("unknown", title=NOTHING_KNOWN, evidence=(log.last_line,), action=_WHAT_WOULD_SHOW_IT)
        return healthy_finding(title=_ERRORS_BEFORE if log.errors else _DEVICE_UNKNOWN)
    placed = sum(placement.count for placement in log.placements)
    return healthy_finding(
        title=NO_GPU_NAMED,
        evidence=(
            *log.lines_of("tensorflow.started")[-1:],
            f"none of its {count_text(log.line_count, 'line')} mentions a GPU that was found or used",
            f"ops placed: {placed:,}, all on the CPU" if placed else "",
            "a CPU-only build logs no more, nor does 2.21 or later if NVML does not work, nor any version with"
            " TF_CPP_MIN_LOG_LEVEL=1",
        ),
        action="Run gpuwatch doctor on that machine: it says whether TensorFlow gets a GPU, and if not, why."
        " gpuwatch run -- python train.py says so for the program itself.",
    )


def _claim_about_end(log: LogFacts) -> str:
    """The claim of a log that has errors, none of them at its end; empty for one that has none."""
    if log.errors or not log.logged_error:
        return "No failure at its end, after the errors below" if log.errors else ""
    return f"No failure at its end, although it logged {quoted(log.logged_error, _MAX_ERROR_CHARS)}"


def _warning_finding(known: Meaning, *lines: str, certainty: Certainty = "likely") -> Finding:
    return finding(known.cause, "warning", certainty, title=known.title, evidence=lines, action=known.action)


def _interrupt_finding(log: LogFacts) -> Finding | None:
    """The finding of a log that ends in an interrupt; None for others, and for a server, which only ends so."""
    last = log.errors[-1] if log.errors and log.errors[-1].type == "KeyboardInterrupt" else None
    if log.went_on_after_last_error or log.line_count - (log.last_error_line or 0) > _MAX_LINES_AFTER_INTERRUPT:
        last = None
    line = log.interrupt_line or (f"{last.type}: {last.message}".rstrip(": ") if last is not None else "")
    if not line or "server.started" in log.topics:
        failed = log.unexplained_failure_line or log.ending_kind == FAILURE
        if not line or failed or not interrupts.mentions_keyboard(log.interrupt_line):
            return None
        title = "The server was stopped by Ctrl+C (SIGINT); no failure in the log"
        return healthy_finding(title=title, evidence=(line,))
    if last is None and _TIME_LIMIT.search(line) is not None:
        title = "The program stopped at its own time limit; no failure in the log"
        return healthy_finding(title=title, evidence=(line,))
    if last is not None and log_ending.reports_all_done(log.ending_line):
        return healthy_finding(title=_AFTER_WORK, evidence=(log.ending_line,))
    while_started = last is not None and last.message == "terminated"
    by_sigint = last is not None or interrupts.SIGINT_WORDS.search(line) is not None
    how = "interrupted (Ctrl+C, SIGINT)" if by_sigint else "stopped from outside"
    title, action = f"It was {how}; until then the log shows no failure", ""
    if while_started or "SIGTERM" in line or "signal 15" in line:
        until = " while it started" if while_started else "; until then the log shows no failure"
        title = f"It was ended by SIGTERM{until}"
        action = "Find out who sent it: a supervisor's time limit, a scheduler (sacct -j JOB) or a person."
    if "arent appears" in line:
        title = (
            "It ended when its parent process did (a closed session or notebook); until then the log shows no failure"
        )
    return warning_finding("unknown", title=title, evidence=(line,), action=action)


def _used_tensorflow(log: LogFacts) -> bool:
    """Whether TensorFlow did work, or nothing in the log shows that another framework did: many import it unused."""
    return bool(log.placements) or (shows_only_tensorflow(log) and "tensorflow.started" in log.topics)


def _names_a_gpu(log: LogFacts) -> bool:
    known = log.device_map or log.seen_pci_addresses or log.gpus or log.ignored_gpus or log.smi_processes or log.ooms
    driver_seen = (
        log.found_device_lines or log.kernel_module_version or {"device.used", "driver.answered"} & set(log.topics)
    )
    in_lines = any("GPU" in line for lines in log.evidence.values() for line in lines)
    return bool(known or driver_seen or in_lines) or any(is_gpu(placement.actual) for placement in log.placements)

"""What the last lines of a log show: that its program was at work, or that something failed.

A log whose end no rule explains is healthy only if its program was at work. The forms are those that trainers and
servers print: Keras, PyTorch Lightning, Hugging Face's Trainer, Ultralytics, MMEngine, MXNet, tqdm, Uvicorn, vLLM,
SGLang, text-generation-inference, llama.cpp, Ollama, ComfyUI; of failures reported in several lines those of GROMACS
(``gmx_fatal``, ``gmx::printFatalErrorMessage``), Triton and CMake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from gpuwatch.explain.logs import interrupts
from gpuwatch.explain.logs.device_names import explain_device_type
from gpuwatch.explain.logs.failure_lines import (
    ADD_ON_ERROR,
    FAILURE_AT_ANY_LEVEL,
    NCCL_WARNING,
    has_error_level,
    is_doubtful,
    is_note,
    is_warning,
    reports_failure,
)
from gpuwatch.explain.logs.line_authors import MIN_SERVICE_LINES, gpu_related_lines, last_output_line, service_lines
from gpuwatch.explain.logs.log_facts import FAILURE, KERAS_WORK, WORK, LogFacts
from gpuwatch.explain.logs.log_line_text import (
    MAX_LINE_CHARS,
    bare_message,
    last_bar_state,
    rank_prefix,
    undecorated,
    undecorated_start,
    without_prefixes,
)
from gpuwatch.explain.logs.progress_and_success_patterns import (
    ALL_WORK_DONE,
    ENDED_WELL,
    EXIT_0,
    PROGRESS,
    SCRIPT_END,
    WORK_STARTS,
)

LAST_LINES = 60
"""Lines at the end of a log that are kept."""
NEAR_END_LINES = 15
"""A failure is the end of a log if at most so many other lines follow it, none of which shows work."""
_CHECKED_LINES = 25
"""Lines at the end in which a word of failure must be explained for a log to be healthy."""
_MIN_STEP_LINES = 1
"""Lines of steps that explain a word of failure before them."""
_MIN_NOTE_LINES = 5
"""Lines that a logger calls notes after a warning that show that the program went on as usual."""
_MAX_KEPT_CHARS = 400
_WARNING_LINES = 3
"""Lines of a warning of Python's module: itself, its source line, another one printed with it."""

_NUMBERS_ROW = re.compile(
    r"(?:[A-Za-z][\w /%.()-]{0,40}\| *(?=-?\d|nan))?"
    r"(?:-?\d[\d.,e+:-]*|nan)(?:[\s|]+(?:-?\d[\d.,e+:-]*|-|nan|[^\s|]*/[^\s|]+))*\W*$"
)
_FAILURE_ALLOWED = re.compile(r"^\+{1,3} (?:true|:)$")
"""After a command that may fail ("|| true"), as a shell traces it (set -x)."""
_CROSS_MARK, _CHECK_MARK = "\u274c", "\u2705"
"""A check's answer at the end of its line, which is no failure of the program if a later line reports success."""
_EXIT_0 = re.compile(EXIT_0, re.IGNORECASE)
_IGNORED_EXCEPTION_HEADS = (
    "Exception ignored ", "Exception in callback _ProactorBasePipeTransport.", "Exception in callback RequestHandler.",
    "--- Logging error ---",
)  # fmt: skip
"""Heads of tracebacks that Python prints of what it does without."""
_TRACEBACK_END = re.compile(r"(?:\w+\.)*[A-Z]\w+(?::|$)")
_KEYBOARD_INTERRUPT = re.compile(r"^KeyboardInterrupt:?$")


_LEAKED_RESOURCES = re.compile(r"\bresource_tracker: There appear to be \d{1,9} leaked\b")
_COUNT_OF_TOTAL = re.compile(r"(?<![\d/.])(\d{1,9})/(\d{1,9})(?![\d/])")
_CRASH_OUTPUT = re.compile(
    r"^#\d{1,3} +(?:0x|\S{1,200} \()|\[0x[0-9a-f]{6,16}\]|^[0-9a-f]{8,16}-[0-9a-f]{8,16} [r-][w-]"
    r"|^at \S{1,200}\(.{1,200}\)$|^usage: |\| +5\d\d \||HTTP/\d(?:\.\d)?\" 5\d\d\b",
    re.IGNORECASE,
)
"""A frame of a native or Java stack, a map of memory, a usage text, an answer that a server could not give: ends of
programs that failed without words.
"""


def announces_work(line: str) -> bool:
    """Whether a line says that work begins, which proves none."""
    return re.search(WORK_STARTS, line, re.IGNORECASE) is not None


def leaked_resources_line(lines: Sequence[str], work_line: str) -> str:
    """The line of Python's resource tracker near the end of a log whose last work, ``work_line``, was not yet complete.

    The tracker outlives the process that it works for, and cleans up what that one left: it was killed, or crashed.
    """
    if reports_completion(work_line) or not any(int(at) < int(most) for at, most in _COUNT_OF_TOTAL.findall(work_line)):
        return ""
    near = [line for line in lines if line.strip()][-NEAR_END_LINES:]
    return next((undecorated_start(line) for line in reversed(near) if _LEAKED_RESOURCES.search(line)), "")


def reports_all_done(line: str) -> bool:
    """Whether a line says that all work is done, not only that a result was saved."""
    return re.search(ALL_WORK_DONE, line, re.IGNORECASE) is not None


def shows_work(line: str) -> bool:
    """Whether a line shows work, not only the end of a script."""
    return PROGRESS.search(line) is not None or PROGRESS.search(without_prefixes(line)) is not None


def reports_completion(line: str) -> bool:
    """Whether a line says that its program completed its work, or was stopped in order."""
    return ENDED_WELL.search(line) is not None


class LogEnd(NamedTuple):
    """What the last lines of a log show."""

    kind: str
    """:data:`WORK`, :data:`KERAS_WORK`, :data:`FAILURE` or nothing."""
    line: str
    """The line on which :attr:`kind` is based."""
    unexplained_failure_line: str = ""
    """A line of those that speaks of a failure, after which too little work came to show that it was of no consequence.
    """
    nan_loss_line: str = ""
    """The last line with a loss that is NaN or infinite, if no later one shows it finite."""


def end_of(lines: Sequence[str], *, is_server: bool = False) -> LogEnd:
    """What the last lines show: the one place that decides whether a log may be called healthy.

    ``is_server``: the log is of a server that had started (:func:`kind_and_line`).
    """
    lines = list(_without_ignored_exceptions(lines))
    last_check_mark = max(
        (at for at, raw in enumerate(lines) if undecorated_start(raw).startswith(_CHECK_MARK)), default=0
    )
    lines = [raw for at, raw in enumerate(lines) if at > last_check_mark or not raw.rstrip().endswith(_CROSS_MARK)]
    kind, line = kind_and_line(lines, is_server=is_server)
    if (kind == FAILURE or not shows_work(line)) and (report := report_line(lines)):
        return LogEnd(FAILURE, report)
    if kind == FAILURE:
        return LogEnd(kind, first_failed_line(lines, line))
    if not kind and (row := _last_numbers_row(lines)):
        kind, line = WORK, row
    checked = gpu_related_lines(lines)
    if is_server:
        checked = [raw for raw in list(lines)[-1:] if ADD_ON_ERROR.match(undecorated_start(raw)) is None]
    last = [undecorated_start(last_bar_state(raw)) for raw in checked if raw.strip()]
    last = last[-_CHECKED_LINES:]
    steps, notes, doubt = 0, 0, ""
    in_order = interrupts.received_sigterm(last) and reports_completion(last[-1])  # of a program that was asked to end
    for at, whole in enumerate(() if in_order else reversed(last)):
        passed = steps >= _MIN_STEP_LINES or (at > 0 and _FAILURE_ALLOWED.match(last[-at]) is not None)
        passed |= notes >= _MIN_NOTE_LINES and is_warning(whole) and NCCL_WARNING.search(whole) is None
        if not doubt and not passed and is_doubtful(whole, worked=bool(kind)):
            doubt = whole
        works = PROGRESS.search(whole) is not None and ENDED_WELL.search(whole) is None
        steps += works or _COUNT_OF_TOTAL.search(whole) is not None or _EXIT_0.search(whole) is not None
        notes += is_note(whole)
    return LogEnd(kind, line, doubt, nan_loss_line(last))


def store_last_lines(facts: LogFacts, lines: Sequence[str], end: LogEnd, program_lines: Sequence[str]) -> None:
    """Stores in ``facts`` what the last lines and ``end`` show; ``program_lines``: lines that a program wrote."""
    last = undecorated(next((line for line in reversed(lines) if line and not line.isspace()), "")[:MAX_LINE_CHARS])
    crashed = any(_CRASH_OUTPUT.search(undecorated_start(raw)) for raw in lines)
    warned = (raw for raw in list(lines)[-_WARNING_LINES:] if "Warning: " in raw)
    facts.ending_kind = end.kind
    facts.ending_line_is_last = bool(end.line) and end.line in last
    facts.ending_line = _shortened(end.line)
    facts.unexplained_failure_line = _shortened(end.unexplained_failure_line)
    facts.nan_loss_line = _shortened(end.nan_loss_line)
    facts.last_line = _shortened(last)
    facts.last_output_line = "" if end.kind or crashed else _shortened(last_output_line(lines))
    facts.last_warning = _shortened(undecorated(next(warned, "")[:_MAX_KEPT_CHARS]))
    facts.interrupt_line = _shortened(interrupts.interrupt_line(lines))
    facts.failed_after_interrupt = interrupts.failed_after_interrupt(lines)
    facts.leaked_resources_line = _shortened(leaked_resources_line(lines, end.line))
    facts.received_sigterm = interrupts.received_sigterm(lines)
    if end.kind == FAILURE:
        near = islice(reversed(program_lines), NEAR_END_LINES)
        facts.last_lines = tuple(_shortened(bare_message(text)) for text in near)


def _shortened(text: str) -> str:
    return explain_device_type(text[:_MAX_KEPT_CHARS])


def _last_numbers_row(lines: Sequence[str]) -> str:
    """The last row, if the last lines are rows of numbers, or of a number and a name."""
    last = [undecorated_start(raw) for raw in lines if raw.strip()][-NEAR_END_LINES:]
    rows = [line for line in last if _NUMBERS_ROW.match(line) is not None]
    return rows[-1] if len(rows) * 3 > NEAR_END_LINES * 2 else ""


def _without_ignored_exceptions(lines: Sequence[str]) -> Iterator[str]:
    """The lines without exceptions that Python ignored, each with its traceback, and advice on what is deprecated.

    An ignored one whose traceback is cut off stays.
    """
    ignored: list[str] = []
    advice = False
    for raw in lines:
        if advice:
            advice = False
            continue
        advice = raw.rstrip().endswith("Instructions for updating:")  # of TensorFlow: the next line says how
        if not ignored and not any(head in raw for head in _IGNORED_EXCEPTION_HEADS):
            yield raw
            continue
        ignored.append(raw)
        if _TRACEBACK_END.match(without_prefixes(undecorated_start(raw))) is not None:
            ignored = []
    yield from ignored


def kind_and_line(lines: Sequence[str], *, is_server: bool = False) -> tuple[str, str]:
    """:data:`WORK`, :data:`KERAS_WORK`, :data:`FAILURE` or nothing, and the line of the last ones that shows it.

    ``is_server``: the log is of a server that had started. An error in it is one of a request or of an add-on if more
    lines follow it.
    """
    if (of_service := service_lines(lines)) is None:
        if not is_server:
            return _kind_and_line(gpu_related_lines(lines))
        last = next((line for line in reversed(lines) if line.strip()), "")
        of_part = ADD_ON_ERROR.match(undecorated_start(last)) is not None
        kept = [
            line
            for line in lines
            if (line is last and not of_part) or FAILURE_AT_ANY_LEVEL.search(line) or not has_error_level(line)
        ]
        found = _kind_and_line(kept)
        if of_part and not found[0]:
            return _kind_and_line(lines)
        return found if found[0] or len(kept) == len(lines) else (WORK, undecorated_start(last))
    found = _kind_and_line(of_service)
    if found[0] or len(lines) < MIN_SERVICE_LINES:
        return found
    return WORK, undecorated_start(lines[-1])


def _kind_and_line(lines: Sequence[str]) -> tuple[str, str]:
    followed, failed, worked, allowed = 0, "", ("", "", ""), False
    interrupted = ended = ""
    for raw in reversed(lines):
        rank = rank_prefix(raw)
        if worked[0] and (rank == worked[2] or followed >= NEAR_END_LINES):
            followed += 1
            continue  # of several processes, one may have failed while another worked on
        for piece in reversed(raw.rstrip("\r\n").split("\r")):
            whole = undecorated_start(piece)
            line = without_prefixes(whole)
            if not line:
                continue
            if not followed and _KEYBOARD_INTERRUPT.match(line) is not None:
                interrupted = whole
            before_allowed, allowed = allowed, _FAILURE_ALLOWED.match(whole) is not None
            if not failed and not before_allowed and reports_failure(whole, last=followed == 0, words=not interrupted):
                failed = whole
                if followed < NEAR_END_LINES and (rank or not worked[0]):
                    return FAILURE, failed
            if not ended and SCRIPT_END.search(line) is not None:
                ended = whole
            may_work = not worked[0] and failed != whole and ": error: " not in whole
            if may_work and (found := PROGRESS.search(line) or PROGRESS.search(whole)):
                worked = (KERAS_WORK if found.lastgroup == KERAS_WORK else WORK, whole, rank)
                if not rank:
                    return worked[:2]
            followed += 1
    if worked[0]:
        return worked[:2]
    ended = interrupted or ended
    return (FAILURE, failed) if failed else (WORK, ended) if ended else ("", "")


_MAX_LINES_AFTER_GROMACS = 9
"""Lines that may follow GROMACS's text, if it ends the log: where help is, a ruler, a quotation, what MPI says."""
_MAX_LINES_BETWEEN = 2
"""Lines without a word of failure that may stand between two lines of one cluster."""
_GROMACS = re.compile(r"Source (?:code )?file: .*\bline:? \d+\)?$")
_GROMACS_DETAILS = ("Function: ", "MPI rank: ")
_GROMACS_TEXT_END = ("----------", "For more information and tips")
_TRITON_TABLE_HEAD = re.compile(r"\| Model +\| Version +\| Status +\|$")
_NCCL_TRACE = re.compile(r"NCCL INFO .* -> \d+\b")
"""NCCL's return trace, printed between two lines about an error."""
_NO_DESCRIPTION = re.compile(
    r":$|\b(?:abort|exit|quit)(?:ing|ed)\b|\bcode:? ?[#=]? ?-?\d+\W*$|exit (?:code|status)|^Error executing job"
    r"|(?:check|see|read) the (?:\w+ )?logs?\b|build stopped|^g?make|\bmore information\b|^-{2,}|^\+{1,3} ",
    re.IGNORECASE,
)
"""A heading of what follows it, what only follows from an error before, a shell's trace."""


def report_line(lines: Sequence[str]) -> str:
    """The report of several lines with which GROMACS, Triton or CMake stopped, as one line; empty without one."""
    plain = [without_prefixes(undecorated_start(raw)) for raw in lines]
    for at in (at for at in range(len(plain) - 1, 0, -1) if _GROMACS.match(plain[at]) is not None):
        end = next((to for to in range(at + 1, len(plain)) if plain[to].startswith(_GROMACS_TEXT_END)), len(plain))
        text = " ".join(line for line in plain[at + 1 : end] if not line.startswith(_GROMACS_DETAILS))
        return f"{plain[at - 1]} \u2026 {text}" if text and len(plain) - end <= _MAX_LINES_AFTER_GROMACS else ""
    table = [line.strip("> \r\n") for line in lines]
    begun = max((at for at, line in enumerate(table) if _TRITON_TABLE_HEAD.match(line) is not None), default=len(table))
    rows = takewhile(lambda line: line.startswith(("|", "+")), table[begun + 1 :])
    if refused := next((line for line in rows if "UNAVAILABLE" in line), ""):
        return refused
    begun = next((at for at, line in enumerate(plain) if line.startswith("CMake Error")), len(plain))
    end = next((at for at in range(begun + 1, len(plain)) if lines[at][:1] not in (" ", "\t")), len(plain))
    return " ".join(plain[begun:end])


def first_failed_line(lines: Sequence[str], failed: str) -> str:
    """The first line that names what failed of those that end with ``failed``; ``failed`` itself without another."""
    plain = [undecorated_start(last_bar_state(raw)) for raw in lines if raw.strip()]
    first, apart = failed, 0
    for line in reversed(plain[: max((at for at, line in enumerate(plain) if line == failed), default=0)]):
        if reports_failure(line):
            first, apart = (line if _NO_DESCRIPTION.search(line) is None else first), 0
        elif _NCCL_TRACE.search(line) is None and (apart := apart + 1) > _MAX_LINES_BETWEEN:
            break
    return first


_NAN = re.compile(
    r"(?P<name>[A-Za-z][\w/.@-]{0,60})['\"]?(?: {0,20}[=:|] {0,20}| (?:(?:is|was|became) )?)\(?['\"]?-?(?:nan|inf)\b",
    re.IGNORECASE,
)
_NAN_COLUMNS = re.compile(r"\s*\d{1,6}/\d{1,6}\s+[\d.]+G(?:\s+nan){2,}\s")
"""Ultralytics' row of a step: epoch, memory, then each loss."""
_OF_A_LOSS = re.compile(
    r"loss|entropy|(?:^|[/_.])(?:ce|nll|elbo|kl|mse|rmse|mae|objective|ppl)$|smoothl1|cost|perplexity|grad.?norm",
    re.IGNORECASE,
)
_NO_LOSS = re.compile(r"best|min|max|prev|old|limit|bound|clip|rew|len|return|time|eta", re.IGNORECASE)


def nan_loss_line(lines: Sequence[str]) -> str:
    """The last line with a loss that is NaN or infinite, if no later one shows it finite; empty without one."""
    for at in range(len(lines) - 1, -1, -1):
        if name := _nan_loss_name(lines[at]):
            finite = re.compile(rf"{re.escape(name)}\W{{1,20}}-?\d")
            return "" if any(map(finite.search, lines[at + 1 :])) else lines[at]
    return ""


def _nan_loss_name(line: str) -> str:
    """The name of the loss that a line says to be NaN or infinite; empty without one."""
    if _NAN_COLUMNS.match(line) is not None:
        return "loss"
    for found in _NAN.finditer(line):
        name = found["name"]
        if _OF_A_LOSS.search(name) is not None and _NO_LOSS.search(name) is None:
            return name
    return ""

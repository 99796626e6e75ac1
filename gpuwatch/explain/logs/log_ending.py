"""What the last lines of a log tell: that its program was at work, or that something failed.

A log whose end no rule explains is healthy only if its program was at work. The forms are those that trainers and
servers print: Keras, PyTorch Lightning, Hugging Face's Trainer, Ultralytics, MMEngine, MXNet, tqdm, Uvicorn, vLLM,
SGLang, text-generation-inference, llama.cpp, Ollama, ComfyUI; levels are those of glog, absl, Python's loggers, logfmt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from gpuwatch.explain.logs import interrupts
from gpuwatch.explain.logs.line_prefixes import rank_prefix, undecorated, without_prefixes
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.program_output import printed
from gpuwatch.explain.logs.progress_and_success_patterns import BEGINS, ENDS, EXIT_0, FINISHED, WHOLE_WORK, WORKS
from gpuwatch.explain.logs.reported_ends import reported_end
from gpuwatch.explain.logs.sizes_and_device_names import explain_device_type
from gpuwatch.explain.logs.unexplained_failure_lines import (
    first_failed_line,
    not_a_number,
    report_line,
    speaks_of_failure,
)

WORKED = "work"
KERAS = "keras"
"""Work of Keras' own progress bar, which only TensorFlow, JAX or PyTorch below it can have done: a group of
:data:`~gpuwatch.explain.logs.progress_and_success_patterns.WORKS`.
"""
FAILED = "failure"

LAST_LINES = 60
"""Lines at the end of a log that are kept."""
NEAR_END_LINES = 15
"""A failure is the end of a log if at most so many other lines follow it, none of which shows work."""
_DOUBTED_LINES = 25
"""Lines at the end in which a word of failure must be explained for a log to be healthy."""
_MIN_STEP_LINES = 1
"""Lines of steps that explain a word of failure before them."""
_MAX_READ_CHARS, _MAX_LINE_CHARS, _MAX_KEPT_CHARS = 1000, 20_000, 400
_WARNING_LINES = 3
"""Lines of a warning of Python's module: itself, its source line, another one printed with it."""
_MAX_EARLY_CHARS = 200
"""Characters in which a line without a level says that it reports a failure: longer ones are texts that a program works
on.
"""

_LEVEL = re.compile(
    r"^(?:\S{0,40} ){0,4}?\[?(?P<glog>[IWEF])(?:\d{4} [\d:.]{1,30}|(?= (?:tensorflow|external|[\w/]{1,80}\.cc)))"
    r"|\d: (?P<absl>[IWEF]) \S{1,200}\.cc:\d|\blevel=(?P<logfmt>\w{1,8})|\"level\" ?: ?\"(?P<json>\w{1,8})\""
    r"|^(?:> ?)?(?:\[[\d/:. -]{8,30}\] ?)?\[(?P<tensorrt>E)\] "
    r"|(?:^|[\s\[|:(<-])(?P<word>DEBUG|INFO|NOTICE|NOTE(?=:)|WARN|WARNING|ERROR|CRITICAL|FATAL|PANIC|ERRO|FTL)\b"
    r"|(?P<python>\w{0,40}Warning): "
)
_OF_A_STREAM = re.compile(r"\b[A-Z]{4,8} *\| *std(?:err|out) *\|")
"""A logger's level and name for all that a program writes to a stream: it says nothing of a line."""
_OF_AN_ADD_ON = re.compile(
    r"^(?:\[[\d :.,T-]{8,30}\] )?\[(?!(?i:rank|engine|worker|server|main|core))[A-Za-z][\w .-]{1,40} ERROR\] "
)
"""A line of a part of a server, which calls itself by its name: "[Name ERROR] …"."""
_BAD_LEVELS = frozenset({"e", "f", "error", "critical", "fatal", "panic", "erro", "ftl", "err"})
_OUTRIGHT = re.compile(
    r"OP_REQUIRES failed|\bInsufficient (?:nvidia|amd)\.com/|\bdevice error\b|\bgiving up\b|\bGGML_ASSERT"
    r"|\bnvcc fatal ?:|\bBypassing SIGTERM|Received SIGTERM: \d"  # of a program that trains
    r"|CrashLoopBackOff|(?:Image|Err)\w*Pull(?:BackOff)?\b|(?:Create|Run)Container\w*Error\b"
    r"|^Connection to \S+ closed by remote host|^client_loop: send disconnect|^packet_write_wait: "
    r"|\(EE\) no screens found|Server terminated with error|\bSIGABRT\b|\bSIGSEGV\b"
    r"|\b(?:exiting|aborting|quitting) (?:now|due|because|after)\b"
)
"""Reported by a line of whatever level."""
NCCL_WARNING = re.compile(r"NCCL WARN (?!NVML library|.*(?:No plugin found|kernel version|iommu))")
"""NCCL's warnings are its errors, but for some about what it does without; counts of retries in them are no success."""
_FAILURES_FILE = (
    r"(?:(?:error|failure|exception)[ _-]?(?:logs?|reports?|dumps?|files?|details|state|traces?)"
    r"|(?:crash|core|stack ?trace|traceback)(?:[ _-]?(?:logs?|reports?|dumps?|files?|details|state))?)\b"
)
_OF_A_FAILURE = re.compile(
    rf"\b{_FAILURES_FILE}.{{0,80}}?\b(?:saved|saving|written|writing|exported|dumped)\b"
    rf"|\b(?:sav|writ|dump|export)(?:ed|ing|ten) (?:\w{{1,12}} ){{0,2}}{_FAILURES_FILE}",
    re.IGNORECASE,
)
"""A file that a program writes because it failed is no result."""
_NO_FAILURE = re.compile(
    r"Unable to register cu|already registered|TensorRT|Could not find cuda drivers|rebuild TensorFlow|NUMA"
    r"|unimplemented for this stream|\b(?:Gdk|Gtk|GLib)(?:-\w{1,20})?-(?:CRITICAL|WARNING)\b|pip's dependency resolver"
    r"|\badd an exception for\b|\berror[ _]rate|\berror (?:messages?|output) (?:goes?|is written|are written) to\b"
    r"|ERR! +\||NVML library|Failed to grab modeset ownership|An exception has occurred, use %tb"
    r"|(?:\)|:\d{1,6}): (?:warning|note|remark)\b|going to /tmp instead|failed to find ggml_backend_"
    r"|Fontconfig (?:error|warning)|is over \d{1,2}% full"
    r"|\berror trace to: |\b[Aa]s a (?:consequence|result), you may\b|\battention mask (?:is not set|and the pad token)"
    r"|\b(?:retry(?:ing)?|reconnecting|resuming|starting another|fall(?:ing )?back|skipp?(?:ed|ing)"
    r"|ignor(?:ed|ing)|filtered|discarded|dropped)\b",
    re.IGNORECASE,
)
"""Words of failure in lines that report none: TensorFlow's noise at its import, what is tried again or left out."""


_ROW = re.compile(
    r"(?:[A-Za-z][\w /%.()-]{0,40}\| *(?=-?\d|nan))?"
    r"(?:-?\d[\d.,e+:-]*|nan)(?:[\s|]+(?:-?\d[\d.,e+:-]*|-|nan|[^\s|]*/[^\s|]+))*\W*$"
)
_PROSE = re.compile(
    r"\b(?:I|I'm|I've|i (?:think|am|get|got|have|tried|want|need|guess|used?|run|ran|don'?t|cannot|can't)|me|my"
    r"|[Aa]nyone|[Aa]ny (?:ideas?|thoughts?|help|suggestions?)|[Pp]lease help|[Tt]hanks)\b"
    r"(?!(?: \S+){0,2}: )|^(?:[Ww]e|[Yy]ou|[Dd]id you|[Hh]ave you) (?:\w+ ){4}"
    r"|^(?:[A-Z]\w* ){1,2}[^:=\[\]/]{20,}\?(?: |$)"
)
"""Words of people in a thread, around the log that they post."""
_ALLOWED = re.compile(r"^\+{1,3} (?:true|:)$")
"""After a command that may fail ("|| true"), as a shell traces it (set -x)."""
_NO, _YES = "\u274c", "\u2705"
"""A check's answer at the end of its line, which is no failure of the program if a later line reports success."""
_RAISED = re.compile(r"(?!SystemExit: [1-9])(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?::|$)")
_EXIT_0 = re.compile(EXIT_0, re.IGNORECASE)
_IGNORED = (
    "Exception ignored ", "Exception in callback _ProactorBasePipeTransport.", "Exception in callback RequestHandler.",
    "--- Logging error ---",
)  # fmt: skip
"""Heads of tracebacks that Python prints of what it does without."""
_ERROR_OF_A_TRACEBACK = re.compile(r"(?:\w+\.)*[A-Z]\w+(?::|$)")
_INTERRUPTED = re.compile(r"^KeyboardInterrupt:?$")
_OF_JOURNAL = re.compile(r"^\S{2,6} [ \d]?\d \d\d:\d\d:\d\d \S{1,80} (?P<program>[\w.@-]{1,80})(?:\[\d{1,10}\])?: ")
_OF_A_GPU = re.compile(
    r"nvidia|nvrm|\bnv-|cuda|\bgpu|\bxid|nouveau|\bdrm\b|amdgpu|dcgm|docker|containerd|kubelet|slurm|python|torch"
    r"|tensorflow",
    re.IGNORECASE,
)
_OF_KERNEL = re.compile(r"^(?:kern +:\w+ +: )?\[ {0,8}\d{1,9}\.\d{6}\] ")
"""A line of dmesg."""
_OF_XORG = re.compile(r"^\[ {0,8}\d{1,9}\.\d{3}\] \((?:II|WW|EE|NI|--|\*\*|==|\+\+|!!|\?\?)\) ")
_XORG_FAILED = re.compile(
    r"\(EE\) (?:NVIDIA|no screens found|Caught signal|Server terminated with error)|Fatal server error"
)
"""What ends an X server; its other lines marked (EE) are about parts that it does without."""
_MIN_SERVICE_LINES = 20
"""Lines of a kernel or an X server that show it at work, if none is about a failure of a GPU."""
_MIN_JOURNAL_PROGRAMS = 3
"""Programs beside the kernel and systemd whose lines make a journal that of a whole machine."""


_WARNING = re.compile(
    r"(?:^|[\s:])\w{0,40}Warning: |\bWARN(?:ING)?\b|\[W\]|^\s*(?:warnings\.)?warn\("
    r"|(?:^|\W|\[\d{1,3}m)W\d{4} |: W [\w/]+\.cc:"
)
_INSTALLED = re.compile(r"^Successfully (?:installed|built) |Built target |Finished processing dependencies")
_LEFT_BEHIND = re.compile(r"\bresource_tracker: There appear to be \d{1,9} leaked\b")
_COUNTED = re.compile(r"(?<![\d/.])(\d{1,9})/(\d{1,9})(?![\d/])")
_SKIPPED = re.compile(r"\W{0,3}skip(?:ped|ping)?\b", re.IGNORECASE)
_CRASH = re.compile(
    r"^#\d{1,3} +(?:0x|\S{1,200} \()|\[0x[0-9a-f]{6,16}\]|^[0-9a-f]{8,16}-[0-9a-f]{8,16} [r-][w-]"
    r"|^at \S{1,200}\(.{1,200}\)$|^usage: |\| +5\d\d \||HTTP/\d(?:\.\d)?\" 5\d\d\b",
    re.IGNORECASE,
)
"""A frame of a native or Java stack, a map of memory, a usage text, an answer that a server could not give: ends of
programs that failed without words.
"""
_OF_NO_CONSEQUENCE = frozenset({"cuda.version-mismatch", "ended.extension", "build.gpu-unsupported"})
"""Topics of warnings that a program which worked to its end has shown to be harmless."""


def is_warning(line: str = "", *before: str) -> bool:
    """Whether a line, as it is, is part of a warning: of Python's module, of a logger, of NCCL or TensorRT.

    ``before``: the lines before it, the last first: of a warning whose text begins below its heading."""
    return _WARNING.search(line) is not None or any(text.rstrip().endswith("Warning:") for text in before)


def announces_work(line: str) -> bool:
    """Whether a line tells that the work is to begin, which proves none."""
    return re.search(BEGINS, line, re.IGNORECASE) is not None


def left_behind(lines: Sequence[str], told_by: str) -> str:
    """The line of Python's resource tracker near the end of a log whose last work, ``told_by``, was not yet complete.

    The tracker outlives the process that it works for, and cleans up what that one left: it was killed, or crashed.
    """
    if reports_completion(told_by) or not any(int(at) < int(most) for at, most in _COUNTED.findall(told_by)):
        return ""
    near = [line for line in lines if line.strip()][-NEAR_END_LINES:]
    return next((undecorated(line[:_MAX_READ_CHARS]) for line in reversed(near) if _LEFT_BEHIND.search(line)), "")


def harmless(topic: str, lines: Sequence[str], told_by: str, *, used: bool) -> bool:
    """Whether the warnings of a topic had no consequence, since ``told_by`` ends a program that worked.

    A program goes on without a GPU, too, so warnings that there is none stay, unless it only built or installed
    something. ``used``: whether the log shows a GPU in use.
    """
    if topic == "build.gpu-unsupported" and announces_work(told_by):
        return False
    if topic in _OF_NO_CONSEQUENCE or _INSTALLED.search(told_by) is not None:
        return True
    if topic == "driver.mismatch":
        return used
    return topic == "build.cpu-only" and all("bitsandbytes" in line for line in lines)


def reports_skipping(line: str) -> bool:
    """Whether a line says that the program leaves something out and goes on: "[skip] Failed to load …"."""
    return _SKIPPED.match(line.lstrip()) is not None


def reports_all_done(line: str) -> bool:
    """Whether a line says that all work is done, not only that a result was saved."""
    return re.search(WHOLE_WORK, line, re.IGNORECASE) is not None


def shows_work(line: str) -> bool:
    """Whether a line shows work, not only the end of a script."""
    return WORKS.search(line) is not None or WORKS.search(without_prefixes(line)) is not None


def reports_completion(line: str) -> bool:
    """Whether a line tells that its program did its work to the end, or was stopped in order."""
    return FINISHED.search(line) is not None


def _service_lines(lines: Sequence[str]) -> list[str] | None:
    """In the log of a kernel or an X server, the lines that may be about a GPU failure; None for other logs."""
    if lines and all(map(_OF_KERNEL.match, lines)):
        return [line for line in lines if _OF_A_GPU.search(line)]
    if sum(map(bool, map(_OF_XORG.match, lines))) * 2 > len(lines):
        return [line for line in lines if _XORG_FAILED.search(line)]
    return None


def _relevant(lines: Sequence[str]) -> list[str]:
    """The lines; of a kernel, an X server or a whole machine only those about GPUs, their drivers, what uses them."""
    if (of_service := _service_lines(lines)) is not None:
        return of_service
    programs = {found["program"] for line in lines if (found := _OF_JOURNAL.match(line)) is not None}
    if len(programs - {"kernel", "systemd"}) < _MIN_JOURNAL_PROGRAMS:
        return list(lines)
    return [line for line in lines if _OF_A_GPU.search(line)]


class End(NamedTuple):
    """What the last lines tell."""

    tells: str
    """:data:`WORKED`, :data:`KERAS`, :data:`FAILED` or nothing."""
    line: str
    """The line on which :attr:`tells` is based."""
    unexplained_failure_line: str = ""
    """A line of those that speaks of a failure, after which too little work came to show that it was of no consequence.
    """
    not_a_number: str = ""
    """The last line with a loss that is NaN or infinite, if no later one shows it finite."""


def end_of(lines: Sequence[str], *, serves: bool = False) -> End:
    """What the last lines tell: the one place that decides whether a log may be called healthy.

    ``serves``: the log is of a server that had started (:func:`what_they_tell`).
    """
    lines = list(_counting(lines))
    well = max((at for at, raw in enumerate(lines) if undecorated(raw[:_MAX_READ_CHARS]).startswith(_YES)), default=0)
    lines = [raw for at, raw in enumerate(lines) if at > well or not raw.rstrip().endswith(_NO)]
    tells, line = what_they_tell(lines, serves=serves)
    if (tells == FAILED or not shows_work(line)) and (told := report_line(lines)):
        return End(FAILED, told)
    if tells == FAILED:
        return End(tells, first_failed_line(lines, line, _reports))
    if not tells and (row := _last_of_rows(lines)):
        tells, line = WORKED, row
    shown = _relevant(lines)
    if serves:
        shown = [raw for raw in list(lines)[-1:] if _OF_AN_ADD_ON.match(undecorated(raw[:_MAX_READ_CHARS])) is None]
    last = [undecorated(raw.rstrip("\r\n").rpartition("\r")[2][:_MAX_READ_CHARS]) for raw in shown if raw.strip()][
        -_DOUBTED_LINES:
    ]
    steps, doubt = 0, ""
    in_order = interrupts.received_sigterm(last) and reports_completion(last[-1])  # of a program that was asked to end
    for at, whole in enumerate(() if in_order else reversed(last)):
        passed = steps >= _MIN_STEP_LINES or (at > 0 and _ALLOWED.match(last[-at]) is not None)
        if not doubt and not passed and _is_doubtful(whole, worked=bool(tells)):
            doubt = whole
        works = WORKS.search(whole) is not None and FINISHED.search(whole) is None
        steps += works or _COUNTED.search(whole) is not None or _EXIT_0.search(whole) is not None
    return End(tells, line, doubt, _not_a_number(last))


def store_last_lines(facts: LogFacts, lines: Sequence[str], end: End, own: Sequence[str]) -> None:
    """Stores in ``facts`` what the last lines show, including ``end``; ``own``: lines that a program wrote."""
    last = undecorated(next((line for line in reversed(lines) if line and not line.isspace()), "")[:_MAX_LINE_CHARS])
    crashed = any(_CRASH.search(undecorated(raw[:_MAX_READ_CHARS])) for raw in lines)
    warned = (raw for raw in list(lines)[-_WARNING_LINES:] if "Warning: " in raw)
    facts.ending_kind = end.tells
    facts.ending_line_is_last = bool(end.line) and end.line in last
    facts.ending_line = _kept(end.line)
    facts.unexplained_failure_line, facts.not_a_number = _kept(end.unexplained_failure_line), _kept(end.not_a_number)
    facts.last_line = _kept(last)
    facts.last_output_line = "" if end.tells or crashed else _kept(printed(lines))
    facts.last_warning = _kept(undecorated(next(warned, "")[:_MAX_KEPT_CHARS]))
    facts.interrupt_line = _kept(interrupts.interrupt_line(lines))
    facts.failed_after_interrupt = interrupts.failed_after_interrupt(lines)
    facts.leaked_resources_line = _kept(left_behind(lines, end.line))
    facts.received_sigterm = interrupts.received_sigterm(lines)
    if end.tells == FAILED:
        near = islice(reversed(own), NEAR_END_LINES)
        facts.last_lines = tuple(_kept(without_prefixes(undecorated(text))) for text in near)


def _kept(text: str) -> str:
    return explain_device_type(text[:_MAX_KEPT_CHARS])


def _last_of_rows(lines: Sequence[str]) -> str:
    """The last row, if the last lines are rows of numbers, or of a number and a name."""
    last = [undecorated(raw[:_MAX_READ_CHARS]) for raw in lines if raw.strip()][-NEAR_END_LINES:]
    rows = [line for line in last if _ROW.match(line) is not None]
    return rows[-1] if len(rows) * 3 > NEAR_END_LINES * 2 else ""


def _counting(lines: Sequence[str]) -> Iterator[str]:
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
        if not ignored and not any(head in raw for head in _IGNORED):
            yield raw
            continue
        ignored.append(raw)
        if _ERROR_OF_A_TRACEBACK.match(without_prefixes(undecorated(raw[:_MAX_READ_CHARS]))) is not None:
            ignored = []
    yield from ignored


def _is_doubtful(whole: str, *, worked: bool) -> bool:
    """Whether a line speaks of a failure; one that its own level calls a warning does not if the program worked,
    nor does a warning of Python's module."""
    line = whole[:_MAX_EARLY_CHARS]
    if _explained(whole) or reports_skipping(whole) or not speaks_of_failure(_OF_A_STREAM.sub("", line)):
        return False
    level = _level_of(whole)
    of_python = level.endswith("warning") and level != "warning"  # after which the code itself goes on
    return not level or level in _BAD_LEVELS or (not worked and len(level) > 1 and not of_python)


def _not_a_number(last: Sequence[str]) -> str:
    for at in range(len(last) - 1, -1, -1):
        if name := not_a_number(last[at]):
            finite = re.compile(rf"{re.escape(name)}\W{{1,20}}-?\d")
            return "" if any(map(finite.search, last[at + 1 :])) else last[at]
    return ""


def what_they_tell(lines: Sequence[str], *, serves: bool = False) -> tuple[str, str]:
    """:data:`WORKED`, :data:`KERAS`, :data:`FAILED` or nothing, and the line of the last ones that tells it.

    ``serves``: the log is of a server that had started. An error that it logs is one of a request or of a part of it,
    if it says more after it.
    """
    if (of_service := _service_lines(lines)) is None:
        if not serves:
            return _told_by(_relevant(lines))
        last = next((line for line in reversed(lines) if line.strip()), "")
        of_part = _OF_AN_ADD_ON.match(undecorated(last[:_MAX_READ_CHARS])) is not None
        kept = [
            line
            for line in lines
            if (line is last and not of_part) or _OUTRIGHT.search(line) or not _has_error_level(line)
        ]
        found = _told_by(kept)
        if of_part and not found[0]:
            return _told_by(lines)
        return found if found[0] or len(kept) == len(lines) else (WORKED, undecorated(last[:_MAX_READ_CHARS]))
    told = _told_by(of_service)
    return (
        (WORKED, undecorated(lines[-1][:_MAX_READ_CHARS])) if not told[0] and len(lines) >= _MIN_SERVICE_LINES else told
    )


def _told_by(lines: Sequence[str]) -> tuple[str, str]:
    followed, failed, worked, allowed = 0, "", ("", "", ""), False
    interrupted = ended = ""
    for raw in reversed(lines):
        rank = rank_prefix(raw)
        if worked[0] and (rank == worked[2] or followed >= NEAR_END_LINES):
            followed += 1
            continue  # of several processes, one may have failed while another worked on
        for piece in reversed(raw.rstrip("\r\n").split("\r")):
            whole = undecorated(piece[:_MAX_READ_CHARS])
            line = without_prefixes(whole)
            if not line:
                continue
            if not followed and _INTERRUPTED.match(line) is not None:
                interrupted = whole
            before_allowed, allowed = allowed, _ALLOWED.match(whole) is not None
            if not failed and not before_allowed and _fails(whole, line, last=followed == 0, words=not interrupted):
                failed = whole
                if followed < NEAR_END_LINES and (rank or not worked[0]):
                    return FAILED, failed
            if not ended and ENDS.search(line) is not None:
                ended = whole
            may_work = not worked[0] and failed != whole and ": error: " not in whole
            if may_work and (found := WORKS.search(line) or WORKS.search(whole)):
                worked = (KERAS if found.lastgroup == KERAS else WORKED, whole, rank)
                if not rank:
                    return worked[:2]
            followed += 1
    if worked[0]:
        return worked[:2]
    ended = interrupted or ended
    return (FAILED, failed) if failed else (WORKED, ended) if ended else ("", "")


def _level(line: str) -> str:
    found = _LEVEL.search(_OF_A_STREAM.sub("", line))
    return str(found[str(found.lastgroup)]).lower() if found is not None and found.lastgroup else ""


def _level_of(whole: str) -> str:
    """The level of a line's own logger before that of what collected it."""
    return _level(without_prefixes(whole)) or _level(whole)


def is_error_line(line: str) -> bool:
    """Whether a line, as it is, is of the level of errors, or begins so."""
    return _has_error_level(line) or undecorated(line[:_MAX_READ_CHARS]).startswith(("Error ", "Failed ", "Could not "))


def logs_failure(line: str) -> bool:
    """Whether a logger calls a line, as it is, an error, and its words speak of a failure that is not known as harmless
    or left out: what collects the lines of others gives them all a level of its own."""
    whole = undecorated(line[:_MAX_READ_CHARS])
    if _level(whole) not in ("error", "critical") or _explained(whole) or reports_skipping(whole):
        return False
    return speaks_of_failure(without_prefixes(whole)[:_MAX_EARLY_CHARS])


def _has_error_level(line: str) -> bool:
    """Whether a line is of the level of errors, none that ends a program."""
    return _level(undecorated(line[:_MAX_READ_CHARS])) in ("e", "err", "erro", "error")


def _fails(whole: str, line: str, *, last: bool, words: bool = True) -> bool:
    """Whether a line reports a failure. ``words``: whether words of failure count; not while a person ends it."""
    if line.startswith("frame #"):
        return False  # of a C++ backtrace, whose message stands above
    if NCCL_WARNING.search(whole) is not None or _OF_A_FAILURE.search(whole) is not None:
        return True
    if _explained(whole):
        return False
    if _OUTRIGHT.search(whole) is not None:
        return True
    level = _level_of(whole)
    if level in _BAD_LEVELS:
        return True
    if level and not last:
        return False  # a note or a warning, after which the log goes on
    if level.endswith("warning") or level in ("w", "warn"):
        return False
    of_traceback = "raceback (most" in whole or (_RAISED.match(line) is not None and not last)
    if of_traceback or reported_end(line) is not None or _PROSE.search(whole) is not None:
        return False
    return words and speaks_of_failure(_OF_A_STREAM.sub("", whole)[:_MAX_EARLY_CHARS])


def _reports(whole: str) -> bool:
    return _fails(whole, without_prefixes(whole), last=False)


def _explained(whole: str) -> bool:
    """Whether a line is known to report no failure, whatever its words."""
    known = _NO_FAILURE.search(whole) is not None or reported_end(without_prefixes(whole)) == ""
    known = known or "KeyboardInterrupt" in whole
    return known or interrupts.by_keyboard(whole) or interrupts.received_sigterm((whole,))

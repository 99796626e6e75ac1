"""Whether a line of a log reports a failure, a warning or neither: by its logger's level, its form and its words.

Levels are those of glog, absl, Python's loggers, logfmt and JSON.
"""

from __future__ import annotations

import re

from gpuwatch.explain.logs import interrupts
from gpuwatch.explain.logs.failure_words import speaks_of_failure
from gpuwatch.explain.logs.line_prefixes import undecorated, without_prefixes
from gpuwatch.explain.logs.reported_ends import reported_end

_MAX_READ_CHARS = 1000
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
_STREAM_LOGGER = re.compile(r"\b[A-Z]{4,8} *\| *std(?:err|out) *\|")
"""A logger's level and name for all that a program writes to a stream: it says nothing of a line."""
ADD_ON_ERROR = re.compile(
    r"^(?:\[[\d :.,T-]{8,30}\] )?\[(?!(?i:rank|engine|worker|server|main|core))[A-Za-z][\w .-]{1,40} ERROR\] "
)
"""A line of a part of a server, which calls itself by its name: "[Name ERROR] …"."""
_BAD_LEVELS = frozenset({"e", "f", "error", "critical", "fatal", "panic", "erro", "ftl", "err"})
FAILURE_AT_ANY_LEVEL = re.compile(
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
_FAILURE_REPORT_WRITTEN = re.compile(
    rf"\b{_FAILURES_FILE}.{{0,80}}?\b(?:saved|saving|written|writing|exported|dumped)\b"
    rf"|\b(?:sav|writ|dump|export)(?:ed|ing|ten) (?:\w{{1,12}} ){{0,2}}{_FAILURES_FILE}",
    re.IGNORECASE,
)
"""A file that a program writes because it failed is no result."""
_HARMLESS = re.compile(
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


_PROSE = re.compile(
    r"\b(?:I|I'm|I've|i (?:think|am|get|got|have|tried|want|need|guess|used?|run|ran|don'?t|cannot|can't)|me|my"
    r"|[Aa]nyone|[Aa]ny (?:ideas?|thoughts?|help|suggestions?)|[Pp]lease help|[Tt]hanks)\b"
    r"(?!(?: \S+){0,2}: )|^(?:[Ww]e|[Yy]ou|[Dd]id you|[Hh]ave you) (?:\w+ ){4}"
    r"|^(?:[A-Z]\w* ){1,2}[^:=\[\]/]{20,}\?(?: |$)"
)
"""Words of people in a thread, around the log that they post."""
_EXCEPTION_LINE = re.compile(r"(?!SystemExit: [1-9])(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?::|$)")
_WARNING = re.compile(
    r"(?:^|[\s:])\w{0,40}Warning: |\bWARN(?:ING)?\b|\[W\]|^\s*(?:warnings\.)?warn\("
    r"|(?:^|\W|\[\d{1,3}m)W\d{4} |: W [\w/]+\.cc:"
)
_SKIPPED = re.compile(r"\W{0,3}skip(?:ped|ping)?\b", re.IGNORECASE)


def is_warning(line: str = "", *before: str) -> bool:
    """Whether a line, as it is, is part of a warning: of Python's module, of a logger, of NCCL or TensorRT.

    ``before``: the lines before it, the last first: of a warning whose text begins below its heading."""
    return _WARNING.search(line) is not None or any(text.rstrip().endswith("Warning:") for text in before)


def reports_skipping(line: str) -> bool:
    """Whether a line says that the program leaves something out and goes on: "[skip] Failed to load …"."""
    return _SKIPPED.match(line.lstrip()) is not None


def _level(line: str) -> str:
    found = _LEVEL.search(_STREAM_LOGGER.sub("", line))
    return str(found[str(found.lastgroup)]).lower() if found is not None and found.lastgroup else ""


def _level_of(whole: str) -> str:
    """The level of a line's own logger before that of what collected it."""
    return _level(without_prefixes(whole)) or _level(whole)


def is_error_line(line: str) -> bool:
    """Whether a line, as it is, is of the level of errors, or begins so."""
    return has_error_level(line) or undecorated(line[:_MAX_READ_CHARS]).startswith(("Error ", "Failed ", "Could not "))


def logs_failure(line: str) -> bool:
    """Whether a logger calls a line, as it is, an error, and its words speak of a failure that is not known as harmless
    or left out: what collects the lines of others gives them all a level of its own."""
    whole = undecorated(line[:_MAX_READ_CHARS])
    if _level(whole) not in ("error", "critical") or _is_known_harmless(whole) or reports_skipping(whole):
        return False
    return speaks_of_failure(without_prefixes(whole)[:_MAX_EARLY_CHARS])


def has_error_level(line: str) -> bool:
    """Whether a line is of the level of errors, none that ends a program."""
    return _level(undecorated(line[:_MAX_READ_CHARS])) in ("e", "err", "erro", "error")


def reports_failure(whole: str, *, last: bool = False, words: bool = True) -> bool:
    """Whether an undecorated line reports a failure. ``last``: whether it is the last one of its log.

    ``words``: whether words of failure count; not while a person ends the program.
    """
    line = without_prefixes(whole)
    if line.startswith("frame #"):
        return False  # of a C++ backtrace, whose message stands above
    if NCCL_WARNING.search(whole) is not None or _FAILURE_REPORT_WRITTEN.search(whole) is not None:
        return True
    if _is_known_harmless(whole):
        return False
    if FAILURE_AT_ANY_LEVEL.search(whole) is not None:
        return True
    level = _level_of(whole)
    if level in _BAD_LEVELS:
        return True
    if level and not last:
        return False  # a note or a warning, after which the log goes on
    if level.endswith("warning") or level in ("w", "warn"):
        return False
    of_traceback = "raceback (most" in whole or (_EXCEPTION_LINE.match(line) is not None and not last)
    if of_traceback or reported_end(line) is not None or _PROSE.search(whole) is not None:
        return False
    return words and speaks_of_failure(_STREAM_LOGGER.sub("", whole)[:_MAX_EARLY_CHARS])


def _is_known_harmless(whole: str) -> bool:
    """Whether a line is known to report no failure, whatever its words."""
    known = _HARMLESS.search(whole) is not None or reported_end(without_prefixes(whole)) == ""
    known = known or "KeyboardInterrupt" in whole
    return known or interrupts.reports_keyboard_interrupt(whole) or interrupts.received_sigterm((whole,))


def is_doubtful(whole: str, *, worked: bool) -> bool:
    """Whether a line speaks of a failure; one that its own level calls a warning does not if the program worked,
    nor does a warning of Python's module."""
    line = whole[:_MAX_EARLY_CHARS]
    if _is_known_harmless(whole) or reports_skipping(whole) or not speaks_of_failure(_STREAM_LOGGER.sub("", line)):
        return False
    level = _level_of(whole)
    of_python = level.endswith("warning") and level != "warning"  # after which the code itself goes on
    return not level or level in _BAD_LEVELS or (not worked and len(level) > 1 and not of_python)

"""The text of a log line: without colors, quotes, times, levels and ranks around it, out of JSON, and its parts."""

from __future__ import annotations

import html
import re

import msgspec

MAX_LINE_CHARS = 20_000
"""Characters of a line that are read."""
_MAX_START_CHARS = 1000

_ANSI = re.compile(r"\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
# At a line's start: quote marks, comment signs, notebook indents, list bullets, doctest's and pytest's marks, ranks.
_DECORATION = re.compile(
    r"(?:\s+|>+|#+\s|//+\s|;+\s|[-*•] |\$ |\||`+|\*\*|\[?rank:? ?\d+\]?:?|\[default\d+\]:"
    r"|\((?:[\w.:-]+ )?pid=\d+[^)]{0,80}\)|\[\d+\](?:<std\w+>)?:|E {3,})+"
)
_LEVEL = r"(?:DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE)"
_RANK_PREFIX = re.compile(
    r"\[?rank:? ?\d+\]?|\[default\d+\]|\((?:[\w.:-]+ )?pid=\d+|\[\d+,\d+\]<std\w+>|\[\d+\](?=:)|\d{1,5}(?=: )"
    r"|[\w.-]{1,60}(?= +\|)"
)
"""The prefix of one of several processes."""
# Prefixes of log collectors and loggers. Each kind is stripped once, in this order.
_PREFIXES = (
    # 2026-11-20T07:00:01.5Z stderr F …   2026-11-20 07:00:01,500 …   26/11/20 07:00:01 …   (not TensorFlow's "…: I")
    re.compile(
        r"\[?\d{2,4}[-/]\d\d[-/]\d\d,?[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| UTC| ?[+-]\d\d:?\d\d)?\]?(?=\s|$)"
        r"(?: std(?:out|err) [FP])?"
    ),
    # Nov 20 07:00:01   Fri Nov 20 07:00:01 2026
    re.compile(r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?"),
    # host program[123]:
    re.compile(r"(?:[\w.-]+ )?[\w./-]+\[\d+\]:(?: |$)"),
    # [1,0]<stderr>:   [1,mpirank:0,algo-1]<stdout>:
    re.compile(r"\[\d+,[\w:,. -]*\]<std\w+>:"),
    # ERROR 11-20 07:00:01 [core.py:700]
    # - trainer - ERROR -   | ERROR | module:function:12 -   ERROR:root:   ERROR Executor:   {subprocess.py:93} INFO -
    re.compile(
        rf"(?:{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d(?= \[)"
        rf"|(?:- )?[\w.]+ - {_LEVEL} -|(?:\| )?{_LEVEL}\s+\| \S+ -|{_LEVEL}:[\w.]+:|{_LEVEL} [\w.]+:(?= |$)"
        rf"|\{{[\w.]+:\d+\}} {_LEVEL} -|{_LEVEL}(?: -|:)?(?= |$))"
    ),
    # trainer-1  | …
    re.compile(r"[\w.-]{1,60}\s+\|(?=\s|$)"),
    # 0: …   17  …   train.log:17:   but no compiler's place
    re.compile(
        r"\d{1,6}(?:: +(?=[A-Za-z])| {2,}(?=\S)|:?$)"
        r"|[\w./-]+\.\w+:\d+:(?! ?(?:\d+: )?(?:fatal )?(?:error|warning|note): )"
    ),
    # [INFO] [launch.py:31] [pod/train-abc/trainer] [stderr]
    re.compile(r"(?:\[(?!WinError |Errno |\d{1,3}\] Call to )[\w ./:,-]{1,80}\] ?)+"),
)
_QUOTED = re.compile(r'^"(.*?)(?:\\r)?(?:\\n)?",?$')
_ENTITY = re.compile(r"&(?:[lg]t|amp|quot|#\d+|#x[0-9a-fA-F]+);")


def undecorated(line: str) -> str:
    """The line without colors, leading quote marks, indents and prompts, and without its end of line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "&" in line and _ENTITY.search(line):
        line = html.unescape(line)
    decoration = _DECORATION.match(line)
    line = (line[decoration.end() :] if decoration else line).rstrip()
    if line.startswith('"') and (quoted := _QUOTED.match(line)):
        # From a notebook's file or a table.
        line = _ANSI.sub("", quoted[1].replace("\\u001b", "\x1b").replace('\\"', '"').replace('""', '"')).strip()
    return line


def without_prefixes(line: str) -> str:
    """An undecorated line without the prefixes of log collectors, loggers and launchers."""
    for prefix in _PREFIXES:
        match = prefix.match(line)
        if match is not None:
            line = line[match.end() :]
            decoration = _DECORATION.match(line)
            if decoration is not None:
                line = line[decoration.end() :]
    return line


def undecorated_start(line: str) -> str:
    """The beginning of a line, undecorated: enough to tell what it is."""
    return undecorated(line[:_MAX_START_CHARS])


def bare_message(line: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """The message of a line, as it is, without decoration and prefixes; at most from its first ``max_chars``."""
    return without_prefixes(undecorated(line[:max_chars]))


def last_bar_state(line: str) -> str:
    """A line without its end; of a progress bar, which overwrites itself, the last state."""
    return line.rstrip("\r\n").rpartition("\r")[2]


_UNFINISHED_LINE = re.compile(
    r"(?:(?<=[\]\d%)}\u2026])|(?<=\.\.\.)|(?<=[\]%] )|(?<=\.\.\. ))(?="
    r"(?:(?:Killed|Terminated)(?:: \d{1,2})?|Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|KeyboardInterrupt|\u5df2\u6740\u6b7b|\u5df2\u7ec8\u6b62)(?: \(core dumped\))?[\r\n]*$"
    r"|\^C|slurmstepd: error: |srun: |terminate called "
    r"|Fatal Python error: |Connection to \S+ closed|Killed by signal \d|\w{4,14}\(\): invalid |double free "
    r"|(?<!\d)[\w./-]{1,80}: line \d{1,9}: )"
)
"""What a shell, a scheduler or the C library says behind a line that the program had not ended yet."""


def split_unfinished_line(line: str) -> tuple[str, str] | None:
    """A line, as it is, in two: what a program left unfinished, such as a progress bar, and who ended it; else None."""
    found = _UNFINISHED_LINE.search(line)
    return (line[: found.end()], line[found.end() :]) if found is not None and found.end() else None


def rank_prefix(line: str) -> str:
    """The prefix of one of several processes, of a line as it is; empty without one."""
    found = _RANK_PREFIX.match(line.lstrip())
    return found[0] if found is not None else ""


_TEXT_KEYS = ("log", "msg", "message", "MESSAGE", "textPayload", "line", "text", "event")
_ERROR_KEYS = ("exception", "exc_info", "exc_text", "stack_trace", "traceback")
"""Where loggers for Python put the traceback of an error, beside its text."""
_NESTING_KEYS = ("jsonPayload", "record", "fields", "data")


def json_text(line: str) -> str | None:
    """The program's text in a JSON line of Docker, Jupyter, journald or a cloud's log; None for other lines."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    for _ in range(2):
        if not isinstance(found, dict):
            return None
        for key in _TEXT_KEYS:
            text = found.get(key)
            if isinstance(text, str):
                if "exc" not in line and "trace" not in line:
                    return text
                inner = found.get("error")
                raised = [found.get(name) for name in _ERROR_KEYS]
                raised += [inner.get(name) for name in _ERROR_KEYS] if isinstance(inner, dict) else []
                return "\n".join((text, *(error for error in raised if isinstance(error, str))))
        found = next((found[key] for key in _NESTING_KEYS if key in found), None)
    return None


def source_message(line: str) -> tuple[str, str] | None:
    """(``bfc_allocator``, message) of a C++ log line with any kind of prefix; None for other lines."""
    at = line.find(".cc:")
    if at < 1:
        return None
    end = line.find("]", at, at + 12)
    if end < 0:
        return None
    start = max(line.rfind("/", 0, at), line.rfind("\\", 0, at), line.rfind(" ", 0, at)) + 1
    return line[start:at], line[end + 1 :].strip()

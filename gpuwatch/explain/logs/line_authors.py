"""Who wrote the lines of a log: a program, people around its output, a kernel or X server, ``gpuwatch run``.

A program prints lines that inform: what it measured, where it is, what it wrote. Code and markup have statements, keys
and brackets; prose has sentences; people put logs between Markdown's fences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpuwatch.explain.logs.failure_lines import speaks_of_failure
from gpuwatch.explain.logs.log_line_text import last_bar_state, undecorated

_CODE = re.compile(
    r"(?:import|from|def|class|return|if|elif|else|for|while|try|except|with|raise|assert|async|await|using|namespace"
    r"|template|public|private|static|const|let|var|function|echo|export|local|call|use|subroutine|case|then|fi|esac"
    r"|done|do|end)\b(?:.*[:;({\\]$| [\w.*]+(?: import .*)?$|$)|@\w|</?\w+[ >/]|/[*/]|\*/|#(?:include|define|if|end)"
    r"|(?:[\w.]+|\w+\[.*\]) ?[-+*/]?= .*[\w)\]'\"]\(|[\w.\[\]]+\([^)]*\)[;:]?$|\.\. \w+::|[}\])]+[;,]?$|.*[;{\\]$"
)
"""A statement, or a part of one."""
_MARKUP = re.compile(r"\s*(?:#+ ?\w|- \S|[\w-]+:$|\"[^\"]{1,80}\": |\$\w|\(\(|```|\S*<)")
"""Headings, comments, lists, keys of configuration files."""
_PRINTED = re.compile(
    r"^\[[\w .:-]{2,40}\] ?\S|\b\d\d:\d\d|\b[A-Za-z][\w .-]{1,40}[=:] ?[-\d/\"'(\[]|\b(?:INFO|DEBUG|NOTICE)\b"
    r"|(?:^|[\s(\[=:])[-+]?\d[\d.,eE+:-]*\b|[\w.-]*/[\w.-]+/|\b\w+\.[a-z]{2,5}\b|^[-=*#_+~]{4,}|\.\.\.$"
    r"|^[A-Z]\w+(?:ing|ed)\b|\b\w{3,}: \S"
)
"""A time, a tag, a number, a file, a ruler, something by its name."""
_SENTENCE = re.compile(r"(?:[a-z',]+ ){7}|[a-z]{2}[.!?](?: [A-Z]|$)")
_LINES_READ, _MIN_OUTPUT_LINES, _MAX_LINE_CHARS = 30, 3, 1000


def last_output_line(lines: Sequence[str]) -> str:
    """The last one of the last lines of a log, if they are a program's output; empty for other texts."""
    last = [last_bar_state(line)[:_MAX_LINE_CHARS] for line in lines if line.strip()][-_LINES_READ:]
    if _is_document(last):
        return ""
    plain = [undecorated(line) for line in last]
    no_code = [line for line in plain if _CODE.match(line) is None]
    rest = [line for line in no_code if _PRINTED.search(line) is None]
    output, code = len(no_code) - len(rest), len(plain) - len(no_code)
    if output < _MIN_OUTPUT_LINES or output * 2 < len(plain) or code * 5 > len(plain):
        return ""
    return next((line for line in reversed(plain) if any(map(str.isalnum, line))), plain[-1])


_FENCE = re.compile(r" {0,3}(?:> ?)*```[\w+-]{0,12}\s*$")
_HEADING = re.compile(r"#{1,4} \w")
_HEADING_LINES = 4
"""Lines at the beginning of a text among which its title is."""
_PRINTED_OUTSIDE_FENCES = re.compile(
    r"\bInsufficient \w+\.com/|\bstuck\b|\bhangs?\b|\bfreez|^\S*(?:Error|Exception) ?: |^\s*File \"|\d\d:\d\d:\d\d"
    r"|^CMake |\.(?:cc|cpp|cu|py|c|h):\d|\b(?:error|fatal|ERROR|FATAL|WARN\w*): |^\[|^\s*\||^srun|^slurm|^Traceback"
)
"""What a program printed even where a text has no fences around it, or what only people can tell: that it hangs."""


_LOGGED = re.compile(
    r"\b(?:INFO|DEBUG|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b|\b\w+=\S|\d%\||^[IWEF]\d{4} |^\S+@\S+[:$#]|:\d{1,6}\b"
)
"""A level, a value by its name, a progress bar, a prompt, a line number: not what people write in texts."""
_MIN_DOCUMENT_LINES = 8
_MAX_LOGGED_SHARE, _MIN_WRITTEN_SHARE = 0.15, 0.4
"""Shares of a document's lines: of those that look as if a program printed them, of sentences, headings and lists."""


def _is_document(lines: Sequence[str]) -> bool:
    """Whether lines are of a text that people wrote: a README, notes, an answer to frequent questions."""
    texts = [line for line in lines if line.strip()]
    logged = sum(_LOGGED.search(line) is not None or _PRINTED_OUTSIDE_FENCES.search(line) is not None for line in texts)
    written = sum(_SENTENCE.search(line) is not None or _MARKUP.match(line) is not None for line in texts)
    is_long = len(texts) >= _MIN_DOCUMENT_LINES
    return is_long and logged <= len(texts) * _MAX_LOGGED_SHARE and written >= len(texts) * _MIN_WRITTEN_SHARE


def program_lines(lines: Sequence[str], *, whole: bool) -> tuple[list[str], list[str]]:
    """The lines without those that people wrote around a log and that speak of a failure; without all that they wrote.

    People wrote a document, a title, and what is outside a text's fences. ``whole``: the lines begin where the text
    does, so that the first fence opens a block.
    """
    fences = [at for at, raw in enumerate(lines) if _FENCE.match(raw) is not None]
    document, kept, printed = _is_document(lines), [], []
    for at, raw in enumerate(lines):
        before = sum(fence < at for fence in fences)
        outside = (before % 2 == 0) if whole else before == len(fences) == 1
        alone = _HEADING.match(raw) is not None and not any(map(_HEADING.match, lines[at + 1 : at + 2]))
        title = whole and at < _HEADING_LINES and alone
        written = document or (bool(fences) and (outside or alone))
        of_a_person = title or (written and _PRINTED_OUTSIDE_FENCES.search(raw) is None)
        printed += [raw] * (not of_a_person)
        kept += [raw] * (not of_a_person or not speaks_of_failure(undecorated(raw)))
    return kept, printed


_JOURNAL_LINE = re.compile(r"^\S{2,6} [ \d]?\d \d\d:\d\d:\d\d \S{1,80} (?P<program>[\w.@-]{1,80})(?:\[\d{1,10}\])?: ")
_GPU_WORDS = re.compile(
    r"nvidia|nvrm|\bnv-|cuda|\bgpu|\bxid|nouveau|\bdrm\b|amdgpu|dcgm|docker|containerd|kubelet|slurm|python|torch"
    r"|tensorflow",
    re.IGNORECASE,
)
_KERNEL_LINE = re.compile(r"^(?:kern +:\w+ +: )?\[ {0,8}\d{1,9}\.\d{6}\] ")
"""A line of dmesg."""
_XORG_LINE = re.compile(r"^\[ {0,8}\d{1,9}\.\d{3}\] \((?:II|WW|EE|NI|--|\*\*|==|\+\+|!!|\?\?)\) ")
_XORG_FAILED = re.compile(
    r"\(EE\) (?:NVIDIA|no screens found|Caught signal|Server terminated with error)|Fatal server error"
)
"""What ends an X server; its other lines marked (EE) are about parts that it does without."""
MIN_SERVICE_LINES = 20
"""Lines of a kernel or an X server that show it at work, if none is about a failure of a GPU."""
_MIN_JOURNAL_PROGRAMS = 3
"""Programs beside the kernel and systemd whose lines make a journal that of a whole machine."""


def service_lines(lines: Sequence[str]) -> list[str] | None:
    """In the log of a kernel or an X server, the lines that may be about a GPU failure; None for other logs."""
    if lines and all(map(_KERNEL_LINE.match, lines)):
        return [line for line in lines if _GPU_WORDS.search(line)]
    if sum(map(bool, map(_XORG_LINE.match, lines))) * 2 > len(lines):
        return [line for line in lines if _XORG_FAILED.search(line)]
    return None


def gpu_related_lines(lines: Sequence[str]) -> list[str]:
    """The lines; of a kernel, an X server or a whole machine only those about GPUs, their drivers, what uses them."""
    if (of_service := service_lines(lines)) is not None:
        return of_service
    programs = {found["program"] for line in lines if (found := _JOURNAL_LINE.match(line)) is not None}
    if len(programs - {"kernel", "systemd"}) < _MIN_JOURNAL_PROGRAMS:
        return list(lines)
    return [line for line in lines if _GPU_WORDS.search(line)]


_FIRST_LINE = re.compile(r"\S.{0,4000}? {3}gpuwatch run (?:·|-) ")
_TABLE_TITLE = re.compile(r"[A-Z][a-z]+(?: [a-z]+){0,5}$")
"""Title of a table; an empty line precedes it."""
_LAST_LINE_START = "written: "
_MAX_SUMMARY_LINES = 1000


def without_summaries(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a log; those of summaries are empty, or left out at its end. All lines if there are no others."""
    summary_lines, omitted, has_output = list[str](), 0, False
    before: str | None = None  # the previous line of the summary; None outside one
    for line in lines:
        if before is None:
            in_summary = "gpuwatch run " in line and _FIRST_LINE.match(line) is not None
        else:
            in_summary = (
                line[:1] in ("", " ", "\n")
                or line.startswith(_LAST_LINE_START)
                or _FIRST_LINE.match(before) is not None
            )
            in_summary = in_summary or (not before.strip() and _TABLE_TITLE.match(line) is not None)
        if in_summary:
            before, omitted = None if line.startswith(_LAST_LINE_START) else line, omitted + 1
            summary_lines += [line] * (len(summary_lines) < _MAX_SUMMARY_LINES)
            continue
        yield from [""] * omitted
        yield line
        before, omitted, has_output = None, 0, has_output or bool(line.strip())
    yield from summary_lines if not has_output else ()

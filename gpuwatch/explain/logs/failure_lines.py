"""Selects the line that describes a failure best: a report of several lines as one, the first line of a cluster.

Formats: GROMACS (``gmx_fatal``, ``gmx::printFatalErrorMessage``), Triton's table, CMake; Markdown with its fences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

from gpuwatch.explain.logs.failure_words import speaks_of_failure
from gpuwatch.explain.logs.line_text import undecorated, unwrapped

_MAX_LINE_CHARS = 1000
_MAX_LINES_AFTER_GROMACS = 9
"""Lines that may follow GROMACS's text, if it ends the log: where help is, a ruler, a quotation, what MPI says."""
_MAX_LINES_BETWEEN = 2
"""Lines without a word of failure that may stand between two lines of one cluster."""
_GROMACS = re.compile(r"Source (?:code )?file: .*\bline:? \d+\)?$")
_BESIDE_IT = ("Function: ", "MPI rank: ")
_ENDS_IT = ("----------", "For more information and tips")
_MODELS = re.compile(r"\| Model +\| Version +\| Status +\|$")
_FENCE = re.compile(r" {0,3}(?:> ?)*```[\w+-]{0,12}\s*$")
_HEADING = re.compile(r"#{1,4} \w")
_HEADING_LINES = 4
"""Lines at the beginning of a text among which its title is."""
_PRINTED = re.compile(
    r"\bInsufficient \w+\.com/|\bstuck\b|\bhangs?\b|\bfreez|^\S*(?:Error|Exception) ?: |^\s*File \"|\d\d:\d\d:\d\d"
    r"|^CMake |\.(?:cc|cpp|cu|py|c|h):\d|\b(?:error|fatal|ERROR|FATAL|WARN\w*): |^\[|^\s*\||^srun|^slurm|^Traceback"
)
"""What a program printed even where a text has no fences around it, or what only people can tell: that it hangs."""
_GOES_ON = re.compile(r"NCCL INFO .* -> \d+\b")
"""NCCL's return trace, printed between two lines about an error."""
_NAMES_NOTHING = re.compile(
    r":$|\b(?:abort|exit|quit)(?:ing|ed)\b|\bcode:? ?[#=]? ?-?\d+\W*$|exit (?:code|status)|^Error executing job"
    r"|(?:check|see|read) the (?:\w+ )?logs?\b|build stopped|^g?make|\bmore information\b|^-{2,}|^\+{1,3} ",
    re.IGNORECASE,
)
"""A heading of what follows it, what only follows from an error before, a shell's trace."""


def program_lines(lines: Sequence[str], *, whole: bool) -> tuple[list[str], list[str]]:
    """The lines without those in which people speak of a failure around a log: outside a text's fences, its title;
    and without all of theirs. ``whole``: the lines begin where the text does, so that the first fence opens a block.
    """
    fences = [at for at, raw in enumerate(lines) if _FENCE.match(raw) is not None]
    kept, printed = [], []
    for at, raw in enumerate(lines):
        before = sum(fence < at for fence in fences)
        outside = (before % 2 == 0) if whole else before == len(fences) == 1
        alone = _HEADING.match(raw) is not None and not any(map(_HEADING.match, lines[at + 1 : at + 2]))
        title = whole and at < _HEADING_LINES and alone
        said = title or (bool(fences) and (outside or alone) and _PRINTED.search(raw) is None)
        printed += [raw] * (not said)
        kept += [raw] * (not said or not speaks_of_failure(undecorated(raw)))
    return kept, printed


def report_line(lines: Sequence[str]) -> str:
    """The report of several lines with which GROMACS, Triton or CMake stopped, as one line; empty without one."""
    plain = [unwrapped(undecorated(raw[:_MAX_LINE_CHARS])) for raw in lines]
    for at in (at for at in range(len(plain) - 1, 0, -1) if _GROMACS.match(plain[at]) is not None):
        end = next((to for to in range(at + 1, len(plain)) if plain[to].startswith(_ENDS_IT)), len(plain))
        text = " ".join(line for line in plain[at + 1 : end] if not line.startswith(_BESIDE_IT))
        return f"{plain[at - 1]} \u2026 {text}" if text and len(plain) - end <= _MAX_LINES_AFTER_GROMACS else ""
    table = [line.strip("> \r\n") for line in lines]
    begun = max((at for at, line in enumerate(table) if _MODELS.match(line) is not None), default=len(table))
    rows = takewhile(lambda line: line.startswith(("|", "+")), table[begun + 1 :])
    if refused := next((line for line in rows if "UNAVAILABLE" in line), ""):
        return refused
    begun = next((at for at, line in enumerate(plain) if line.startswith("CMake Error")), len(plain))
    end = next((at for at in range(begun + 1, len(plain)) if lines[at][:1] not in (" ", "\t")), len(plain))
    return " ".join(plain[begun:end])


def first_failed_line(lines: Sequence[str], failed: str, fails: Callable[[str], bool]) -> str:
    """The first line that names what failed of those that end with ``failed``; ``failed`` itself without another."""
    plain = [undecorated(raw.rstrip("\r\n").rpartition("\r")[2][:_MAX_LINE_CHARS]) for raw in lines if raw.strip()]
    first, apart = failed, 0
    for line in reversed(plain[: max((at for at, line in enumerate(plain) if line == failed), default=0)]):
        if fails(line):
            first, apart = (line if _NAMES_NOTHING.search(line) is None else first), 0
        elif _GOES_ON.search(line) is None and (apart := apart + 1) > _MAX_LINES_BETWEEN:
            break
    return first

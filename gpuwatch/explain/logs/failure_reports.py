"""Which of several lines describes a failure best: a report of several lines as one, the first line of a cluster.

Formats: GROMACS (``gmx_fatal``, ``gmx::printFatalErrorMessage``), Triton's table, CMake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from gpuwatch.explain.logs.failure_lines import reports_failure
from gpuwatch.explain.logs.line_prefixes import bare_message, last_bar_state, undecorated

_MAX_READ_CHARS = 1000
_MAX_LINES_AFTER_GROMACS = 9
"""Lines that may follow GROMACS's text, if it ends the log: where help is, a ruler, a quotation, what MPI says."""
_MAX_LINES_BETWEEN = 2
"""Lines without a word of failure that may stand between two lines of one cluster."""
_GROMACS = re.compile(r"Source (?:code )?file: .*\bline:? \d+\)?$")
_BESIDE_IT = ("Function: ", "MPI rank: ")
_ENDS_IT = ("----------", "For more information and tips")
_MODELS = re.compile(r"\| Model +\| Version +\| Status +\|$")
_GOES_ON = re.compile(r"NCCL INFO .* -> \d+\b")
"""NCCL's return trace, printed between two lines about an error."""
_NAMES_NOTHING = re.compile(
    r":$|\b(?:abort|exit|quit)(?:ing|ed)\b|\bcode:? ?[#=]? ?-?\d+\W*$|exit (?:code|status)|^Error executing job"
    r"|(?:check|see|read) the (?:\w+ )?logs?\b|build stopped|^g?make|\bmore information\b|^-{2,}|^\+{1,3} ",
    re.IGNORECASE,
)
"""A heading of what follows it, what only follows from an error before, a shell's trace."""


def report_line(lines: Sequence[str]) -> str:
    """The report of several lines with which GROMACS, Triton or CMake stopped, as one line; empty without one."""
    plain = [bare_message(raw, _MAX_READ_CHARS) for raw in lines]
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


def first_failed_line(lines: Sequence[str], failed: str) -> str:
    """The first line that names what failed of those that end with ``failed``; ``failed`` itself without another."""
    plain = [undecorated(last_bar_state(raw)[:_MAX_READ_CHARS]) for raw in lines if raw.strip()]
    first, apart = failed, 0
    for line in reversed(plain[: max((at for at, line in enumerate(plain) if line == failed), default=0)]):
        if reports_failure(line):
            first, apart = (line if _NAMES_NOTHING.search(line) is None else first), 0
        elif _GOES_ON.search(line) is None and (apart := apart + 1) > _MAX_LINES_BETWEEN:
            break
    return first

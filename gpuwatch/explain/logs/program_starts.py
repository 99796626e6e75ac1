"""Several starts of programs that wrote to one log, of which the last counts.

A start is recognized by what the log begins with: its first lines come again, digits aside, soon after an error. Lines
that come again before any error do not mark a start: ranks and workers print them, too. After an error, a start is also
what a shell, a server or Python prints once per program (:class:`~.program_start_after_error.ProgramStartLines`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import LogParser
from gpuwatch.explain.logs.reported_ends import is_about_child
from gpuwatch.explain.logs.tracebacks import TRACEBACK

_HEAD_LINES = 3
"""Lines at the beginning of a log that must come again."""
_MIN_LINE_CHARS = 8
"""Shorter lines, without digits and spaces, do not tell one program's output from another's."""
_SAME_START_LINES = 500
"""Lines at the beginning of a log in which ranks and workers print the same lines as the first of them."""
_NEAR_END_LINES = 20
"""An error ended a start if at most so many lines follow it."""
_MAX_PROGRAMS = 16
"""Programs of one log that are distinguished, at most."""
_LSF_REPORT = "Sender: LSF System"
"""LSF's report, with which a log may begin, follows the job that it is about."""
_DATE = re.compile(r"^\w{3} \w{3} +\d{1,2} [\d:]{8} (?:\w{2,5} )?\d{4}\s*$")
"""What date(1) and nvidia-smi print first; its words differ from day to day."""
_PROGRESS_BAR = re.compile(r"\d%\|")
"""A progress bar, whose last state a program prints once more as it ends."""
_STEP_FAILED = re.compile(
    r"\b(?:step|stage|script|command|process|subprocess|job|pipeline|training|evaluation)\b"
    r".{0,80}(?:\bfail(?:ed|ure)?\b|\bexit(?:ed)?\b|\breturn code\b|\bnon-zero\b)",
    re.IGNORECASE,
)
"""What a program says of another one that it has started."""
_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_DIGITS_TO_NEWLINES = dict.fromkeys(_DIGITS, "\n")


class _FirstLines:
    """The first lines of a log, which come again when its program is started again."""

    def __init__(self) -> None:
        self.needed_text: str | None = ""
        """What a line must contain for :meth:`take`; None: no line is wanted."""
        self._lines: list[str] = []
        self._longest = ""
        """What the first line has between two digits, at most."""
        self._matching_lines: list[str] = []
        """Lines that may begin a start."""
        self._matched = 0
        self._found_before = False
        """Whether a start was found: then these lines begin each, also after one without an error."""
        self._lines_needed = _HEAD_LINES
        """Lines that must come again: fewer if the first start failed after them."""

    def take(self, line: str, parser: LogParser) -> list[str] | None:
        """The lines before this one, with which it begins a new start; None if it does not."""
        # Words with digits differ from start to start: times, paths, ids.
        text = " ".join(word for word in line.split() if word.translate(_DIGITS) == word)
        if not text or _PROGRESS_BAR.search(line) is not None:
            self._matching_lines += [line] * bool(self._matching_lines)
            return None
        lines_since_error = parser.lines_since_error
        if len(self._lines) < self._lines_needed:
            self._add_first_line(line, text, lines_since_error)
            return None
        if text == self._lines[self._matched]:
            self._matched += 1
            self._matching_lines.append(line)
        else:
            self._matched = int(text == self._lines[0])
            self._matching_lines = [line] * self._matched
        self.needed_text = "" if self._matched else self._longest
        if not self._matched:
            return None
        no_start_so_far = lines_since_error is None and not self._found_before
        if no_start_so_far and self._matched > 1 and parser.facts.line_count < _SAME_START_LINES:
            self.needed_text = None  # one line may be a table's rule
        if self._matched < self._lines_needed or self.needed_text is None:
            return None
        before, self._matching_lines, self._matched, self.needed_text = self._matching_lines[:-1], [], 0, self._longest
        after_error = lines_since_error is not None and lines_since_error <= _NEAR_END_LINES
        self._found_before |= after_error and self._lines_needed == _HEAD_LINES
        return before if self._found_before or after_error else None

    def _add_first_line(self, line: str, text: str, lines_since_error: int | None) -> None:
        if not self._lines and _DATE.match(line):
            return
        if not self._lines:
            self._longest = max(line.translate(_DIGITS_TO_NEWLINES).split("\n"), key=len)
        if self._lines and TRACEBACK in line and lines_since_error is None:
            self._lines_needed, self._matched = len(self._lines), 0
            self.needed_text = self._longest if len("".join(self._longest.split())) >= _MIN_LINE_CHARS else None
            return
        self._lines.append(text)
        if lines_since_error is not None or TRACEBACK in line or _LSF_REPORT in line:
            self.needed_text = None
        elif len(self._lines) == _HEAD_LINES:
            distinctive = len({*self._lines}) > 1 and len("".join(self._longest.split())) >= _MIN_LINE_CHARS
            self.needed_text = self._longest if distinctive else None


class LogReader:
    """Parses a log of one or several starts: the parser of the last one, and the facts of those before it."""

    def __init__(self) -> None:
        self.parser = LogParser()
        self.earlier: LogFacts | None = None
        """The facts of the start before the last, or of that which it follows from; None if there is only one."""
        self.programs: dict[str, LogFacts] = {}
        """The facts of the last start of each program whose name is known, but for the last of all."""
        self.start_count = 1
        """Starts that were seen."""
        self.first_line = 0
        """Number of the last start's first line."""
        self._first_lines = _FirstLines()

    def feed(self, line: str) -> None:
        """Takes one line; if it shows that another start began, that gets a parser of its own."""
        text = self._first_lines.needed_text
        if text is not None and text in line and (begun := self._first_lines.take(line, self.parser)) is not None:
            self._start(begun)
        self.parser.feed(line)
        if self.parser.start_lines:
            self._start(self.parser.start_lines, rewind=True)
            self.parser.start_lines = []

    def _start(self, lines: Sequence[str], *, rewind: bool = False) -> None:
        """The last ``lines`` begin a start. ``rewind``: so may lines before them, after the end of a program."""
        before = self.parser.facts.line_count - len(lines)
        if rewind:
            self.parser.rewind()
        self.parser.close()
        facts = self.parser.facts
        if self.earlier is None or not is_consequence(facts, self.earlier):
            self.earlier = facts
        if (name := self.parser.program) and (name in self.programs or len(self.programs) < _MAX_PROGRAMS):
            self.programs.pop(name, None)
            self.programs[name] = facts
        self.first_line, self.start_count = before + 1, self.start_count + 1
        self.parser = LogParser(before)
        for line in lines:
            self.parser.feed(line)


def is_consequence(later: LogFacts, earlier: LogFacts) -> bool:
    """Whether a program failed because an earlier one had: it started that one, or lacks a file that it may write."""
    if not later.errors or not earlier.errors or earlier.errors[-1].type == "KeyboardInterrupt":
        return False  # a person who ends a program starts it anew, or another one
    last = later.errors[-1]
    if later.frame is None or earlier.frame is None or later.frame.file == earlier.frame.file:
        return False
    started = is_about_child(last.type, last.message) or _STEP_FAILED.search(last.message) is not None
    return started or last.type == "FileNotFoundError"

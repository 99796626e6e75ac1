"""Whether a program went on after an error: its logger's lines of later steps.

Only lines of a logger count, of level INFO, with steps that advance, or requests that a server answered. What a program
prints proves nothing: Python writes stdout late when it goes to a file, so a traceback stands before older prints. Nor
do other lines at INFO: a program that fails also logs that it saves, cleans up and exits.
"""

from __future__ import annotations

import re
from collections import Counter

from gpuwatch.explain.logs.line_prefixes import rank_prefix
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.progress_and_success_patterns import SERVES

_MAX_LINES = 2000
"""Lines after an error that are looked at."""
_HEAD_LINES = 3000
"""Lines at the start of a log in which steps are looked for."""
_MAX_LINE_CHARS = 300
"""Only the first characters of a line are examined."""
_FORM_LETTERS = 16
_MAX_STEP_LINES, _MAX_FEW_LINES = 100, 2
"""Lines of steps before the first error that are looked at; a few are not all the forms that a program prints."""
MIN_MANY_STEPS = 10
"""Steps after which even the ranks of a job, which wait for each other, show that none of them failed."""
_INFO = re.compile(r"^.{0,80}?(?:\b(?:INFO|SUCCESS)\b|\"info\"|level=info|\[I \d{4}-)|^(?:\S{1,40} )?I\d{4} [\d:.]+ ")
_STEP = re.compile(
    r"\b(?:epoch|(?:global_?)?step|iter(?:ation)?|batch|trial)\b[\s\"':=#\[(]{0,4}(?P<number>\d{1,9})\b", re.IGNORECASE
)
_PRINTED = re.compile(
    r"\b(?:epoch|step|iter(?:ation)?|batch|loss|acc(?:uracy)?)\b.*\d|(?<![/\d])\d+/\d+(?![/\d])|\dit/s", re.IGNORECASE
)
_HINTS = (
    "step", "trial", "epoch", "iter", "batch", "loss", "acc", "/", "finish", "done", "complete", "slot", "prompt",
    "gui", "app] ",
)  # fmt: skip
"""One of these is in each line that the patterns find."""
_SUMMARY = re.compile(r"wandb: |\d%\||^\s*File \"|\bframe #\d")
"""What stands at the end of a program that failed, too: Weights & Biases' summary, a progress bar's last state."""
_BAR = re.compile(r"\b(?P<number>\d{1,9})/(?P<most>\d{1,9}) \[")
_MIN_BAR_ADVANCES, _MAX_BAR_STATES = 3, 50
"""States of a progress bar that show work: the bars of other ranks may advance once or twice."""
_ASKED, _ANSWERED = "got prompt", re.compile(r"Prompt executed in (?!0\.0)\d")
"""ComfyUI's begin and end of a prompt; a prompt that failed has the latter, too."""
_SERVER_STARTED = re.compile(r"Application startup complete|To see the GUI go to: ")
_FINISHED = re.compile(r"\b(?:training|evaluation|run|job) (?:is |has )?(?:finished|completed?|done)\b", re.IGNORECASE)
_SERVES = re.compile(SERVES)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_BROKEN = re.compile(r"HTTP/\d(?:\.\d)?\" 5\d\d\b")
"""The answer to a request in which the server itself had an error: it lives."""
_ANSWERED_WELL = re.compile(r"\"POST \S{1,300} HTTP/\d(?:\.\d)?\" 20\d\b")
_REJECTED = re.compile(r"HTTP/\d(?:\.\d)?\" 4\d\d\b")
"""The answer to a request that the server could not fulfil: the error was the request's."""
_AT_AN_END = re.compile(
    r"\b(?:sav|writ|checkpoint|emergency|resum|restart|shut|exit|clean|stop|abort|kill|fail|error|clos)",
    re.IGNORECASE,
)
"""Lines with these words may name a step after which the program ended."""


def _form(line: str) -> str:
    """The first letters of a line, which those of one kind have in common."""
    return "".join(filter(str.isalpha, line[:_MAX_LINE_CHARS]))[:_FORM_LETTERS]


class WorkAfterError:
    """Takes the lines after an error; ``steps`` counts those that show work."""

    def __init__(self, facts: LogFacts) -> None:
        self._facts = facts
        self.open = False
        """Whether :meth:`take` wants lines."""
        self.steps = 0
        self.unused = True
        """Whether :meth:`before` wants lines."""
        self._stepped_before = False
        self._forms: Counter[str] = Counter()
        """How many lines of steps before the first error have this form."""
        self._foreign = False
        """Whether the program has ended, so that lines count only after one of these forms: another start of it."""
        self.answered_well = 0
        """Requests that it answered after the error as they were meant."""
        self._head = _HEAD_LINES
        self._left = 0
        self._rank = ""
        self._late = False
        self._latest = self._bar = -1
        self.advances = 0
        """States of a progress bar since, each beyond the one before."""
        self._finished = self._asked = self._filled = False
        self._begun = 0

    @property
    def outlived(self) -> int:
        """The number of the error's line, if work followed, of whichever start; else 0."""
        facts = self._facts
        worked = self.went_on or facts.steps_printed_after_error > _MAX_FEW_LINES or facts.other_program_worked
        return self._begun if worked else 0

    def before(self, line: str) -> None:
        """Takes a line before the first error."""
        self._head -= 1
        if _STEP.search(line[:_MAX_LINE_CHARS]) is not None:
            self._forms[_form(line)] += 1
        self.unused = self._head > 0 and self._forms.total() < _MAX_STEP_LINES
        self._stepped_before = self._head == 0 or bool(self._forms)

    def begin(self, line: str, number: int, *, ended: bool) -> None:
        """``line``, as it is, is an error, which ``ended`` the program: what went on after earlier ones counts no
        more."""
        self._begun = number
        self.open, self._left, self._rank = True, _MAX_LINES, rank_prefix(line)
        self._foreign, self._facts.other_program_worked = ended and self._forms.total() > _MAX_FEW_LINES, False
        self.again()

    def again(self) -> None:
        """Another error of the same process: steps before it count no more."""
        self._stepped_before |= self._facts.steps_printed_after_error > 0
        self.steps, self._facts.steps_printed_after_error, self._latest, self._finished = 0, 0, -1, False
        self._late = self._asked = False
        self._bar, self.advances, self._filled = -1, 0, False
        self._facts.server_answered_after_error = False
        self.answered_well = 0

    def take(self, line: str) -> None:
        """Takes a line after the error, of a progress bar its last states."""
        self._left -= 1
        for piece in line.rstrip("\r\n").split("\r")[-_MAX_BAR_STATES:] if "\r" in line else (line,):
            self._piece(piece)

    def _piece(self, line: str) -> None:
        facts = self._facts
        self.open = self._left > 0 and self.steps < MIN_MANY_STEPS
        line = line[:_MAX_LINE_CHARS] if "\x1b" not in line else _ANSI.sub("", line[:_MAX_LINE_CHARS])
        lower = line.lower()
        if not any(word in lower for word in _HINTS):
            return
        if _SERVER_STARTED.search(line) or (self._asked and _ANSWERED.search(line)):
            self.steps += 2
            return
        if rank_prefix(line) != self._rank:
            return
        if (bar := _BAR.search(line)) is not None:
            # Bars are on stderr, as tracebacks are: in the order of time.
            self.advances += 0 <= self._bar < int(bar["number"])
            self._bar = int(bar["number"])
            facts.steps_printed_after_error += self.advances == _MIN_BAR_ADVANCES and not self._foreign
            self._filled |= self.advances >= _MIN_BAR_ADVANCES and bar["number"] == bar["most"]
        if self._foreign:
            steps = _STEP.search(line) is not None
            self._foreign = not steps or _form(line) not in self._forms
            closed = bar is not None and self.advances < _MIN_BAR_ADVANCES  # as the program that ended left it
            facts.other_program_worked = self._foreign and (facts.other_program_worked or (steps and not closed))
            if self._foreign:
                return
        self._asked |= _ASKED in line
        step = _STEP.search(line)
        if (
            not facts.steps_printed_after_error
            and not self._stepped_before
            and step is not None
            and int(step["number"]) <= 1
        ):
            self._late = True
        if not self._late and _PRINTED.search(line) and not _SUMMARY.search(line):
            facts.steps_printed_after_error += 1
        facts.server_answered_after_error |= _BROKEN.search(line) is not None
        if _SERVES.search(line) is not None:
            self.answered_well += _ANSWERED_WELL.search(line) is not None
            self.steps += 1 + (_REJECTED.search(line) is not None)
            return
        if _INFO.search(line) is None:
            return
        if _FINISHED.search(line):
            self._finished = True
        elif step is not None and not _AT_AN_END.search(line) and int(step["number"]) > self._latest:
            self._latest = int(step["number"])
            self.steps += 1

    @property
    def went_on(self) -> bool:
        """Whether two steps advanced after the error, or one and the end of the work, or a progress bar to its end."""
        return self.steps + (self._finished and self.steps > 0) > 1 or self._filled

"""Whether a program went on after an error: its logger's lines of later steps.

Only lines of a logger count, of level INFO, with steps that advance, or requests that a server answered. What a program
prints proves nothing: Python writes stdout late when it goes to a file, so a traceback stands before older prints. Nor
do other lines at INFO: a program that fails also logs that it saves, cleans up and exits.
"""

from __future__ import annotations

import re

_LINES = 2000
"""Lines after an error that are looked at."""
MANY_STEPS = 10
"""Steps after which even the ranks of a job, which wait for each other, show that none of them failed."""
_INFO = re.compile(r"^.{0,80}?(?:\b(?:INFO|SUCCESS)\b|\"info\"|level=info)|^(?:\S{1,40} )?I\d{4} [\d:.]+ ")
_STEP = re.compile(
    r"\b(?:epoch|(?:global_?)?step|iter(?:ation)?|batch)\b[\s\"':=#\[(]{0,4}(?P<number>\d{1,9})\b", re.IGNORECASE
)
_FINISHED = re.compile(r"\b(?:training|evaluation|run|job) (?:is |has )?(?:finished|completed?|done)\b", re.IGNORECASE)
_ANSWERED = re.compile(r"HTTP/\d(?:\.\d)?\" 200\b")
_AT_AN_END = re.compile(
    r"\b(?:sav|writ|checkpoint|emergency|resum|restart|shut|exit|clean|stop|abort|kill|fail|error|clos|last|best)",
    re.IGNORECASE,
)
"""Lines with these words may name a step after which the program ended."""
_RANK = re.compile(
    r"\[?rank:? ?\d+\]?|\[default\d+\]|\((?:[\w.:-]+ )?pid=\d+|\[\d+,\d+\]<std\w+>|\[\d+\](?=:)|\d{1,5}(?=: )"
    r"|[\w.-]{1,60}(?= +\|)"
)
"""The prefix of one of several processes: only the same process's lines count."""


class WorkAfterError:
    """Takes the lines after an error; ``steps`` counts those that show work."""

    def __init__(self) -> None:
        self.open = False
        """Whether :meth:`take` wants lines."""
        self.steps = 0
        self._left = 0
        self._rank = ""
        self._latest = -1
        self._finished = False

    def begin(self, line: str) -> None:
        """``line``, as it is, is an error: what went on after earlier ones counts no more."""
        self.open, self._left, self._rank = True, _LINES, _rank(line)
        self.again()

    def again(self) -> None:
        """Another error of the same process: steps before it count no more."""
        self.steps, self._latest, self._finished = 0, -1, False

    def take(self, line: str) -> None:
        """Takes a line after the error."""
        self._left -= 1
        self.open = self._left > 0
        if _INFO.search(line) is None or _rank(line) != self._rank:
            return
        step = _STEP.search(line)
        if _FINISHED.search(line):
            self._finished = True
        elif step is not None and not _AT_AN_END.search(line):
            if int(step["number"]) > self._latest:
                self._latest = int(step["number"])
                self.steps += 1
        elif _ANSWERED.search(line):
            self.steps += 1

    @property
    def went_on(self) -> bool:
        """Whether two steps advanced after the error, or one and the end of the work."""
        return self.steps + (self._finished and self.steps > 0) > 1


def _rank(line: str) -> str:
    found = _RANK.match(line.lstrip())
    return found[0] if found is not None else ""

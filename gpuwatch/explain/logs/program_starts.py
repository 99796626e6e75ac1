"""Several starts of a program that wrote to one log, of which the last counts.

A start is recognised by what the log begins with: its first lines come again, digits aside, soon after an error. Lines
that come again before any error do not mark a start: ranks and workers print them, too.
"""

from __future__ import annotations

from gpuwatch.explain.logs.exceptions import TRACEBACK
from gpuwatch.explain.logs.facts import LogFacts
from gpuwatch.explain.logs.log_parser import LogParser

_HEAD = 3
"""Lines at the beginning of a log that must come again."""
_SHORTEST = 8
"""Shorter lines, without digits and spaces, do not tell one program's output from another's."""
_NEAR = 20
"""An error ended a start if at most so many lines follow it."""
_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_CUT = dict.fromkeys(_DIGITS, "\n")


class _Heads:
    """Takes the lines of a log that contain :attr:`key`."""

    def __init__(self) -> None:
        self.key: str | None = ""
        """What a line must contain for :meth:`again`; None: no line is wanted."""
        self._head: list[str] = []
        self._longest = ""
        """What the first line has between two digits, at most."""
        self._seen: list[str] = []
        """Lines that may begin a start."""
        self._matched = 0
        self._known = False
        """Whether a start was found: then these lines begin each, also after one without an error."""

    def again(self, line: str, parser: LogParser) -> list[str]:
        """The lines before this one, with which it begins a new start; empty if it does not."""
        text = line.translate(_DIGITS).strip()
        if not text:
            self._seen += [line] * bool(self._seen)
            return []
        since_error = parser.since_error
        if len(self._head) < _HEAD:
            self._begin(line, text, since_error)
            return []
        if text == self._head[self._matched]:
            self._matched += 1
            self._seen.append(line)
        else:
            self._matched = int(text == self._head[0])
            self._seen = [line] * self._matched
        self.key = "" if self._matched else self._longest
        if not self._matched:
            return []
        if since_error is None and not self._known:
            self.key = None
            return []
        if self._matched < _HEAD:
            return []
        before, self._seen, self._matched, self.key = self._seen[:-1], [], 0, self._longest
        self._known |= since_error is not None and since_error <= _NEAR
        return before if self._known else []

    def _begin(self, line: str, text: str, since_error: int | None) -> None:
        if not self._head:
            self._longest = max(line.translate(_CUT).split("\n"), key=len)
        self._head.append(text)
        if since_error is not None or TRACEBACK in line:
            self.key = None
        elif len(self._head) == _HEAD:
            telling = len({*self._head}) > 1 and len("".join(self._longest.split())) >= _SHORTEST
            self.key = self._longest if telling else None


class LogReader:
    """The parser of the last start that was read, and what the one before it was about."""

    def __init__(self) -> None:
        self.parser = LogParser()
        self.earlier: LogFacts | None = None
        """The facts of the start before the last; None if there is only one."""
        self.count = 1
        """Starts that were seen."""
        self.first = 0
        """Number of the last start's first line."""
        self._heads = _Heads()

    @property
    def key(self) -> str | None:
        """What a line must contain for :meth:`begins`; None: no line is wanted."""
        return self._heads.key

    def begins(self, line: str) -> bool:
        """Whether a line, which is not parsed yet, shows that another start began: then its parser is a new one."""
        begun = self._heads.again(line, self.parser)
        if not begun:
            return False
        self.parser.close()
        self.earlier, self.count = self.parser.facts, self.count + 1
        before = self.earlier.lines - len(begun)
        self.first, self.parser = before + 1, LogParser(before)
        for one in begun:
            self.parser.feed(one)
        return True

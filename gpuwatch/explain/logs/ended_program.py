"""What came since an exception ended a program: if the program raises again, it is of another start of it."""

from __future__ import annotations

import re
from collections import deque

from gpuwatch.explain.logs.clean import rank_of

_KEPT = 2000
"""Lines before a traceback that are read again, as those of another start."""
_APART, _OF_THE_END = 20, 8
"""Lines that are between the ends of two starts, at least, and of them those that may belong to the first end."""
_OF_RANKS = re.compile(
    r"torchrun|torch[./]distributed|\b(?:local_)?rank\b|world_size|nccl|gloo|deepspeed|\baccelerate\b|mpirun|horovod",
    re.IGNORECASE,
)
"""Words of jobs whose processes fail together."""


class EndedProgram:
    """Keeps lines if an exception ended the program, with a traceback that passed through its main module."""

    def __init__(self, last: deque[str]) -> None:
        """``last``: the last lines of the log."""
        self._last = last
        self.since: deque[str] | None = None
        """The lines since then; None if none did."""
        self.at = 0
        """The number of the line at which it ended, if another start of it follows."""
        self._until: list[str] = []

    def error(self, at: int) -> None:
        """An exception is in line ``at``, and ended the program; 0: it did not."""
        self.at, self.since = at, deque(maxlen=_KEPT) if at else None
        self._until = [*self._last] if at else []

    def keep(self, line: str) -> None:
        """Takes a line after the end."""
        self._last.append(line)
        if self.since is not None:
            self.since.append(line)

    def again(self, traceback: str, line: str, *, renamed: bool) -> list[str]:
        """The lines with which the start begins whose traceback does; empty if it may be of a rank.

        ``renamed``: it is of a program of another name.
        """
        since = self.since or ()
        if renamed:
            self.at = 0  # of what came between nothing is known
            return [traceback, line]
        if len(since) <= _APART or rank_of(traceback) or any(map(_OF_RANKS.search, since)):
            return []
        return [*since][_OF_THE_END:]

    def restore(self) -> None:
        """Makes the last lines those until the end."""
        self._last.clear()
        self._last.extend(self._until)

"""Who started the processes that are shown: their parents, up to the first process of the machine.

One small file of /proc for each process that is new, and for all of them every five seconds, because a
process whose parent ends gets another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpuwatch.model.snapshot import Ancestor
from gpuwatch.sources.host import ProcessTable

EVERY = 5.0
_FIRST = 1
"""The first process adopts orphans and is everybody's ancestor: it says nothing."""

_LONGEST = 1000
"""Characters that are kept of a command line: some launchers are given their whole configuration there."""


class Ancestry:
    """Keeps the tree between two looks; ``table`` knows the rest about a process."""

    def __init__(self, table: ProcessTable, *, proc: str = "/proc") -> None:
        self._table = table
        self._proc = proc
        self._at = float("-inf")
        self._shown: set[int] | None = None
        self._known: dict[int, int] = {}
        """Parents of all that were ever looked at and are still needed."""
        self.parents: dict[int, int] = {}
        """Parent by pid: of the processes that are shown, and of their ancestors."""
        self.ancestors: tuple[Ancestor, ...] = ()
        """By pid. Those that are shown themselves are not among them."""

    @property
    def pids(self) -> set[int]:
        """The processes of which ``table`` must keep what it knows."""
        return {one.pid for one in self.ancestors}

    def look(self, now: float, shown: Iterable[int]) -> None:
        """Brings the tree up to date; ``now`` is monotonic."""
        wanted = set(shown)
        if now - self._at >= EVERY:
            self._at = now
            self._known.clear()
        elif wanted == self._shown:
            return
        self._shown = wanted
        parents: dict[int, int] = {}
        above: set[int] = set()
        for pid in wanted:
            at = pid
            while at not in parents:
                parent = self._parent(at)
                if parent is None or parent <= _FIRST:
                    break
                parents[at] = parent
                if parent not in wanted:
                    above.add(parent)
                at = parent
        self._known = {pid: self._known[pid] for pid in wanted | above if pid in self._known}
        ancestors = tuple(one for pid in sorted(above) if (one := self._described(pid, now)) is not None)
        # The same objects where nothing has changed: comparing them then costs nothing.
        if parents != self.parents:
            self.parents = parents
        if ancestors != self.ancestors:
            self.ancestors = ancestors

    def _parent(self, pid: int) -> int | None:
        if pid not in self._known:
            try:
                fields = Path(self._proc, str(pid), "stat").read_bytes().rpartition(b")")[2].split()
                self._known[pid] = int(fields[1])
            except (OSError, IndexError, ValueError):
                return None
        return self._known[pid]

    def _described(self, pid: int, now: float) -> Ancestor | None:
        facts = self._table.look(pid, now)
        if facts is None:
            return None
        return Ancestor(pid=pid, create_time=facts.create_time, user=facts.user, command=facts.command, name=facts.name)

"""Who started the processes that are shown: their parents, up to the first process of the machine.

One small file of /proc for each process that is new. Every five seconds it is looked whether the parents
are still there: a process gets another one only when its own ends.
"""

from __future__ import annotations

from collections.abc import Iterable

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
        self._known: dict[int, tuple[int | None, int, int | None]] = {}
        """Of all that were ever looked at and are still needed: when it began, its parent, when that one began."""
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
            began = {
                pid: self._began(pid, now) for pid in {*self._known, *(known[1] for known in self._known.values())}
            }
            self._known = {
                pid: known
                for pid, known in self._known.items()
                if began[pid] == known[0] and began[known[1]] == known[2]
            }
        elif wanted == self._shown:
            return
        self._shown = wanted
        parents: dict[int, int] = {}
        above: set[int] = set()
        for pid in wanted:
            at = pid
            while at not in parents:
                parent = self._parent(at, now)
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

    def _parent(self, pid: int, now: float) -> int | None:
        if pid not in self._known:
            try:
                with open(f"{self._proc}/{pid}/stat", "rb", buffering=0) as file:
                    parent = int(file.read(4096).rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                return None
            self._known[pid] = (self._began(pid, now), parent, self._began(parent, now))
        return self._known[pid][1]

    def _began(self, pid: int, now: float) -> int | None:
        """What tells a process from another one that was given its number; the first process is always itself."""
        facts = self._table.look(pid, now) if pid > _FIRST else None
        return None if facts is None else facts.start_ticks

    def _described(self, pid: int, now: float) -> Ancestor | None:
        facts = self._table.look(pid, now)
        if facts is None:
            return None
        return Ancestor(pid=pid, create_time=facts.create_time, user=facts.user, command=facts.command, name=facts.name)

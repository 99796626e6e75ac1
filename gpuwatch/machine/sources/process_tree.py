"""The parents and ancestors of the processes that are shown.

Each new process costs one small file of /proc. Every five seconds the parents are checked: a process gets a new
parent only when its own exits.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.core.model.snapshot import Ancestor
from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.machine.sources.procfs import process_stat

POLL_SECONDS = 5.0
_FIRST_PID = 1
"""The pid of the first process. It adopts orphans and is everybody's ancestor, so it is left out."""


class ProcessTree:
    """The tree of processes, kept between two looks; ``table`` has the other facts of a process."""

    def __init__(self, table: ProcessTable, *, proc: str = "/proc") -> None:
        self._table = table
        self._proc = proc
        self._at = float("-inf")
        self._shown: set[int] | None = None
        self._known: dict[int, tuple[int | None, int, int | None]] = {}
        """By pid: start ticks, parent, and start ticks of the parent."""
        self.parents: dict[int, int] = {}
        """Parent by pid, of the shown processes and their ancestors."""
        self.ancestors: tuple[Ancestor, ...] = ()
        """Sorted by pid, without the shown processes."""

    @property
    def pids(self) -> set[int]:
        """The processes of which ``table`` must keep what it knows."""
        return {ancestor.pid for ancestor in self.ancestors}

    def update(self, now: float, shown: Iterable[int]) -> None:
        """Updates the tree; ``now`` is monotonic, ``shown`` are pids."""
        wanted = set(shown)
        if now - self._at >= POLL_SECONDS:
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
                if parent is None or parent <= _FIRST_PID:
                    break
                parents[at] = parent
                if parent not in wanted:
                    above.add(parent)
                at = parent
        self._known = {pid: self._known[pid] for pid in wanted | above if pid in self._known}
        ancestors = tuple(ancestor for pid in sorted(above) if (ancestor := self._described(pid, now)) is not None)
        # The same objects if nothing changed, so that comparing them is cheap.
        if parents != self.parents:
            self.parents = parents
        if ancestors != self.ancestors:
            self.ancestors = ancestors

    def _parent(self, pid: int, now: float) -> int | None:
        if pid not in self._known:
            stat = process_stat(pid, self._proc)
            if stat is None:
                return None
            self._known[pid] = (self._began(pid, now), stat.parent, self._began(stat.parent, now))
        return self._known[pid][1]

    def _began(self, pid: int, now: float) -> int | None:
        """Start ticks, which distinguish a process from a later one with the same pid; None for the first process."""
        facts = self._table.facts_of(pid, now) if pid > _FIRST_PID else None
        return None if facts is None else facts.start_ticks

    def _described(self, pid: int, now: float) -> Ancestor | None:
        facts = self._table.facts_of(pid, now)
        if facts is None:
            return None
        return Ancestor(pid=pid, create_time=facts.create_time, user=facts.user, command=facts.command, name=facts.name)

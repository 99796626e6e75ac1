"""The parents and ancestors of the processes that are shown.

Each new process costs one small file of /proc. Every five seconds the parents are checked: a process gets a new
parent only when its own exits.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.core.model.snapshot import Ancestor
from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.machine.sources.procfs import FIRST_PID, process_stat

POLL_SECONDS = 5.0


class ProcessTree:
    """The tree of processes, kept between two looks; ``table`` has the other facts of a process."""

    def __init__(self, table: ProcessTable, *, proc: str = "/proc") -> None:
        self._table = table
        self._proc = proc
        self._checked_at = float("-inf")
        self._shown_pids: set[int] | None = None
        self._parents_by_pid: dict[int, tuple[int | None, int, int | None]] = {}
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
        if now - self._checked_at >= POLL_SECONDS:
            self._checked_at = now
            start_ticks = {
                pid: self._start_ticks(pid, now)
                for pid in {*self._parents_by_pid, *(entry[1] for entry in self._parents_by_pid.values())}
            }
            self._parents_by_pid = {
                pid: entry
                for pid, entry in self._parents_by_pid.items()
                if start_ticks[pid] == entry[0] and start_ticks[entry[1]] == entry[2]
            }
        elif wanted == self._shown_pids:
            return
        self._shown_pids = wanted
        parents: dict[int, int] = {}
        ancestor_pids: set[int] = set()
        for pid in wanted:
            descendant = pid
            while descendant not in parents:
                parent = self._parent(descendant, now)
                if parent is None or parent <= FIRST_PID:  # everybody's ancestor
                    break
                parents[descendant] = parent
                if parent not in wanted:
                    ancestor_pids.add(parent)
                descendant = parent
        for pid in self._parents_by_pid.keys() - (wanted | ancestor_pids):
            del self._parents_by_pid[pid]
        described = (self._describe_ancestor(pid, now) for pid in sorted(ancestor_pids))
        ancestors = tuple(ancestor for ancestor in described if ancestor is not None)
        # The same objects if nothing changed, so that comparing them is cheap.
        if parents != self.parents:
            self.parents = parents
        if ancestors != self.ancestors:
            self.ancestors = ancestors

    def _parent(self, pid: int, now: float) -> int | None:
        if pid not in self._parents_by_pid:
            stat = process_stat(pid, self._proc)
            if stat is None:
                return None
            self._parents_by_pid[pid] = (self._start_ticks(pid, now), stat.parent, self._start_ticks(stat.parent, now))
        return self._parents_by_pid[pid][1]

    def _start_ticks(self, pid: int, now: float) -> int | None:
        """Start ticks, which distinguish a process from a later one with the same pid; None for the first process."""
        facts = self._table.facts_of(pid, now) if pid > FIRST_PID else None
        return None if facts is None else facts.start_ticks

    def _describe_ancestor(self, pid: int, now: float) -> Ancestor | None:
        facts = self._table.facts_of(pid, now)
        if facts is None:
            return None
        return Ancestor(pid=pid, create_time=facts.create_time, user=facts.user, command=facts.command, name=facts.name)

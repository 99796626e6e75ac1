"""What of a recording cannot be read: the database, blocks of samples, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from gpuwatch.machine.recording.time_expressions import time_text

_T = TypeVar("_T")
_R = TypeVar("_R")


class DamagedBlock(NamedTuple):
    """A block that cannot be read, as far as its entry can."""

    begin: float
    """Seconds since the epoch; 0 if that is unknown."""
    end: float
    samples: int
    """0: unknown."""
    why: str


_PLURALS = {
    **{kind: f"{kind}s" for kind in ("run", "mean", "event", "finding")},
    **{"hour of GPU time": "hours of GPU time", "process": "processes", "entry": "entries"},
}


class Damage:
    """Damage found so far in one recording."""

    def __init__(self) -> None:
        self.database = ""
        """Damage of the database itself; empty if there is none."""
        self.blocks: dict[int, DamagedBlock] = {}
        """By number."""
        self.rows: dict[str, dict[object, str]] = {}
        """Why rows cannot be read, by kind (``event``, ``mean``) and key."""

    def __bool__(self) -> bool:
        return bool(self.database or self.blocks or self.rows)

    @property
    def samples(self) -> int:
        """Samples of the blocks whose entries can be read."""
        return sum(block.samples for block in self.blocks.values())

    def readable(self, kind: str, decode: Callable[[_R], _T], rows: Iterable[tuple[object, _R]]) -> Iterator[_T]:
        """The rows, given with their keys, that can be decoded; the others are noted as of this ``kind``."""
        for key, data in rows:
            try:
                yield decode(data)
            except (ValueError, TypeError) as error:  # msgspec's errors are ValueErrors
                self.rows.setdefault(kind, {})[key] = str(error)

    def text(self, samples: int) -> str:
        """Describes what is missing; ``samples``: the number of samples that the file states."""
        parts = []
        if self.blocks:
            known = [block for block in self.blocks.values() if block.samples]
            if known:
                begin, end = min(block.begin for block in known), max(block.end for block in known)
                parts.append(f"{self.samples:,} of {samples:,} samples from {time_text(begin)} to {time_text(end)}")
            if unknown := len(self.blocks) - len(known):
                parts.append(f"{unknown} block{'s' if unknown > 1 else ''} of unknown length")
        parts += [f"{len(keys)} {kind if len(keys) == 1 else _PLURALS[kind]}" for kind, keys in self.rows.items()]
        missing = f"{', '.join(parts)} cannot be read" if parts else ""
        return "; ".join(filter(None, (self.database, missing)))

    def lines(self) -> Iterator[str]:
        """One line for each part that cannot be read."""
        if self.database:
            yield f"database: {self.database}"
        for number, block in self.blocks.items():
            when = f", {time_text(block.begin)} to {time_text(block.end)}" if block.samples else ""
            yield f"block {number}{when}: {block.why}"
        for kind, keys in self.rows.items():
            for key, why in keys.items():
                yield f"{kind} {key}: {why}"

"""Log lines as a report shows them: verbatim, without what fills pages and tells nothing; what was left out is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from gpuwatch.formatting.text import printable

_STAMP = re.compile(r"^(?:[IWEF]\d{4} [\d:.]{1,30}\s+\d{1,10} |\d{4}-\d\d-\d\d[ T][\d:.,]{8,16}:? )")
_EMPTY_BIN = re.compile(r"Bin \(\d+\):\s+Total Chunks: 0,")
_CHUNK = re.compile(r"\b(?:InUse|Free ) at [0-9a-f]+ of size \d+")
_DECISIVE = ("ran out of memory trying to allocate", "Traceback (most recent call last)")
_CHUNKS = 6
_SIMULATED = (
    (
        "Could not find cuda drivers on your machine",
        "gpuwatch: harmless here; TensorFlow's CUDA code finds no driver, the simulated GPUs are a plugin beside it",
    ),
    (
        "Failed to get device properties, error code: 302",
        "gpuwatch: harmless here; a simulated GPU has no properties of CUDA's runtime to give",
    ),
    (
        "Could not identify NUMA node",
        "gpuwatch: harmless here; a simulated GPU is on no bus",
    ),
)


def readable(lines: Iterable[str], most: int, *, simulated: bool) -> tuple[str, ...]:
    """The last lines, ``most`` at most, after repetitions and empty bins of an allocator's dump are put together.

    A decisive line that would fall out stays, above a mark of how many are missing.
    """
    shown = list(_thinned(printable(line) for line in lines))
    if simulated:
        shown = list(_explained(shown))
    if len(shown) <= most:
        return tuple(shown)
    cut = len(shown) - most
    kept = [line for line in shown[:cut] if any(text in line for text in _DECISIVE)][-2:]
    return (*kept, f"… {cut - len(kept)} earlier lines left out", *shown[cut:])


def _thinned(lines: Iterable[str]) -> Iterator[str]:
    for kind, group in groupby(lines, key=_kind):
        same = list(group)
        if kind == "bin":
            yield f"… {_lines(len(same))} of empty bins left out"
        elif kind == "chunk" and len(same) > _CHUNKS:
            yield from same[: _CHUNKS // 2]
            yield f"… {_lines(len(same) - _CHUNKS)} of chunks left out"
            yield from same[-_CHUNKS // 2 :]
        elif kind == "chunk" or len(same) == 1:
            yield from same
        elif not kind:
            yield from same[:1]  # several empty lines are one
        else:
            yield f"{same[0]}  (× {len(same)})"


def _kind(line: str) -> str:
    """What makes two lines one: the text without its time and thread."""
    if _EMPTY_BIN.search(line):
        return "bin"
    if _CHUNK.search(line):
        return "chunk"
    return _STAMP.sub("", line).strip()


def _lines(count: int) -> str:
    return f"{count} line{'' if count == 1 else 's'}"


def _explained(lines: Iterable[str]) -> Iterator[str]:
    """Alarming lines that are the simulation's own, each kind explained once."""
    told: set[str] = set()
    for line in lines:
        yield line
        for text, meaning in _SIMULATED:
            if text in line and text not in told:
                told.add(text)
                yield f"  ↑ {meaning}"

"""Log lines for a report: verbatim, without noise; marks say what was left out."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from gpuwatch.core.formatting.units import count_text
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.logs.output_tail import is_decisive, omitted_line_count

_STAMP = re.compile(r"^(?:[IWEF]\d{4} [\d:.]{1,30}\s+\d{1,10} |\d{4}-\d\d-\d\d[ T][\d:.,]{8,16}:? )")
_EMPTY_BIN = re.compile(r"Bin \(\d+\):\s+Total Chunks: 0,")
_CHUNK = re.compile(r"\b(?:InUse|Free ) at [0-9a-f]+ of size \d+")
USUAL_LINES = re.compile(
    r"oneDNN custom operations are on|This TensorFlow binary is optimized to use available CPU instructions"
    r"|^To enable the following instructions: |All log messages before absl::InitializeLog\(\) is called"
)
"""What TensorFlow prints at every start."""
_OPENED = re.compile(r"Successfully opened dynamic library (\S+)")
_EPOCH = re.compile(r"^[IWEF]0000 00:00:(\d{9,11})\.")
"""TensorFlow's prefix before it reads the time zone: seconds since 1970."""
_MAX_LINES_KEPT = 6
_MAX_CHUNK_LINES = 6
_NOTES = (
    ("LargestFreeBlock:", "gpuwatch: always 0 with this allocator; the report's own number is from the list of chunks"),
)
_SIMULATED = (
    (
        "Could not find cuda drivers on your machine",
        "gpuwatch: harmless here; TensorFlow's CUDA code finds no driver, the simulated GPUs are a plugin beside it",
    ),
    (
        "Failed to get device properties, error code: 302",
        "gpuwatch: harmless here; a simulated GPU has no properties of CUDA's runtime to give",
    ),
    ("Could not identify NUMA node", "gpuwatch: harmless here; a simulated GPU is on no bus"),
)


def readable(lines: Iterable[str], most: int, *, simulated: bool) -> tuple[str, ...]:
    """The last ``most`` lines, after merging repetitions and the empty bins of an allocator's dump.

    Decisive lines before them are kept, above a mark that counts the missing lines.
    """
    clean = [printable(line) for line in lines]
    shown = list(_explained(_thinned(clean), (*_NOTES, *(_SIMULATED if simulated else ()))))
    clock = list(_clock(clean))
    if len(shown) <= most:
        return (*clock, *shown)
    cut = len(shown) - most
    kept = [line for line in shown[:cut] if is_decisive(line)]
    # The first ones name the GPUs, the last ones the failure.
    kept = kept if len(kept) <= _MAX_LINES_KEPT else [*kept[: _MAX_LINES_KEPT // 2], *kept[-_MAX_LINES_KEPT // 2 :]]
    # A mark stands for several lines.
    gone = cut - len(kept) + sum(max(omitted_line_count(line) - 1, 0) for line in shown[:cut])
    return (*clock, *kept, f"… {gone} earlier lines left out", *shown[cut:])


def _clock(lines: Iterable[str]) -> Iterator[str]:
    """A note on the first time in a prefix, which is in seconds since 1970."""
    stamp = next((match[1] for line in lines if (match := _EPOCH.match(line)) is not None), None)
    if stamp is not None:
        moment = datetime.datetime.fromtimestamp(int(stamp), datetime.UTC)
        yield f"(times in seconds since 1970: {stamp} is {moment:%Y-%m-%d %H:%M:%S} UTC)"


def _thinned(lines: Iterable[str]) -> Iterator[str]:
    for kind, group in groupby(lines, key=_kind):
        same = list(group)
        if kind == "usual":
            yield f"… {count_text(len(same), 'line')} that every start of TensorFlow prints left out"
        elif kind == "opened":
            names = dict.fromkeys(match[1] for line in same if (match := _OPENED.search(line)) is not None)
            yield f"… {count_text(len(same), 'line')} left out: libraries opened: {', '.join(names)}"
        elif kind == "bin":
            yield f"… {count_text(len(same), 'line')} of empty bins left out"
        elif kind == "chunk" and len(same) > _MAX_CHUNK_LINES:
            yield from same[: _MAX_CHUNK_LINES // 2]
            yield f"… {count_text(len(same) - _MAX_CHUNK_LINES, 'line')} of chunks left out"
            yield from same[-_MAX_CHUNK_LINES // 2 :]
        elif kind == "chunk" or len(same) == 1:
            yield from same
        elif not kind:
            yield from same[:1]  # several empty lines are one
        else:
            yield f"{same[0]}  (× {len(same)})"


def _kind(line: str) -> str:
    """What two lines must share to be merged: the text without its time and thread."""
    if _EMPTY_BIN.search(line):
        return "bin"
    if _CHUNK.search(line):
        return "chunk"
    if USUAL_LINES.search(line):
        return "usual"
    if _OPENED.search(line):
        return "opened"
    return _STAMP.sub("", line).strip()


def _explained(lines: Iterable[str], notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Explains misleading lines, each kind once."""
    explained: set[str] = set()
    for line in lines:
        yield line
        for text, meaning in notes:
            if text in line and text not in explained:
                explained.add(text)
                yield f"  ↑ {meaning}"

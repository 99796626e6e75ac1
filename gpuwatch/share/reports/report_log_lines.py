"""Log lines for a report: verbatim, without noise; marks say what was left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.logs.output_tail import is_decisive, omitted_line_count

_TIME_AND_THREAD = re.compile(r"^(?:[IWEF]\d{4} [\d:.]{1,30}\s+\d{1,10} |\d{4}-\d\d-\d\d[ T][\d:.,]{8,16}:? )")
_EMPTY_BIN = re.compile(r"Bin \(\d+\):\s+Total Chunks: 0,")
_CHUNK = re.compile(r"\b(?:InUse|Free ) at [0-9a-f]+ of size \d+")
USUAL_LINES = re.compile(
    r"oneDNN custom operations are on|This TensorFlow binary is optimized to use available CPU instructions"
    r"|^To enable the following instructions: |All log messages before absl::InitializeLog\(\) is called"
)
"""What TensorFlow prints at every start."""
_OPENED_LIBRARY = re.compile(r"Successfully opened dynamic library (\S+)")
_EPOCH = re.compile(r"^[IWEF]0000 00:00:(\d{9,11})\.")
"""TensorFlow's prefix before it reads the time zone: seconds since 1970."""
_MAX_LINES_KEPT = 6
_MAX_CHUNK_LINES = 6
_MISLEADING_LINES = (
    ("LargestFreeBlock:", "gpuwatch: always 0 with this allocator; the report's own number is from the list of chunks"),
)
_SIMULATION_NOTES = (
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


def condense_log(lines: Iterable[str], max_lines: int, *, simulated: bool) -> tuple[str, ...]:
    """The last ``max_lines`` lines, after merging repetitions and the empty bins of an allocator's dump.

    Decisive lines before them are kept, above a mark that counts the missing lines.
    """
    printable_lines = [printable(line) for line in lines]
    notes = (*_MISLEADING_LINES, *(_SIMULATION_NOTES if simulated else ()))
    explained = list(_with_explanations(_without_repetitions(printable_lines), notes))
    epoch_note = list(_epoch_note(printable_lines))
    if len(explained) <= max_lines:
        return (*epoch_note, *explained)
    cut_count = len(explained) - max_lines
    cut = explained[:cut_count]
    decisive = [line for line in cut if is_decisive(line)]
    if len(decisive) > _MAX_LINES_KEPT:
        # The first ones name the GPUs, the last ones the failure.
        decisive = [*decisive[: _MAX_LINES_KEPT // 2], *decisive[-_MAX_LINES_KEPT // 2 :]]
    # A mark stands for several lines.
    left_out = cut_count - len(decisive) + sum(max(omitted_line_count(line) - 1, 0) for line in cut)
    return (*epoch_note, *decisive, f"… {count_text(left_out, 'earlier line')} left out", *explained[cut_count:])


def _epoch_note(lines: Iterable[str]) -> Iterator[str]:
    """A note on the first time in a prefix, which is in seconds since 1970."""
    seconds = next((match[1] for line in lines if (match := _EPOCH.match(line)) is not None), None)
    if seconds is not None:
        moment = utc_datetime(int(seconds))
        yield f"(times in seconds since 1970: {seconds} is {moment:%Y-%m-%d %H:%M:%S} UTC)"


def _without_repetitions(lines: Iterable[str]) -> Iterator[str]:
    for merge_key, group in groupby(lines, key=_merge_key):
        merged = list(group)
        if merge_key == "usual":
            yield f"… {count_text(len(merged), 'line')} left out that TensorFlow prints at every start"
        elif merge_key == "opened":
            names = dict.fromkeys(match[1] for line in merged if (match := _OPENED_LIBRARY.search(line)) is not None)
            yield f"… {count_text(len(merged), 'line')} left out: libraries opened: {', '.join(names)}"
        elif merge_key == "bin":
            yield f"… {count_text(len(merged), 'line')} of empty bins left out"
        elif merge_key == "chunk" and len(merged) > _MAX_CHUNK_LINES:
            yield from merged[: _MAX_CHUNK_LINES // 2]
            yield f"… {count_text(len(merged) - _MAX_CHUNK_LINES, 'line')} of chunks left out"
            yield from merged[-_MAX_CHUNK_LINES // 2 :]
        elif merge_key == "chunk" or len(merged) == 1:
            yield from merged
        elif not merge_key:
            yield from merged[:1]  # several empty lines are one
        else:
            yield f"{merged[0]}  (× {len(merged)})"


def _merge_key(line: str) -> str:
    """What two lines must share to be merged: the text without its time and thread."""
    if _EMPTY_BIN.search(line):
        return "bin"
    if _CHUNK.search(line):
        return "chunk"
    if USUAL_LINES.search(line):
        return "usual"
    if _OPENED_LIBRARY.search(line):
        return "opened"
    return _TIME_AND_THREAD.sub("", line).strip()


def _with_explanations(lines: Iterable[str], notes: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Explains misleading lines, each kind once."""
    explained: set[str] = set()
    for line in lines:
        yield line
        for text, meaning in notes:
            if text in line and text not in explained:
                explained.add(text)
                yield f"  ↑ {meaning}"

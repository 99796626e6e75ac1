"""Joins log lines that a terminal or mail program has wrapped at some width, before they are parsed.

Whether a log is wrapped is decided once, from its first lines: hardly any line is longer than the width, and lines that
reach it are followed by lines that begin in the middle of a sentence. Programs wrap at the width itself, people and
mail programs before the word that does not fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise

from gpuwatch.explain.logs.log_line_text import undecorated

SAMPLE_LINES = 2000
"""Lines from which the width is determined."""
_WIDTHS = range(50, 201)
_MAX_OUTLIER_SHARE = 0.02
_MIN_WRAPPED_SHARE = 0.6
_MAX_PARTS = 12
"""Lines into which one line may have been wrapped."""

# Begins a new line: never the continuation of the previous one.
_NEW_LINE = re.compile(
    r"\d{4}-\d\d-\d\d[ T]|[IWEF]\d{4} |[IWEF] \w+/|Traceback|File \""
    r"|(?:\w+\.)*\w*(?:Error|Exception|Warning|(?<=\w)Interrupt): "
    r"|(?:WARNING|INFO|ERROR|DEBUG)\b|error: creating "
    r"|\[(?!Op:|\[|\{)|\(\d+\)|(?:Limit|InUse|MaxInUse|NumAllocs|MaxAllocSize|Reserved|Stats)\b|Epoch"
    r"|\d+/\d+|Colocation |Root Member|\S+ \(\w+\)|Skipping|name: |pciBusID|[Tt]otal ?[Mm]emory|[Ff]ree ?[Mm]emory"
    r"|major: |>>>|\$ |[-+=]{3}|\||\S+: \(\w+\)|\{\"|During handling|The above exception|To enable the following|Hint: "
)
_QUOTES = re.compile(r"[>#\s]*")
_SOURCE = re.compile(r"\.(?:cc|cpp|cu):\d+\]|(?:Error|Warning): ")


def join_wrapped_lines(lines: Iterable[str], on_join: Callable[[], None] = lambda: None) -> Iterator[str]:
    """The lines with wrapped ones joined; unchanged if the log is not wrapped. ``on_join`` is called for each line that
    is joined to the one before, so that lines can be counted as the log has them."""
    rest = iter(lines)
    head = list(islice(rest, SAMPLE_LINES))
    width = wrap_width(head)
    if width is None:
        yield from head
        yield from rest
        return
    joined_text, parts, before, quotes = "", 0, "", ""
    for line in chain(head, rest):
        text = line.rstrip("\r\n")
        if parts and parts < _MAX_PARTS and (separator := _separator(before, text, width)) is not None:
            text_alone = text.removeprefix(quotes)
            joined_text += text_alone if not separator else separator + undecorated(text_alone)
            parts += 1
            on_join()
        else:
            if parts:
                yield joined_text
            joined_text, parts = text, 1
            quotes = _QUOTES.match(text)[0]  # type: ignore[index]
        before = text
    if parts:
        yield joined_text


def wrap_width(lines: list[str]) -> int | None:
    """The width at which these lines were wrapped; None if they were not."""
    texts = [line.rstrip("\r\n") for line in lines]
    lengths = Counter(len(text) for text in texts if len(text) >= _WIDTHS.start)
    if not lengths:
        return None
    allowed = int(_MAX_OUTLIER_SHARE * len(texts))
    longer = 0
    for width in sorted(lengths, reverse=True):
        if width in _WIDTHS and _is_wrapped_at(texts, width):
            return width
        longer += lengths[width]
        if longer > allowed:
            return None
    return None


def _is_wrapped_at(texts: list[str], width: int) -> bool:
    full_lines = continued = wrapped_sources = 0
    for text, after in pairwise(texts):
        if len(text) < _WIDTHS.start or not after.strip():
            continue
        source = _SOURCE.search(text) is not None
        if _separator(text, after, width) is not None:
            full_lines += 1
            continued += 1
            wrapped_sources += source
        elif len(text) >= width - 1 or (source and not _NEW_LINE.match(undecorated(after))):
            full_lines += 1
    return wrapped_sources > 0 and continued >= _MIN_WRAPPED_SHARE * full_lines


def _indent(text: str) -> int:
    bare = text.lstrip(">#").expandtabs()
    return len(bare) - len(bare.lstrip())


def _separator(text: str, after: str, width: int) -> str | None:
    """The text between two wrapped lines, empty or a space; None if the line really ends here."""
    if not _WIDTHS.start - 1 <= len(text) <= width:
        return None
    if _indent(after) > _indent(text) + 1:
        return None  # TensorFlow continues errors with a tab and [[node …]]
    rest = undecorated(after)
    if not rest or _NEW_LINE.match(rest) or (text.endswith((".", "]", "!")) and len(text) < width):
        return None
    if len(text) == width:
        return ""
    word = rest.partition(" ")[0]
    return " " if len(text) + 1 + len(word) > width else None

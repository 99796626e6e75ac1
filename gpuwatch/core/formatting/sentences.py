"""Parts of English sentences: lists of names and numbers, and sentences as clauses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MAX_NAMES = 4


def name_list(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, c, d and 3 more``; at most four names."""
    if len(names) > _MAX_NAMES:
        return first_and_more(names, _MAX_NAMES)
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def first_and_more(items: Sequence[str], most: int, separator: str = ", ") -> str:
    """``a, b and 3 more``: the first ``most`` items, and how many follow them; all if there are no more."""
    return separator.join(items[:most]) + and_more(len(items) - most)


def and_more(rest: int) -> str:
    """`` and 3 more``, to end a list; empty if nothing is left."""
    return f" and {rest} more" if rest > 0 else ""


def number_ranges(numbers: Iterable[int], separator: str = ", ") -> str:
    """``0-7``, ``0, 2-3``: consecutive numbers as a range."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return separator.join("-".join(map(str, run)) for run in runs)


def gpu_list_text(indices: Iterable[int]) -> str:
    """``GPU 0``, ``GPUs 0-7``, ``GPUs 0, 2-3``."""
    listed = set(indices)
    return f"GPU{'s' * (len(listed) > 1)} {number_ranges(listed)}"


def as_clause(sentence: str) -> str:
    """As part of a sentence: without a capital at its start, except in names."""
    return sentence if not sentence[1:2].islower() and sentence[1:2] != " " else sentence[:1].lower() + sentence[1:]


def count_text(count: int, noun: str, plural: str = "") -> str:
    """``1 GPU``, ``2 GPUs``, ``1,000 processes``; ``plural``: the noun for other counts than 1, if it is irregular."""
    return f"{count:,} {noun if count == 1 else plural or noun + ('es' if noun.endswith('s') else 's')}"

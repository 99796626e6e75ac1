"""Logs that people posted in public threads, each labelled with the causes that would be right.

Set ``a`` (144 logs) was learnt from: rules were written with these logs in view, so its score says only that
nothing was lost since. Set ``b`` (151 logs) was collected and labelled before any rule was tried on it and scored
once, blind: 141 of 151 causes (driver 27/27, jax 25/27, other 25/30, pytorch 31/31, tensorflow 33/36), one wrong
cause stated as fact. That is the honest figure; from the day these logs stand here, set ``b`` may be learnt from too.

The score is kinder than it looks: many labels accept several causes, and in set ``b`` 59 of 151 accept ``unknown``
and 30 ``healthy``.

Only what programs printed is kept, as people paste it: cut, quoted, folded, indented. Posters' own words are dropped;
dates, process ids, hosts, users, folders, addresses, serial numbers, UUIDs and commits are replaced. ``LABELS.tsv``
names the thread that each log comes from.
"""

from __future__ import annotations

import csv
import os
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from gpuwatch.cli.read_log import read_lines
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.logs.wrapped_lines import join_wrapped_lines

FOLDER = Path(__file__).parent / "posted"
RIGHT_AT_LEAST = 283
"""One less than are right today: 284 of 295."""
FAMILY_AT_LEAST = 0.80
WRONG_FACTS_AT_MOST = 0.02


class Posted(NamedTuple):
    name: str
    family: str
    accepted: tuple[str, ...]
    explanation: Explanation

    @property
    def right(self) -> bool:
        primary = self.explanation.primary
        if primary in self.accepted:
            return True
        errors = any(found.severity == "error" for found in self.explanation.findings)
        return "healthy" in self.accepted and primary is None and not errors

    @property
    def wrong_fact(self) -> bool:
        """A wrong cause, and stated as certain."""
        if self.right or self.explanation.primary in (None, "healthy", "unknown"):
            return False
        named = [found for found in self.explanation.findings if found.id == self.explanation.primary]
        return bool(named) and named[0].certainty == "fact"


def rows() -> list[dict[str, str]]:
    with (FOLDER / "LABELS.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def explanation_of(path: Path) -> Explanation:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return explain(join_wrapped_lines(read_lines(descriptor, path)), source=path.name)
    finally:
        os.close(descriptor)


@cache
def posted() -> tuple[Posted, ...]:
    return tuple(
        Posted(
            f"{row['set']}/{row['file']}",
            row["framework"].split()[0],
            tuple(row["causes"].split()),
            explanation_of(FOLDER / row["set"] / row["file"]),
        )
        for row in rows()
    )


def wrong(logs: list[Posted]) -> str:
    return "\n".join(f"{log.name}: {log.explanation.primary}, not {' or '.join(log.accepted)}" for log in logs)


@pytest.mark.thorough
def test_every_log_has_a_label_and_every_label_a_log() -> None:
    labelled = {f"{row['set']}/{row['file']}" for row in rows()}
    assert labelled == {str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.txt")}
    assert [sum(log.name.startswith(half) for log in posted()) for half in ("a/", "b/")] == [144, 151]
    assert all(log.accepted for log in posted())


def test_causes_are_right_as_often_as_before() -> None:
    missed = [log for log in posted() if not log.right]
    assert len(posted()) - len(missed) >= RIGHT_AT_LEAST, wrong(missed)


@pytest.mark.parametrize("family", ["tensorflow", "pytorch", "jax", "driver", "other"])
def test_no_family_is_left_behind(family: str) -> None:
    of_family = [log for log in posted() if log.family == family]
    assert len(of_family) >= 40
    missed = [log for log in of_family if not log.right]
    assert len(missed) <= (1 - FAMILY_AT_LEAST) * len(of_family), wrong(missed)


def test_wrong_causes_are_hardly_ever_stated_as_fact() -> None:
    by_set = defaultdict(list)
    for log in posted():
        by_set[log.name[0]].append(log)
    for logs in by_set.values():
        bad = [log for log in logs if log.wrong_fact]
        assert len(bad) <= WRONG_FACTS_AT_MOST * len(logs), wrong(bad)


PERSONAL = (
    re.compile(r"(?:/home|/Users|\\Users\\)[/\\]?(?!user\b|user\d)[A-Za-z]"),
    re.compile(r"(?<![\w.])(?:10|172|192)\.(?!0\.2\.)\d{1,3}\.\d{1,3}\.\d{1,3}:\d"),
    re.compile(r"[\w.]+@[\w-]+\.(?:com|org|net|edu|de)\b"),
    re.compile(r"(?<!\d)20[0-3]\d-(?!01-)\d\d-\d\d[ T]\d\d:"),
)


@pytest.mark.parametrize("pattern", PERSONAL, ids=["home", "address", "mail", "date"])
def test_nothing_personal_came_along(pattern: re.Pattern[str]) -> None:
    for path in sorted(FOLDER.glob("*/*.txt")):
        found = pattern.search(path.read_text(encoding="utf-8", errors="replace"))
        assert found is None, f"{path.name}: {found}"

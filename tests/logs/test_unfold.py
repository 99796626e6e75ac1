"""Logs that were folded at a width, by a terminal or by a person, say what they said before."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.explanation import Explanation
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.logs.wrapped_lines import SAMPLE_LINES, join_wrapped_lines, wrap_width
from tests.logs.logs import NAMES, text

Fold = Callable[[str], list[str]]


def terminal(width: int) -> Fold:
    return lambda line: [line[at : at + width] for at in range(0, len(line), width)] or [""]


def person(width: int) -> Fold:
    return lambda line: textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]


def folded(name: str, fold: Fold, quote: str = "") -> list[str]:
    return [f"{quote}{part}\n" for line in text(name).splitlines() for part in fold(line)]


def told(found: Explanation) -> tuple[object, ...]:
    return (
        found.primary,
        [(entry.framework_device, entry.pci_bus_id, entry.granted_bytes) for entry in found.device_map],
        [(oom.requested_bytes, oom.limit_bytes, oom.verdict) for oom in found.ooms],
        found.missing_libraries,
    )


@cache
def whole(name: str) -> Explanation:
    return explain(text(name).splitlines())


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "quote", "first"), [(80, "", 0), (100, "> ", 1), (120, "    ", 0), (132, "", 1)])
def test_a_terminals_folds_change_nothing(width: int, quote: str, first: int) -> None:
    """Every log at two of the widths."""
    for name in NAMES[first::2]:
        assert told(explain(join_wrapped_lines(folded(name, terminal(width), quote)))) == told(whole(name)), name


@pytest.mark.thorough
@pytest.mark.parametrize("width", [100, 120])
def test_a_persons_folds_seldom_change_the_cause(width: int) -> None:
    """A word that did not fit is a guess; a wrong one in one log of ten is what can be had."""
    same = sum(
        whole(name).primary == explain(join_wrapped_lines(folded(name, person(width)))).primary for name in NAMES
    )
    assert same >= 0.9 * len(NAMES)


@pytest.mark.thorough
def test_what_was_not_folded_comes_as_it_is() -> None:
    for name in NAMES:
        lines = text(name).splitlines(keepends=True)
        if wrap_width(lines) is None:
            assert list(join_wrapped_lines(lines)) == lines, name
        assert told(explain(join_wrapped_lines(lines))) == told(whole(name)), name


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=90), max_size=40))
def test_no_character_is_lost(lines: list[str]) -> None:
    plain = [line.replace("\n", " ").replace("\r", " ") for line in lines]
    joined = "".join("".join(join_wrapped_lines(plain)).split())
    assert sorted(joined) == sorted("".join("".join(plain).split()))


def test_beyond_the_sample_it_goes_on_in_the_same_way() -> None:
    line = "I0504 10:11:12.131415   40712 x.cc:1] " + "word " * 40
    parts = terminal(80)(line)
    found = list(join_wrapped_lines(parts * SAMPLE_LINES))
    assert len(found) == SAMPLE_LINES
    assert {entry.strip() for entry in found} == {line.strip()}


@pytest.mark.parametrize("indent", ["\t ", "     ", "> \t "])
def test_a_long_line_before_an_indented_one_is_no_fold(indent: str) -> None:
    quote = "> " if indent.startswith(">") else ""
    long = f"{quote}W tensorflow/core/common_runtime/executor.cc:1076] Resource exhausted: OOM when allocating tensor"
    lines = [long, f"{indent}[[Node: Sub = Sub[T=DT_FLOAT]]]", f"{quote}0 successful operations."]
    assert list(join_wrapped_lines(lines)) == lines


def test_each_joined_line_is_told() -> None:
    """So that lines can be counted as the log has them."""
    lines, joined = folded(NAMES[0], terminal(80)), []
    yielded = list(join_wrapped_lines(lines, lambda: joined.append(1)))
    assert joined
    assert len(yielded) + len(joined) == len(lines)

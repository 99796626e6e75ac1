"""Lines as plain data: what has to be written to turn one into another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.ui.drawing.styled_lines import Line, differing_range, patches, with_spans_replaced
from gpuwatch.ui.drawing.text_width import width_of

WIDTH = 30
SPANS = st.lists(st.tuples(st.text("ab1–█漢", max_size=5), st.sampled_from(["text", "dim", "ok"])), max_size=8)


def cells(line: Line) -> list[tuple[str, str]]:
    """Each cell with its style; the second half of a wide character is empty."""
    found: list[tuple[str, str]] = []
    for text, style in line.spans:
        for char in text:
            found += [(char, style), *[("", style)] * (width_of(char) - 1)]
    return found + [(" ", "")] * (WIDTH - len(found))


@given(SPANS, SPANS, st.booleans(), st.booleans())
def test_patches_turn_one_line_into_the_other(
    before: list[tuple[str, str]], after: list[tuple[str, str]], old_highlighted: bool, new_highlighted: bool
) -> None:
    old, new = Line(tuple(before), old_highlighted), Line(tuple(after), new_highlighted)
    if any(sum(width_of(text) for text, _ in line.spans) > WIDTH for line in (old, new)):
        return
    grid = cells(old)
    for x, text, style in patches(old, new, WIDTH):
        assert text
        for char in text:
            grid[x] = (char, style)
            for half in range(1, width_of(char)):
                grid[x + half] = ("", style)
            x += width_of(char)
    wanted = cells(new)
    assert [char for char, _ in grid] == [char for char, _ in wanted]
    assert all(style == other for (char, style), (_, other) in zip(grid, wanted, strict=True) if char.strip())


def test_a_digit_is_a_patch_of_one_cell() -> None:
    old = Line((("│", "border"), (" 0:12:38", "dim"), (" python", "text")))
    new = Line((("│", "border"), (" 0:12:39", "dim"), (" python", "text")))
    assert patches(old, new, WIDTH) == [(8, "9", "dim")]


def test_what_does_not_fit_is_left_to_textual() -> None:
    long = Line((("x" * (WIDTH + 1), "text"),))
    assert patches(Line(()), long, WIDTH) == [(0, "", "")]


def test_a_span_of_the_same_width_is_replaced() -> None:
    line = Line((("ab", "text"), ("–", "dim"), ("漢", "dim"), ("12", "ok")), True)
    assert with_spans_replaced(line, {5: ("34", "ok")}) == Line((*line.spans[:3], ("34", "ok")), True)
    both = with_spans_replaced(line, {3: ("xy", "text"), 0: ("ab", "dim")})
    assert both == Line((("ab", "dim"), line.spans[1], ("xy", "text"), line.spans[3]), True), "style and text"
    assert with_spans_replaced(line, {3: ("漢", "dim"), 5: ("12", "ok")}) == line, "nothing changed"
    assert [with_spans_replaced(line, {x: ("12345", "dim")}) for x in range(8)] == [None] * 8, "no span is as wide"
    assert with_spans_replaced(line, {0: ("ab", "dim"), 4: ("x", "dim")}) is None, "no span begins there"


@given(st.text("ab1 ", min_size=1, max_size=6), st.text("ab1 ", min_size=1, max_size=6))
def test_what_has_changed_in_a_text_is_written_over_it(before: str, now: str) -> None:
    now = now.ljust(len(before))[: len(before)]
    if now != before:
        start, end = differing_range(before, now)
        assert before[:start] + now[start:end] + before[end:] == now
        assert now[start] != before[start]
        assert now[end - 1] != before[end - 1]

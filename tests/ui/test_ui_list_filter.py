"""``/`` on the GPU, Process, Findings and Events tabs: words filter the list, Enter keeps them, Esc clears them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.ui.screens.filterable_tab import FilterableScreen
from gpuwatch.ui.tables.filter_language import parse_words
from gpuwatch.ui.widgets.scroll_list import ScrollList
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press

TABS = {
    "3": ("train", "train.py", "RUSTUP"),
    "2": ("power", "Power draw", "Memory used"),
    "5": ("idle", "alice's", "zzz"),
    "6": ("throttled", "throttled", "2284"),
}
"""By key: what is typed, what stays and what goes."""


def lines(screen: FilterableScreen) -> str:
    assert isinstance(screen.filtered, ScrollList)
    return "\n".join("".join(text for text, _ in line.spans) for line in screen.filtered.content)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("key", TABS)
async def test_a_list_is_filtered_and_esc_clears_it(stage: Stage, key: str, size: tuple[int, int]) -> None:
    typed, stays, goes = TABS[key]
    async with stage.opened(
        past=machines.lively if key == "6" else machines.pair, seconds=175 if key == "6" else 60, size=size
    ) as pilot:
        await press(pilot, key)
        screen = stage.screen(FilterableScreen)
        whole = lines(screen)
        total = screen.matches[1]
        await press(pilot, "slash", *typed)
        assert screen.filter_bar is not None
        assert stays in lines(screen)
        assert goes not in lines(screen)
        assert 0 < screen.matches[0] <= total
        await press(pilot, "enter")
        assert screen.filter_bar is None
        assert screen.filtered.has_focus
        assert goes not in lines(screen)
        await press(pilot, "escape")
        assert stage.app.screen is screen, "Esc clears the filter first"
        assert lines(screen) == whole
        await press(pilot, "slash", *"zzzz")
        assert screen.matches == (0, total)
        assert "no match; Esc clears it" in lines(screen)
        await press(pilot, "escape")
        assert lines(screen) == whole
        assert screen.filter_bar is None


_TEXT = st.text(st.sampled_from("abAB -"), max_size=12)


@given(st.lists(st.sampled_from(["a", "B", "ab", "-a", "-bb", '"a b"']), max_size=4), _TEXT)
def test_all_words_must_occur_and_those_with_a_minus_must_not(words: list[str], text: str) -> None:
    wanted = parse_words(" ".join(words))
    if wanted is None:
        assert not words
        return
    low = text.lower()
    expected = all((word[1:] not in low) if word.startswith("-") else word.strip('"').lower() in low for word in words)
    assert wanted(text) == expected

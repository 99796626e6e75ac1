from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.formatting.text import printable, shorten
from gpuwatch.formatting.units import duration, seconds, short_size, size


def test_escape_sequences_become_visible() -> None:
    assert printable("a\x1b[31mred\x1b[0m") == "a\\x1b[31mred\\x1b[0m"
    assert printable("left\u202eright") == "left\\u202eright"
    assert printable("two\nlines\tand a tab") == "two lines and a tab"
    assert printable("python train.py --name=größe") == "python train.py --name=größe"


@given(st.text())
def test_nothing_that_moves_the_cursor_survives(text: str) -> None:
    shown = printable(text)
    for char in shown:
        assert unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.text(), st.integers(0, 50))
def test_shorten_keeps_the_width(text: str, width: int) -> None:
    assert len(shorten(text, width)) <= width


@given(st.integers(0, 2**60))
def test_sizes_stay_short_enough_for_their_columns(count: int) -> None:
    assert len(short_size(count)) <= 6
    assert len(size(count)) <= 9


def test_sizes_and_times() -> None:
    assert size(33 * 2**30) == "33.0 GiB"
    assert size(512 * 2**20) == "512 MiB"
    assert size(None) == "–"
    assert size(0) == "0 B"
    assert duration(8047) == "2:14:07"
    assert duration(3 * 86400 + 4 * 3600 + 5 * 60) == "3d 04:05"
    assert seconds(0.0183) == "18.3 ms"

"""Text that steers terminals or hides itself, made visible; what scripts and emoji need stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.safe_text import escape_in_json, is_printable, printable, printable_lines
from tests.every import every

UNSAFE = "\x00\x07\x1b\x7f\x9b\xad\u061c\u115f\u180e\u200b\u200e\u202e\u2028\u2066\u3164\ufeff\ufff9\U000e0041"


@every(UNSAFE)
def test_what_steers_or_hides_is_made_visible(char: str) -> None:
    shown = printable(f"a{char}b")
    assert shown.isascii()
    assert shown.startswith("a\\")
    assert not is_printable(char)
    assert printable_lines(f"one\n{char}\n") == f"one\n{printable(char)}\n"
    assert json.loads(escape_in_json(json.dumps(char, ensure_ascii=False))) == char
    assert escape_in_json(json.dumps(char, ensure_ascii=False)).isascii()


@pytest.mark.parametrize(
    "text",
    [
        "می\u200cخواهم",  # Persian
        "क\u094d\u200dष न\u094d\u200c",  # Devanagari with and without the ligature
        "👩\u200d💻",
        "👩🏽\u200d🚒",
        "🏳\ufe0f\u200d🌈",
        "❤\ufe0f\u200d🔥",
    ],
)
def test_joiners_that_shape_letters_and_emoji_stay(text: str) -> None:
    assert printable(text).replace("\\u200c", "\u200c") == text


@pytest.mark.parametrize("text", ["ad\u200cmin", "ad\u200dmin", "\u200d", "👩\u200d", "a\u200d💻", "💻\u200d\u200d💻"])
def test_joiners_that_join_nothing_are_shown(text: str) -> None:
    assert "\\u200" in printable(text)


@given(st.text(st.characters() | st.sampled_from(UNSAFE + "\u200c\u200d\ud800क💻\n\t")))
def test_nothing_gets_through(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert printable(shown) == shown, "once is enough"
    assert is_printable(shown.replace("\u200c", "").replace("\u200d", ""))
    assert printable_lines(text).count("\n") == text.count("\n")
    assert json.loads(escape_in_json(json.dumps(text))) == json.loads(json.dumps(text))

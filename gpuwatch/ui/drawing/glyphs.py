"""The glyphs on screen: the signs of severities, and the ASCII replacement of each glyph. Pure, no Textual.

Glyphs are replaced cell for cell when a screen is written, so nothing moves: code that draws uses
the glyphs of :data:`ASCII_REPLACEMENTS` and need not know about ASCII mode. The user's own text (a command
with an é, a file name) has no replacement: each of its cells becomes ``?``, as in ``ls``.
"""

from __future__ import annotations

import re

from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import width_of

SEVERITY_MARKS: dict[str, Span] = {"error": ("✖", "error"), "warning": ("▲", "warning"), "info": ("●", "text")}
"""Of what is true now."""
FINDING_MARKS = SEVERITY_MARKS | {"info": ("•", "dim")}
"""In lists of findings, where ``●`` is the healthy one."""
EVENT_MARKS = SEVERITY_MARKS | {"info": ("·", "dim"), "good": ("●", "ok")}
"""Of what happened."""

ASCII_REPLACEMENTS: dict[str, str] = {
    # Frames, scroll bars, trees.
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫", "+"),
    **dict.fromkeys("─━═╌┄╴╶▔▁", "-"),
    **dict.fromkeys("│┃║╎┆▏▕", "|"),
    # Bars: whole and partial cells.
    **dict.fromkeys("█▐▇▆▓", "#"),
    **dict.fromkeys("▉▊▋▌▅▄", "="),
    **dict.fromkeys("▍▎▃▂", "-"),
    "▀": '"',
    "░": ".",
    "▒": ":",
    # State.
    **dict.fromkeys("●•", "*"),
    **dict.fromkeys("○◌□", "o"),
    **dict.fromkeys("✖✗", "x"),
    **dict.fromkeys("✓✔◧", "+"),
    **dict.fromkeys("▲△", "!"),
    **dict.fromkeys("▼▽", "v"),
    **dict.fromkeys("■◼", "#"),
    "☾": "z",
    "‖": "|",
    # Cursors and arrows.
    **dict.fromkeys("▶▸▷►→›", ">"),
    **dict.fromkeys("◀◂◄←‹", "<"),
    **dict.fromkeys("▴↑⇧", "^"),
    **dict.fromkeys("▾↓", "v"),
    "↔": "-",
    "↵": "~",
    # Text.
    **dict.fromkeys("–—−‐‑·", "-"),
    **dict.fromkeys("…±≈", "~"),
    "×": "x",
    "≤": "<",
    "≥": ">",
    "≠": "!",
    **dict.fromkeys("∞°", "o"),
    **dict.fromkeys("µμ", "u"),
    **dict.fromkeys("²³", "^"),
    "½": "/",
    **dict.fromkeys("“”„″", '"'),
    **dict.fromkeys("‘’′", "'"),
    **dict.fromkeys("\u00a0\u2009\u202f", " "),
    # Textual's own glyphs: the palette's search field, switches.
    "🔎": "> ",
    "⭘": "o",
}
"""Each glyph that gpuwatch draws, with ASCII of the same width."""

_ASCII_BY_HEIGHT = " .:+#"
"""ASCII for a graph cell by fill height, from empty to full in quarters."""
_FIRST_BRAILLE_CODE = 0x2800
_BRAILLE_ROWS = (0xC0, 0x24, 0x12, 0x09)
"""Bits of both dots in each row of a braille cell, from the bottom."""


def _height(dots: int) -> int:
    """Height of the taller dot column of a braille cell, 0-4."""
    return max((height for height, row in enumerate(_BRAILLE_ROWS, 1) if dots & row), default=0)


_ASCII_TABLE = str.maketrans(
    {sign: plain for sign, plain in ASCII_REPLACEMENTS.items() if len(sign) == 1}
    | {chr(_FIRST_BRAILLE_CODE + dots): _ASCII_BY_HEIGHT[_height(dots)] for dots in range(256)}
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def to_ascii(text: str) -> str:
    """``text`` in ASCII, cell for cell: glyphs by their replacements, everything else as ``?``."""
    if text.isascii():
        return text
    return _NOT_ASCII.sub(lambda match: "?" * width_of(match.group()), text.translate(_ASCII_TABLE))


_ASCII_KEY_NAMES = (("⇧Tab", "S-Tab"), ("↵", "Enter"), ("←", "Left"), ("→", "Right"), ("↑", "Up"), ("↓", "Down"))


def ascii_key_name(key: str) -> str:
    """A key's name for a terminal that cannot show arrows: ``Enter``, ``S-Tab``, ``Up k``."""
    if key.isascii():
        return key
    for sign, name in _ASCII_KEY_NAMES:
        key = key.replace(sign, name)
    return key

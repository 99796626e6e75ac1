"""The signs on screen, and what stands for them where only ASCII can be shown. Pure, no Textual.

Signs are translated when a screen is written, cell for cell, so that nothing moves: whoever draws
writes the signs of :data:`SIGNS` and need not know of ASCII mode. Text of the user's own (a command
with an é, a file name) has no stand-in: each of its cells becomes ``?``, as ``ls`` does it.
"""

from __future__ import annotations

import re

from gpuwatch.ui.cells import width_of

SIGNS: dict[str, str] = {
    # Frames, scroll bars, trees.
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫", "+"),
    **dict.fromkeys("─━═╌┄╴╶▔▁", "-"),
    **dict.fromkeys("│┃║╎┆▏▕", "|"),
    # Bars: whole cells, and the parts of one.
    "█": "#",
    "▉": "=",
    "▊": "=",
    "▋": "=",
    "▌": "=",
    "▍": "-",
    "▎": "-",
    "▐": "#",
    "▇": "#",
    "▆": "#",
    "▅": "=",
    "▄": "=",
    "▃": "-",
    "▂": "-",
    "▀": '"',
    "░": ".",
    "▒": ":",
    "▓": "#",
    # State.
    "●": "*",
    "○": "o",
    "◌": "o",
    "•": "*",
    "✖": "x",
    "✗": "x",
    "✓": "+",
    "✔": "+",
    "▲": "!",
    "△": "!",
    "▼": "v",
    "▽": "v",
    "■": "#",
    "□": "o",
    "◧": "+",
    "◼": "#",
    "☾": "z",
    "‖": "|",
    # Cursors and arrows.
    "▶": ">",
    "▸": ">",
    "▷": ">",
    "►": ">",
    "◀": "<",
    "◂": "<",
    "◄": "<",
    "▴": "^",
    "▾": "v",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "↔": "-",
    "↵": "~",
    "⇧": "^",
    "›": ">",
    "‹": "<",
    # Text.
    "–": "-",
    "—": "-",
    "−": "-",
    "‐": "-",
    "‑": "-",
    "·": "-",
    "…": "~",
    "×": "x",
    "±": "~",
    "≈": "~",
    "≤": "<",
    "≥": ">",
    "≠": "!",
    "∞": "o",
    "°": " ",
    "µ": "u",
    "μ": "u",
    "²": "^",
    "³": "^",
    "½": "/",
    "“": '"',
    "”": '"',
    "„": '"',
    "‘": "'",
    "’": "'",
    "′": "'",
    "″": '"',
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    # Textual's own: the search field of the palette, switches.
    "🔎": "> ",
    "⭘": "o",
}
"""Each sign that gpuwatch draws, and ASCII of the same width."""

_DOTS = " .:+#"
"""Cells of a graph by how high they are filled: not at all to whole, in quarters."""
_BRAILLE = 0x2800


def _height(dots: int) -> int:
    """The higher of the two columns of dots of a braille cell, 0-4."""
    left = (0x40, 0x04, 0x02, 0x01)
    right = (0x80, 0x20, 0x10, 0x08)
    return max(max((level for level, bit in enumerate(column, 1) if dots & bit), default=0) for column in (left, right))


_TABLE = str.maketrans(
    {sign: plain for sign, plain in SIGNS.items() if len(sign) == 1}
    | {chr(_BRAILLE + dots): _DOTS[_height(dots)] for dots in range(256)}
)
_OTHER = re.compile(r"[^\x00-\x7f]+")


def to_ascii(text: str) -> str:
    """``text`` in ASCII, cell for cell: signs by their stand-ins, everything else as ``?``."""
    if text.isascii():
        return text
    return _OTHER.sub(lambda match: "?" * width_of(match.group()), text.translate(_TABLE))


_KEYS = (("⇧Tab", "S-Tab"), ("↵", "Enter"), ("←", "Left"), ("→", "Right"), ("↑", "Up"), ("↓", "Down"))


def spelled(key: str) -> str:
    """The name of a key for a terminal without arrows: ``Enter``, ``S-Tab``, ``Up k``."""
    if key.isascii():
        return key
    for sign, name in _KEYS:
        key = key.replace(sign, name)
    return key

"""Text from elsewhere (command lines, device names, logs) made harmless for screens and files."""

from __future__ import annotations

import re

# C0 and C1 controls, line separators, zero-width and bidirectional controls, BOM: everything that
# moves a cursor, hides text or reorders it.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")


def _visible(match: re.Match[str]) -> str:
    char = match.group()
    if char in "\t\n\r":
        return " "
    return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"


def printable(text: str) -> str:
    """``text`` in one line with every control character made visible (``\\x1b``)."""
    if text.isascii() and text.isprintable():
        return text
    cleaned = _UNSAFE.sub(_visible, text)
    return cleaned.encode("utf-8", "replace").decode("utf-8")  # lone surrogates


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, with an ellipsis when something was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""

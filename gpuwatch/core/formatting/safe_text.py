"""Makes text from outside (command lines, device names, logs) harmless for screens and files."""

from __future__ import annotations

from gpuwatch.core.model.control_characters import harmless, is_printable, printable

__all__ = ["UNKNOWN", "harmless", "is_printable", "printable", "shorten", "word_set"]
UNKNOWN = "–"
"""What stands for a value that is not known."""


def bounded(line: str, most: int) -> str:
    """At most ``most`` characters of a line: its start, or a progress bar's last states, as it overwrites itself."""
    if len(line) <= most:
        return line
    state = line.find("\r", len(line) - most)
    return line[:most] if state < 0 else line[state + 1 :]


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, with an ellipsis if something was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


def whole_number(text: str) -> int | None:
    """A number of at most 18 ASCII digits; None for any other text, such as ``²`` or thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None

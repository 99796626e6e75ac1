"""Makes text from outside (command lines, device names, logs) harmless for screens and files."""

from __future__ import annotations

from gpuwatch.core.model.characters import harmless, is_printable, printable

__all__ = ["harmless", "is_printable", "printable", "shorten", "word_set"]


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, with an ellipsis if something was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())

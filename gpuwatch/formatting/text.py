"""Text from elsewhere (command lines, device names, logs) made harmless for screens and files."""

from __future__ import annotations

from gpuwatch.model.characters import harmless, is_printable, printable

__all__ = ["harmless", "is_printable", "printable", "shorten"]


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, with an ellipsis when something was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""

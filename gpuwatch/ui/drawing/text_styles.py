"""The styles of text: each a color of the theme, perhaps on another one; links in it. No Textual.

Panes take their styles from here, and so does the first frame, which is drawn before Textual is loaded and needs
escape sequences. A test compares both for every style and theme.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from gpuwatch.core.formatting.palettes import QUANTITIES, Color, Palette, mix, rgb


class TextStyle(NamedTuple):
    """Names of theme colors, and text styles."""

    foreground: str = "foreground"
    strength: float = 1.0
    """Share of the foreground; the rest is background."""
    background: str = ""
    """Empty: that of the pane."""
    bold: bool = False
    on_16_colors: str = ""
    """Text styles on a terminal of sixteen colors, where nothing is faint and no other background is used."""


STYLES: dict[str, TextStyle] = {
    "text": TextStyle(),
    "dim": TextStyle(strength=0.62, on_16_colors="dim"),
    "faint": TextStyle(strength=0.45, on_16_colors="dim"),
    "strong": TextStyle(bold=True),
    "title": TextStyle("accent", bold=True),
    "accent": TextStyle("accent"),
    "ok": TextStyle("success"),
    "warning": TextStyle("warning"),
    "error": TextStyle("error", bold=True),
    "high": TextStyle(bold=True),
    "full": TextStyle("warning", bold=True),
    **{name: TextStyle(color, share) for name, (color, share) in QUANTITIES.items()},
    "graph": TextStyle("success", 0.75),
    "track": TextStyle(strength=0.28, on_16_colors="dim"),
    "border": TextStyle(strength=0.25, on_16_colors="dim"),
    "focus": TextStyle("accent"),
    "focused-border": TextStyle("accent"),
    "thumb": TextStyle(strength=0.62),
    "header": TextStyle(strength=0.62, background="panel", on_16_colors="dim underline"),
    "sorted": TextStyle("accent", background="panel", bold=True, on_16_colors="underline"),
    "key": TextStyle("accent", bold=True),
    "badge-neutral": TextStyle(background="panel", bold=True, on_16_colors="reverse"),
    "badge": TextStyle("background", background="accent", bold=True, on_16_colors="reverse"),
    "badge-warning": TextStyle("background", background="warning", bold=True, on_16_colors="reverse"),
    "badge-error": TextStyle("background", background="error", bold=True, on_16_colors="reverse"),
}
HIGHLIGHT_COLOR, HIGHLIGHT_SHARE = "accent", 0.2
"""The color blended over the row under the cursor; reversed on a terminal of sixteen colors."""
NOT_HIGHLIGHTED = frozenset({"border", "focused-border", "thumb"})
"""Styles of the border, which keeps its own background beside a highlighted row."""


def style_colors(palette: Palette, style: str, pane_background: str) -> tuple[Color, Color, bool]:
    """Foreground, background, and whether it is bold; ``pane_background``: name of the pane's background color."""
    rule = STYLES[style]
    background = rgb(getattr(palette, rule.background or pane_background))
    foreground = rgb(getattr(palette, rule.foreground))
    return (foreground if rule.strength == 1.0 else mix(foreground, background, rule.strength)), background, rule.bold


def _nearest_of_256(color: Color) -> int | None:
    """The nearest of the 256 colors."""
    from rich.color import Color as RichColor
    from rich.color import ColorSystem  # most terminals have all colors

    return RichColor.from_rgb(*color).downgrade(ColorSystem.EIGHT_BIT).number


def highlight_color(palette: Palette, pane_background: str) -> Color:
    """Background of the row under the cursor."""
    return mix(rgb(getattr(palette, HIGHLIGHT_COLOR)), rgb(getattr(palette, pane_background)), HIGHLIGHT_SHARE)


def escape_sequences(
    palette: Palette, pane_background: str, depth: int, *, highlighted: bool = False
) -> dict[str, str]:
    """The escape sequence of each style at this color depth; ``highlighted``: in the row under the cursor."""
    found = {}
    for style in STYLES:
        foreground, background, bold = style_colors(palette, style, pane_background)
        if highlighted and style not in NOT_HIGHLIGHTED:
            background = highlight_color(palette, pane_background)
        if depth == 24:
            set_colors = "38;2;{};{};{};48;2;{};{};{}".format(*foreground, *background)
        else:
            set_colors = f"38;5;{_nearest_of_256(foreground)};48;5;{_nearest_of_256(background)}"
        found[style] = f"\x1b[0;{'1;' * bold}{set_colors}m"
    return found


_LINK = "link "


def link_style(url: str, style: str) -> str:
    """A style whose text is a link (OSC 8); the plain style if the terminal or the user wants none."""
    from gpuwatch.core.formatting.terminal_support import links_allowed  # not needed for the first frame

    return f"{_LINK}{style} {url}" if links_allowed(os.environ, terminal=True) else style


def style_and_url(name: str) -> tuple[str, str]:
    """Style and URL of :func:`link_style`; the URL is empty for any other style."""
    if not name.startswith(_LINK):
        return name, ""
    style, _, url = name.removeprefix(_LINK).partition(" ")
    return style, url

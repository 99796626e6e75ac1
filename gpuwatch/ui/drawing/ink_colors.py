"""The inks: each a color of the theme, perhaps on another one. Pure, no Textual.

Panes take their styles from here, and so does the first frame, which is drawn before Textual is loaded and needs
escape sequences. A test compares both for every ink and theme.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.core.formatting.palettes import PALETTES, QUANTITIES, Color, Palette, mixed, rgb


class Ink(NamedTuple):
    """Names of theme colors, and text styles."""

    foreground: str = "foreground"
    strength: float = 1.0
    """Share of the foreground; the rest is background."""
    background: str = ""
    """Empty: that of the pane."""
    bold: bool = False
    sixteen: str = ""
    """Text styles on a terminal of sixteen colors, where nothing is faint and no other background is used."""


INKS: dict[str, Ink] = {
    "text": Ink(),
    "dim": Ink(strength=0.62, sixteen="dim"),
    "faint": Ink(strength=0.45, sixteen="dim"),
    "strong": Ink(bold=True),
    "title": Ink("accent", bold=True),
    "accent": Ink("accent"),
    "ok": Ink("success"),
    "warning": Ink("warning"),
    "error": Ink("error", bold=True),
    "high": Ink(bold=True),
    "full": Ink("warning", bold=True),
    **{name: Ink(color, share) for name, (color, share) in QUANTITIES.items()},
    "graph": Ink("success", 0.75),
    "track": Ink(strength=0.28, sixteen="dim"),
    "border": Ink(strength=0.25, sixteen="dim"),
    "focus": Ink("accent"),
    "frame": Ink("accent"),
    "thumb": Ink(strength=0.62),
    "header": Ink(strength=0.62, background="panel", sixteen="dim underline"),
    "sorted": Ink("accent", background="panel", bold=True, sixteen="underline"),
    "key": Ink("accent", bold=True),
    "badge-neutral": Ink(background="panel", bold=True, sixteen="reverse"),
    "badge": Ink("background", background="accent", bold=True, sixteen="reverse"),
    "badge-warning": Ink("background", background="warning", bold=True, sixteen="reverse"),
    "badge-error": Ink("background", background="error", bold=True, sixteen="reverse"),
}
HIGHLIGHT, HIGHLIGHT_SHARE = "accent", 0.2
"""The color blended over the row under the cursor; reversed on a terminal of sixteen colors."""
NOT_HIGHLIGHTED = frozenset({"border", "frame", "thumb"})
"""Inks of the frame, which keeps its own background beside a highlighted row."""


_CHANGES_COLORS = ("NO_COLOR", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_FILTERS", "TEXTUAL_THEME", "TEXTUAL_DRIVER")
"""Variables that make Textual use other colors or another output."""


def palette_of(theme: str) -> Palette | None:
    """One of gpuwatch's own themes; None for Textual's themes, whose colors are not known here."""
    return next((palette for palette in PALETTES if palette.name == theme), None)


def depth_of(environment: Mapping[str, str]) -> int:
    """Color depth of this terminal in bits: 24 or 8; 0 for less, or when colors are disabled."""
    if any(environment.get(name) for name in _CHANGES_COLORS):
        return 0
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return 24
    return 8 if environment.get("TERM", "").strip().lower().endswith(("-256color", "-kitty")) else 0


def colors(palette: Palette, ink: str, ground: str) -> tuple[Color, Color, bool]:
    """Foreground, background, and whether it is bold; ``ground`` is the pane's background color (``background``)."""
    rule = INKS[ink]
    under = rgb(getattr(palette, rule.background or ground))
    over = rgb(getattr(palette, rule.foreground))
    return (over if rule.strength == 1.0 else mixed(over, under, rule.strength)), under, rule.bold


def _of_256(color: Color) -> int | None:
    """The nearest of the 256 colors."""
    from rich.color import Color as RichColor
    from rich.color import ColorSystem  # most terminals have all colors

    return RichColor.from_rgb(*color).downgrade(ColorSystem.EIGHT_BIT).number


def highlight(palette: Palette, ground: str) -> Color:
    """Background of the row under the cursor."""
    return mixed(rgb(getattr(palette, HIGHLIGHT)), rgb(getattr(palette, ground)), HIGHLIGHT_SHARE)


def sequences(palette: Palette, ground: str, depth: int, *, highlighted: bool = False) -> dict[str, str]:
    """The escape sequence of each ink at this color depth; ``highlighted``: in the row under the cursor."""
    found = {}
    for ink in INKS:
        over, under, bold = colors(palette, ink, ground)
        if highlighted and ink not in NOT_HIGHLIGHTED:
            under = highlight(palette, ground)
        if depth == 24:
            set_colors = "38;2;{};{};{};48;2;{};{};{}".format(*over, *under)
        else:
            set_colors = f"38;5;{_of_256(over)};48;5;{_of_256(under)}"
        found[ink] = f"\x1b[0;{'1;' * bold}{set_colors}m"
    return found


_LINK = "link "


def link_ink(url: str, ink: str) -> str:
    """An ink whose text is a link (OSC 8); the plain ink if the terminal or the user wants none."""
    from gpuwatch.core.formatting.hyperlinks import links_allowed  # not needed for the first frame

    return f"{_LINK}{ink} {url}" if links_allowed(os.environ, terminal=True) else ink


def link_of(name: str) -> tuple[str, str]:
    """Ink and URL of :func:`link_ink`; the URL is empty for any other ink."""
    if not name.startswith(_LINK):
        return name, ""
    ink, _, url = name.removeprefix(_LINK).partition(" ")
    return ink, url

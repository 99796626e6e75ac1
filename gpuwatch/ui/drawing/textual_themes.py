"""The themes: gpuwatch's own, and corrections of Textual's. Only :func:`textual_themes` imports Textual."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gpuwatch.core.formatting.palettes import PALETTES

if TYPE_CHECKING:
    from textual.theme import Theme


DEFAULT_THEME = PALETTES[0].name
SIXTEEN_COLORS = "gpuwatch-16"
"""A theme made of the terminal's own sixteen colors, on its own background."""
_CORRECTIONS: dict[str, dict[str, Any]] = {
    "textual-dark": {"accent": "#4ea8e0", "secondary": "#9d8cd6"},
    "textual-light": {"accent": "#1b6a8c", "success": "#2f7d1e", "warning": "#9a6100"},
    "monokai": {"secondary": "#66d9ef"},
    "flexoki": {"primary": "#4385be", "error": "#d14d41"},
    "catppuccin-latte": {"accent": "#8839ef", "secondary": "#147f85", "success": "#2f8a1f", "warning": "#a06000"},
    "solarized-light": {"secondary": "#1f857d", "success": "#6b7c00", "warning": "#a07800"},
    "rose-pine-dawn": {"accent": "#286983", "warning": "#a06a00"},
    "atom-one-light": {"accent": "#3a6fd8", "success": "#3a8a35", "warning": "#9a6a00"},
}
"""Textual's themes of which two colors that mean different things are alike, or one cannot be read."""


def textual_themes() -> tuple[Theme, ...]:
    """Our themes as Textual's objects, and those of Textual that need a correction."""
    from textual.theme import BUILTIN_THEMES, Theme

    cyan, magenta = "ansi_cyan", "ansi_magenta"
    base = BUILTIN_THEMES["ansi-dark"]
    sixteen = replace(base, name=SIXTEEN_COLORS, primary=cyan, secondary=magenta, accent=cyan)
    corrected = (replace(BUILTIN_THEMES[name], **colors) for name, colors in _CORRECTIONS.items())
    return (*(Theme(accent=palette.accent, **asdict(palette)) for palette in PALETTES), sixteen, *corrected)


def known_themes() -> tuple[str, ...]:
    """Names of all available themes: ours, then Textual's. Imports Textual."""
    from textual.theme import BUILTIN_THEMES

    return (*(palette.name for palette in PALETTES), SIXTEEN_COLORS, *BUILTIN_THEMES)


def is_theme(name: str) -> bool:
    """Whether the theme exists; imports Textual only for a name that is not ours."""
    return name == SIXTEEN_COLORS or any(palette.name == name for palette in PALETTES) or name in known_themes()

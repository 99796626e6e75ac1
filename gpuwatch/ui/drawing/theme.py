"""gpuwatch's own themes: the only place with colour values. State never depends on colour alone.

Plain data: only :func:`textual_themes` imports Textual.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.theme import Theme


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one theme."""

    name: str
    primary: str
    secondary: str
    success: str
    warning: str
    error: str
    foreground: str
    background: str
    surface: str
    panel: str
    dark: bool = True

    @property
    def accent(self) -> str:
        """The colour of what is in focus: the primary one."""
        return self.primary


PALETTES = (
    Palette(
        name="gpuwatch",
        primary="#7fb4ca",
        secondary="#9d8cd6",
        success="#8cc265",
        warning="#e0af5b",
        error="#ef6b73",
        foreground="#d5dae2",
        background="#11151a",
        surface="#181d24",
        panel="#232a33",
    ),
    Palette(
        name="gpuwatch-light",
        primary="#1b6a8c",
        secondary="#6a4fb3",
        success="#2f7d1e",
        warning="#9a6100",
        error="#b8222f",
        foreground="#1d242c",
        background="#fafbfc",
        surface="#f0f2f5",
        panel="#dfe4ea",
        dark=False,
    ),
    Palette(
        name="gpuwatch-contrast",
        primary="#00d7ff",
        secondary="#ff87ff",
        success="#00ff5f",
        warning="#ffd700",
        error="#ff5f5f",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#303030",
    ),
    # Blue, bluish green, yellow and vermilion stay distinct in the common kinds of colour blindness.
    Palette(
        name="gpuwatch-colour-blind",
        primary="#56b4e9",
        secondary="#cc79a7",
        success="#2bb58f",
        warning="#f0e442",
        error="#e8743b",
        foreground="#d8dde4",
        background="#11151a",
        surface="#181d24",
        panel="#232a33",
    ),
)
DEFAULT = PALETTES[0].name
SIXTEEN = "gpuwatch-16"
"""A theme made of the terminal's own sixteen colours, on its own background."""


_CORRECTED: dict[str, dict[str, Any]] = {
    "textual-dark": {"accent": "#4ea8e0", "secondary": "#9d8cd6"},
    "textual-light": {"accent": "#1b6a8c", "success": "#2f7d1e", "warning": "#9a6100"},
    "monokai": {"secondary": "#66d9ef"},
    "flexoki": {"primary": "#4385be", "error": "#d14d41"},
    "catppuccin-latte": {"accent": "#8839ef", "secondary": "#147f85", "success": "#2f8a1f", "warning": "#a06000"},
    "solarized-light": {"secondary": "#1f857d", "success": "#6b7c00", "warning": "#a07800"},
    "rose-pine-dawn": {"accent": "#286983", "warning": "#a06a00"},
    "atom-one-light": {"accent": "#3a6fd8", "success": "#3a8a35", "warning": "#9a6a00"},
}
"""Textual's themes of which two colours that mean different things are alike, or one cannot be read."""


def textual_themes() -> tuple[Theme, ...]:
    """Our themes as Textual's objects, and those of Textual that need a correction."""
    from textual.theme import BUILTIN_THEMES, Theme

    sixteen = replace(
        BUILTIN_THEMES["ansi-dark"],
        name=SIXTEEN,
        primary="ansi_cyan",
        secondary="ansi_magenta",
        accent="ansi_cyan",
    )
    corrected = (replace(BUILTIN_THEMES[name], **colors) for name, colors in _CORRECTED.items())
    return (*(Theme(accent=palette.accent, **asdict(palette)) for palette in PALETTES), sixteen, *corrected)


def known_themes() -> tuple[str, ...]:
    """Names of all available themes: ours, then Textual's. Imports Textual."""
    from textual.theme import BUILTIN_THEMES

    return (*(palette.name for palette in PALETTES), SIXTEEN, *BUILTIN_THEMES)


def is_known(name: str) -> bool:
    """Whether the theme exists; imports Textual only for a name that is not ours."""
    return name == SIXTEEN or any(palette.name == name for palette in PALETTES) or name in known_themes()

"""The one table of colors: of the dashboard's own themes, and of each quantity in dashboard and reports.

State never depends on color alone.
"""

from __future__ import annotations

from dataclasses import dataclass

Color = tuple[int, int, int]

QUANTITIES = {
    "gpu": ("success", 1.0),
    "memory": ("secondary", 1.0),
    "power": ("primary", 1.0),
    "temperature": ("foreground", 0.85),
    "clock": ("foreground", 0.62),
}
"""The palette's color of each, and its share; the rest is background."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colors of one theme."""

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
        """The color of what is in focus: the primary one."""
        return self.primary


# fmt: off
PALETTES = (
    Palette(name="gpuwatch", primary="#7fb4ca", secondary="#9d8cd6", success="#8cc265", warning="#e0af5b",
        error="#ef6b73", foreground="#d5dae2", background="#11151a", surface="#181d24", panel="#232a33"),
    Palette(name="gpuwatch-light", primary="#1b6a8c", secondary="#6a4fb3", success="#2f7d1e", warning="#9a6100",
        error="#b8222f", foreground="#1d242c", background="#fafbfc", surface="#f0f2f5", panel="#dfe4ea", dark=False),
    Palette(name="gpuwatch-contrast", primary="#00d7ff", secondary="#ff87ff", success="#00ff5f", warning="#ffd700",
        error="#ff5f5f", foreground="#ffffff", background="#000000", surface="#000000", panel="#303030"),
    # Blue, bluish green, yellow and vermilion stay distinct in the common kinds of color blindness.
    Palette(name="gpuwatch-color-blind", primary="#56b4e9", secondary="#cc79a7", success="#2bb58f", warning="#f0e442",
        error="#e8743b", foreground="#d8dde4", background="#11151a", surface="#181d24", panel="#232a33"),
)
# fmt: on
DARK, LIGHT = PALETTES[:2]


def palette_of(theme: str) -> Palette | None:
    """One of gpuwatch's own themes; None for Textual's themes, whose colors are not known here."""
    return next((palette for palette in PALETTES if palette.name == theme), None)


def rgb(color: str) -> Color:
    """The parts of ``#7fb4ca``."""
    return (int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16))


def mix(over: Color, under: Color, share: float) -> Color:
    """``share`` of one color, the rest of another."""
    red, green, blue = (int(low + (high - low) * share) for high, low in zip(over, under, strict=True))
    return (red, green, blue)


def quantity_color(palette: Palette, name: str) -> str:
    """The color of one of :data:`QUANTITIES`, as ``#rrggbb``."""
    color, share = QUANTITIES[name]
    return "#{:02x}{:02x}{:02x}".format(*mix(rgb(getattr(palette, color)), rgb(palette.background), share))

"""Saving what was chosen; and the sheet that says why a broken file is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from gpuwatch.errors import GpuwatchError
from gpuwatch.formatting.text import printable
from gpuwatch.ui import preferences
from gpuwatch.ui.screens.lines_modal import Lines, LinesModal
from gpuwatch.ui.screens.tab import TabScreen


def save_settings(screen: TabScreen, path: Path | None = None) -> None:
    """Saves what is on screen, to ``path`` or the settings file, and says what became of it."""
    app = screen.gpuwatch
    path = path or app.settings_path
    try:
        preferences.save(app.gathered(), path)
    except preferences.Broken:
        broken = preferences.load(path)
        other = preferences.beside(path)

        def answered(wanted: bool | None) -> None:
            if wanted:
                save_settings(screen, other)

        app.push_screen(BrokenFile(broken, other), answered)
    except GpuwatchError as error:
        screen.say(f"{error.message}" + (f": {error.hint}" if error.hint else ""), "warning")
    else:
        screen.say(f"saved to {printable(str(path))}", "ok")


class BrokenFile(LinesModal[bool]):
    """Enter saves to the other file, Esc does nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "elsewhere", "save to the other file", show=False),
        Binding("w", "close", "close", show=False),
    ]

    def __init__(self, broken: preferences.Loaded, other: Path) -> None:
        lines: Lines = [
            [("The settings file is not written to while something in it is wrong:", "text")],
            [(printable(str(broken.path)), "dim")],
            [],
            *([("✖ ", "error"), (problem, "text")] for problem in broken.problems),
            [],
            [("Put it right and press w again, or press Enter to save to another file:", "text")],
            [(printable(str(other)), "strong")],
        ]
        super().__init__("Not saved", lines)
        self.sheet.ending = "Enter saves to the other file, Esc closes"

    def action_elsewhere(self) -> None:
        """To the file beside it."""
        self.dismiss(True)

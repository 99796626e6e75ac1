"""Saves the preferences to the settings file; a sheet explains why an invalid file is not overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.path_text import path_with_tilde
from gpuwatch.core.safe_text import printable
from gpuwatch.ui.drawing.styled_lines import SpanLines
from gpuwatch.ui.screens.sheet_bases import LinesSheet
from gpuwatch.ui.settings import settings_file
from gpuwatch.ui.widgets.preferences_app import PreferencesApp


def save_preferences(app: PreferencesApp, say: Callable[[str, str], object], path: Path | None = None) -> None:
    """Saves the current preferences to ``path`` or the settings file, and reports the result.

    If the same was saved last, this undoes it: the file gets its earlier contents, or is removed.
    """
    path, preferences = path or app.settings_file.path, app.current_preferences()
    shown = printable(path_with_tilde(path))
    try:
        last, app.saved = app.saved, None
        if last is not None and (last.path, last.preferences) == (path, preferences) and settings_file.undo_save(last):
            say(f"undone: {shown} {'restored' if last.before is not None else 'removed'}", "ok")
            return
        app.saved = settings_file.save_settings(preferences, path)
    except settings_file.InvalidSettingsFile:
        broken = settings_file.load_settings(path)
        other = settings_file.unused_path_beside(path)

        def save_to_other(confirmed: bool | None) -> None:
            if confirmed:
                save_preferences(app, say, other)

        app.push_screen(BrokenFile(broken, other), save_to_other)
    except GpuwatchError as error:
        say(f"{error.message}" + (f": {error.hint}" if error.hint else ""), "warning")
    else:
        say(f"saved, w again undoes it: {shown}", "ok")


class BrokenFile(LinesSheet[bool]):
    """Enter saves to the other file, Esc cancels."""

    def __init__(self, broken: settings_file.LoadedSettings, other: Path) -> None:
        lines: SpanLines = [
            [("The settings file has errors, so it is not overwritten:", "text")],
            [(printable(str(broken.path)), "dim")],
            [],
            *([("✖ ", "error"), (problem, "text")] for problem in broken.problems),
            [],
            [("Fix it and press w again, or press Enter to save to another file:", "text")],
            [(printable(str(other)), "strong")],
        ]
        super().__init__("Not saved", lines, keys={"enter": True, "w": None})
        self.pane.ending = "Enter saves to the other file, Esc closes"

"""The base of the app, with the preferences: applies and changes them, among them theme and ASCII mode."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.segment import Segment
from textual.app import App
from textual.color import Color
from textual.filter import LineFilter
from textual.widget import Widget

from gpuwatch.ui.drawing import textual_themes
from gpuwatch.ui.drawing.glyphs import ascii_key_name, to_ascii
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings, SavedSettings, default_path


class AsciiFilter(LineFilter):
    """Converts all output to ASCII just before it is written, including frames, palette and inputs."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            segment if segment.text.isascii() else Segment(to_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


class PreferencesApp(App[None]):
    """An app with preferences. Theme and ASCII mode are applied here, the rest where it is drawn."""

    def __init__(
        self, settings: LoadedSettings | None = None, *, ascii_only: bool = False, few_colors: bool = False
    ) -> None:
        """``ascii_only``: the terminal shows only ASCII, so ASCII mode is the default.

        ``few_colors``: it has only sixteen colors, so a theme of sixteen replaces the chosen one.
        """
        super().__init__()
        self._ascii_only = ascii_only
        self.settings_file = settings or LoadedSettings(default_path())
        """The settings file as it was read, with its problems."""
        self.preferences = self.settings_file.preferences
        """The preferences so far; :meth:`current_preferences` adds the state of the screen."""
        self.saved: SavedSettings | None = None
        """The last save, as long as it can be undone."""
        self._ascii_filter = AsciiFilter()
        for item in textual_themes.textual_themes():
            self.register_theme(item)
        chosen = self.preferences.theme
        if chosen not in self.available_themes:
            chosen = textual_themes.DEFAULT_THEME
        self._replaced_theme = chosen if few_colors and not self.available_themes[chosen].ansi else ""
        """The chosen theme, if one of sixteen colors replaces it."""
        self.theme = textual_themes.SIXTEEN_COLORS if self._replaced_theme else chosen

    def set_preferences(self, **changes: Any) -> None:
        """Changes preferences with immediate effect."""
        before, self.preferences = self.preferences, replace(self.preferences, **changes)
        if before.ascii != self.preferences.ascii:
            self._ascii_changed()
        if before != self.preferences:
            self.preferences_changed()

    @abstractmethod
    def preferences_changed(self) -> None:
        """Called after a change."""

    def current_preferences(self) -> Preferences:
        stands_in = self._replaced_theme and self.theme == textual_themes.SIXTEEN_COLORS
        return replace(self.preferences, theme=self._replaced_theme if stands_in else self.theme)

    # ASCII

    @property
    def ascii(self) -> bool:
        chosen = self.preferences.ascii
        return self._ascii_only if chosen is None else chosen

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = super().get_line_filters()
        return [*filters, self._ascii_filter] if self.ascii else filters

    def key_name(self, shown: str) -> str:
        """A key's name as this terminal can show it."""
        return ascii_key_name(shown) if self.ascii else shown

    def action_toggle_ascii(self) -> None:
        self.set_preferences(ascii=not self.ascii)

    def _ascii_changed(self) -> None:
        for screen in self.screen_stack:
            for widget in [screen, *screen.walk_children()]:
                if isinstance(widget, Widget):
                    widget.notify_style_update()
                    widget.refresh(layout=True)


def key_name(widget: Widget, shown: str) -> str:
    """A key's name as the terminal of a widget's app can show it."""
    app = widget.app
    return app.key_name(shown) if isinstance(app, PreferencesApp) else shown


def preferences_of(widget: Widget) -> Preferences:
    """The preferences of a widget's app."""
    app = widget.app
    return app.preferences if isinstance(app, PreferencesApp) else Preferences()

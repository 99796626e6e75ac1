"""The part of the app that knows what a person has chosen: applies it, changes it, saves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from textual.app import App
from textual.filter import LineFilter
from textual.widget import Widget

from gpuwatch.ui import theme
from gpuwatch.ui.ascii_filter import AsciiFilter
from gpuwatch.ui.glyphs import spelled
from gpuwatch.ui.preferences import Loaded, Preferences, default_path


class ChoosingApp(App[None]):
    """An app with preferences. Themes and ASCII mode take effect here, the rest where it is drawn."""

    def __init__(self, settings: Loaded | None = None, *, ascii_only: bool = False, few_colors: bool = False) -> None:
        """``ascii_only``: the terminal can show nothing else, so that is what is shown unless asked otherwise.

        ``few_colors``: it has sixteen, so a theme of sixteen stands in for the one that was chosen.
        """
        super().__init__()
        self._ascii_only = ascii_only
        self.settings_path = settings.path if settings is not None else default_path()
        self.preferences = settings.preferences if settings is not None else Preferences()
        """What was chosen so far; :meth:`gathered` adds what is on screen."""
        self.settings_file = settings
        """What the settings file said, and what is wrong with it."""
        self._ascii_filter = AsciiFilter()
        for one in theme.textual_themes():
            self.register_theme(one)
        chosen = self.preferences.theme if self.preferences.theme in self.available_themes else theme.DEFAULT
        self._stood_in_for = chosen if few_colors and not self.available_themes[chosen].ansi else ""
        """The theme that was chosen, where one of sixteen colours is shown in its place."""
        self.theme = theme.SIXTEEN if self._stood_in_for else chosen

    def prefer(self, **changes: Any) -> None:
        """Another choice, seen at once."""
        before, self.preferences = self.preferences, replace(self.preferences, **changes)
        if before.ascii != self.preferences.ascii:
            self._ascii_changed()
        if before != self.preferences:
            self.preferred()

    def preferred(self) -> None:
        """Draws what the choices changed."""
        raise NotImplementedError

    def gathered(self) -> Preferences:
        """Everything that would be saved now."""
        stands_in = self._stood_in_for and self.theme == theme.SIXTEEN
        return replace(self.preferences, theme=self._stood_in_for if stands_in else self.theme)

    # ASCII

    @property
    def ascii(self) -> bool:
        """Whether only ASCII is shown."""
        chosen = self.preferences.ascii
        return self._ascii_only if chosen is None else chosen

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's, and in ASCII mode the one that lets nothing else through."""
        filters = super().get_line_filters()
        return [*filters, self._ascii_filter] if self.ascii else filters

    def key_name(self, shown: str) -> str:
        """A key as this terminal can show it."""
        return spelled(shown) if self.ascii else shown

    def action_toggle_ascii(self) -> None:
        """Bars, frames and graphs out of ASCII, or again out of everything."""
        self.prefer(ascii=not self.ascii)

    def _ascii_changed(self) -> None:
        for screen in self.screen_stack:
            for widget in [screen, *screen.walk_children()]:
                if isinstance(widget, Widget):
                    widget.notify_style_update()
                    widget.refresh(layout=True)


def preferences_of(widget: Widget) -> Preferences:
    """What was chosen in the app that a widget belongs to."""
    app = widget.app
    return app.preferences if isinstance(app, ChoosingApp) else Preferences()

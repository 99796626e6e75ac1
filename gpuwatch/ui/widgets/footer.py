"""The footer: keys that work in the focused pane, from the table of actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from textual import events

from gpuwatch.ui.panes.key_line import key_line
from gpuwatch.ui.settings.actions import Action
from gpuwatch.ui.widgets.paint import Painted
from gpuwatch.ui.widgets.preferences_app import key_name


class KeyLine(Painted):
    """Keys with their titles; each can be clicked."""

    DEFAULT_CLASSES = "strip"

    def __init__(self, tab: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tab = tab
        self._pane = ""
        self._places: list[tuple[int, int, Action]] = []
        self._titles: Mapping[str, str] = {}
        self._note = ("", False)
        self._message = ("", "text")
        self._replay = False

    def show(
        self,
        pane: str,
        *,
        titles: Mapping[str, str],
        note: tuple[str, bool] = ("", False),
        message: tuple[str, str] = ("", "text"),
        replay: bool = False,
    ) -> None:
        """Shows the keys of a pane; ``note``: at the right, and whether it is a warning.

        ``titles``: titles that differ from the table of actions, by action id; empty: the action is unavailable.
        ``message``: the result of the last action, with its ink; it replaces keys. ``replay``: whether a recording is
        shown, which has keys of its own.
        """
        self._message, self._replay = message, replay
        self._pane, self._titles, self._note = pane, titles, note
        self.redraw()

    async def on_click(self, event: events.Click) -> None:
        for start, end, action in self._places:
            if start <= event.x < end:
                await self.app.run_action(action.run or f"screen.{action.id}")

    def _draw(self, width: int, height: int) -> None:
        line, self._places = key_line(
            width,
            self._pane,
            self._tab,
            titles=self._titles,
            note=self._note,
            message=self._message,
            replay=self._replay,
            name=partial(key_name, self),
        )
        self.paint((line,))

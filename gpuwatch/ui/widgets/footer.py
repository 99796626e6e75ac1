"""The last line: keys that work in the focused pane, from the table of actions."""

from __future__ import annotations

from collections.abc import Mapping

from textual import events

from gpuwatch.ui.actions import Action
from gpuwatch.ui.choices import ChoosingApp
from gpuwatch.ui.widgets.keys import key_line
from gpuwatch.ui.widgets.paint import Painted


class KeyLine(Painted):
    """Keys and what they do; each can be clicked."""

    DEFAULT_CLASSES = "strip"

    def __init__(self, tab: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tab = tab
        self._pane = ""
        self._places: list[tuple[int, int, Action]] = []
        self._titles: Mapping[str, str] = {}
        self._note = ("", False)
        self._said = ("", "text")

    def show(
        self,
        pane: str,
        *,
        titles: Mapping[str, str],
        note: tuple[str, bool] = ("", False),
        said: tuple[str, str] = ("", "text"),
    ) -> None:
        """Follows the focus; ``note`` stands at the right, a warning when it says that a filter hides rows.

        ``titles``: what actions are called now, by id, where that is not what the table says; empty: not now.
        ``said``: what was just done, with its ink; it takes the place of keys.
        """
        self._said = said
        self._pane, self._titles, self._note = pane, titles, note
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """What does not fit is left out, from the right, but never help and quit."""
        self._redraw()

    async def on_click(self, event: events.Click) -> None:
        """A click on a key does what the key does."""
        for start, end, action in self._places:
            if start <= event.x < end:
                await self.app.run_action(action.run or f"screen.{action.id}")

    def _redraw(self) -> None:
        if not self.size.width:
            return
        line, self._places = key_line(
            self.size.width,
            self._pane,
            self._tab,
            titles=self._titles,
            note=self._note,
            said=self._said,
            name=self.app.key_name if isinstance(self.app, ChoosingApp) else str,
        )
        self.paint((line,))

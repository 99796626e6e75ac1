"""The base of every sheet over a screen."""

from __future__ import annotations

from typing import Generic, TypeVar

from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.screen import ModalScreen

Result = TypeVar("Result")
MOVES = (
    Binding("up,k", "move(-1)", "up", show=False),
    Binding("down,j", "move(1)", "down", show=False),
    Binding("pageup", "move(-10)", "page up", show=False),
    Binding("pagedown", "move(10)", "page down", show=False),
    Binding("home,g", "move(-100000)", "first", show=False),
    Binding("end,G", "move(100000)", "last", show=False),
)
"""Keys that move in a sheet, as everywhere."""


class Modal(ModalScreen[Result], Generic[Result]):
    """A sheet that closes only once, however many keys and clicks are queued.

    Keys typed in one burst are queued before the first one is handled, and Textual's own ``dismiss`` pops
    whatever screen is on top: a second one would close the tab below, or the last screen.
    """

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Closes the sheet with a result; does nothing if it is not on top, for example already closed."""
        if self.app.screen is not self:
            done: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]
            return done
        return super().dismiss(result)

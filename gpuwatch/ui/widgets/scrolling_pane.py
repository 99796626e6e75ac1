"""The base of panes that show some of their lines: scroll position and cursor."""

from __future__ import annotations

from abc import abstractmethod

from gpuwatch.ui.widgets.painted_pane import PaintedPane


class ScrollingPane(PaintedPane):
    """The base of lists and sheets."""

    top = 0
    """The first visible line."""
    cursor: int | None = None
    """The line under the cursor; None: there is no cursor, and keys scroll."""

    @property
    @abstractmethod
    def count(self) -> int:
        """All lines."""

    @property
    @abstractmethod
    def room(self) -> int:
        """Lines that fit."""

    def move_by(self, rows: int) -> None:
        """Moves the cursor down, or up if negative; without one, scrolls."""
        if self.cursor is None:
            self.top += rows
        else:
            self.put_cursor(self.cursor + rows)
        self.redraw()

    def put_cursor(self, number: int) -> None:
        """Moves the cursor to a line and scrolls it into view."""
        self.cursor = min(max(number, 0), max(self.count - 1, 0))
        self.bring_into_view()

    def bring_into_view(self) -> None:
        """Scrolls to the cursor, if there is one."""
        if self.cursor is not None:
            self.top = min(max(self.top, self.cursor - self.room + 1), self.cursor)

    def limit_top(self) -> None:
        """Scrolls back if lines below the last one would be shown."""
        self.top = min(max(self.top, 0), max(self.count - self.room, 0))

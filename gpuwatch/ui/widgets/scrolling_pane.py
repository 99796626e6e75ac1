"""The base of panes that show some of their lines: scroll position and cursor, which typed names move, too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

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


_IN_NAMES = frozenset("-_.@+$:%")
"""Characters of names besides letters and digits; only after a letter, because some are keys."""

_MOVES = frozenset("jkgG")
"""Letters that move in every list; as the first one of a name only where a name begins with it."""


class TypeAhead:
    """What was typed so far; a letter that does not continue it begins a new name."""

    text = ""

    def forget(self) -> None:
        """Called when the cursor moves by itself: what is typed next begins a name."""
        self.text = ""

    def continues_name(self, char: str) -> bool:
        """Whether a character is part of a name, not a key, though no name may have it."""
        return bool(self.text and char in _IN_NAMES) or (char.isalpha() and (bool(self.text) or char not in _MOVES))

    def find_line(self, names: Sequence[str], char: str, here: int) -> int | None:
        """The line whose name is, begins with or has what was typed, from line ``here`` on; None: no name has it."""
        names = [name.lower() for name in names]
        behind = [*range(here + 1, len(names)), *range(min(here + 1, len(names)))]
        for typed, order in ((self.text + char.lower(), [*behind[-1:], *behind[:-1]]), (char.lower(), behind)):
            begins = next((n for n in order if names[n].startswith(typed)), None)
            inside = next((n for n in order if len(typed) > 1 and typed in names[n]), None)
            found = names.index(typed) if typed in names else begins if begins is not None else inside
            if found is not None:
                self.text = typed
                return found
        return None

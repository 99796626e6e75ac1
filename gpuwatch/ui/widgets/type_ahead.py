"""Type-ahead in a list: letters that are typed move the cursor to the line with that name, and are not keys."""

from __future__ import annotations

from collections.abc import Sequence

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

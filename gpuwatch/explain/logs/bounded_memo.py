"""What has been seen of a log, in bounded memory."""

from __future__ import annotations

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_MAX_ENTRIES = 4096


class BoundedMemo(dict[_Key, _Value]):
    """Forgets everything when it is full: the lines of a log repeat, so it is soon filled with those that do again."""

    def keep(self, key: _Key, value: _Value) -> None:
        if len(self) >= _MAX_ENTRIES:
            self.clear()
        self[key] = value

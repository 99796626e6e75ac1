"""What has been seen of a log, in bounded memory."""

from __future__ import annotations

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_MAX_ENTRIES = 4096
_DIGITS = b"0123456789"


class BoundedMemo(dict[_Key, _Value]):
    """Forgets everything when it is full: the lines of a log repeat, so it is soon filled with those that do again."""

    def keep(self, key: _Key, value: _Value) -> None:
        if len(self) >= _MAX_ENTRIES:
            self.clear()
        self[key] = value


def message_shape(message: str) -> bytes:
    """A message without its digits: what messages of one kind have in common."""
    return message.encode("utf-8", "replace").translate(None, _DIGITS)

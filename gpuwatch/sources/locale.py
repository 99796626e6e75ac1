"""What the user said of the locale, which Python changes at its start where it is C (PEP 538)."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress

_NAME = b"LC_CTYPE="


def undo_coercion(environment: MutableMapping[str, str]) -> None:
    """Gives ``LC_CTYPE`` the value that this process was started with, for its text and for programs it starts.

    Nothing happens where Python did not find the locale C, or where the kernel does not tell.
    """
    if not sys.flags.utf8_mode or "LC_CTYPE" not in environment:
        return  # the C locale switches it on (PEP 540)
    with suppress(OSError):
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # no pathlib: it costs the start
            given = [entry for entry in file.read().split(b"\0") if entry.startswith(_NAME)]
        if given:
            environment["LC_CTYPE"] = os.fsdecode(given[0][len(_NAME) :])
        else:
            del environment["LC_CTYPE"]

"""Restores the user's ``LC_CTYPE``, which Python overrides at its start in the C locale (PEP 538)."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress

_NAME = b"LC_CTYPE="


def undo_coercion(environment: MutableMapping[str, str]) -> None:
    """Sets ``LC_CTYPE`` to the value that this process was started with, for its own text and its child processes.

    Does nothing if Python did not coerce the locale, or if ``/proc/self/environ`` cannot be read.
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

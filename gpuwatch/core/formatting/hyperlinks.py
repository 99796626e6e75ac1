"""Links in a terminal (OSC 8): https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from gpuwatch.core.formatting.terminal_support import DUMB_TERMINALS, PLAIN_TERMINALS

_NO_LINKS = frozenset({"", *DUMB_TERMINALS})


def links_allowed(environment: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether links may be written: to a terminal that ignores at least what it does not know.

    NO_COLOR asks for plain text, and FORCE_HYPERLINK=0 for text without links.
    """
    term = environment.get("TERM", "")
    return (
        terminal
        and term not in _NO_LINKS
        and not PLAIN_TERMINALS.match(term)  # some of these would print them
        and not environment.get("NO_COLOR")
        and environment.get("FORCE_HYPERLINK") != "0"
    )


def file_url(path: Path) -> str:
    """``file://host/path``: with the host, a terminal at the other end of ssh does not open its own file."""
    return f"file://{quote(os.uname().nodename)}{quote(str(path.absolute()))}"


def hyperlink(text: str, url: str) -> str:
    """``text`` as a link."""
    return f"\x1b]8;;{url}\x1b\\{text}\x1b]8;;\x1b\\"

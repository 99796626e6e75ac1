"""What the terminal and the locale can show, for the dashboard and for text; and links in text (OSC 8).

Links: https://gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda.
"""

from __future__ import annotations

import locale
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that support it show the text between as one update; others ignore it."""
PLAIN_TERMINALS = re.compile(r"^(linux|linux-.*|vt[0-9].*|ansi|cons[0-9].*|sun.*)$")
"""Terminals with fonts of at most 512 glyphs, without braille and eighths of cells."""
DUMB_TERMINALS = frozenset({"dumb", "unknown"})
_DRAWN_SYMBOLS = "▕█▏⣿─╭→–●✖▲"
_PLAIN_LOCALES = frozenset({"C", "POSIX"})
_COLOR_VARIABLES = ("NO_COLOR", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_FILTERS", "TEXTUAL_THEME", "TEXTUAL_DRIVER")
"""Variables that make Textual use other colors or another output."""


def why_only_ascii(environment: Mapping[str, str], encoding: str | None, *, terminal: bool = True) -> str:
    """Why only ASCII can be shown; empty if everything can be.

    ``encoding`` is that of the program's output. LC_ALL, LC_CTYPE or LANG of the user take precedence: in the C locale
    Python writes UTF-8 unasked (PEP 538 and 540; what it put into LC_CTYPE,
    ``gpuwatch.cli.entry_point`` has removed). ``terminal``: whether the output
    goes to a terminal; TERM says nothing about a file.
    """
    term = environment.get("TERM", "")
    if terminal and PLAIN_TERMINALS.match(term):
        return f"TERM is {term}"
    # POSIX: the first variable that is not empty.
    user_locale = next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    if user_locale in _PLAIN_LOCALES:
        return f"the locale is {user_locale}"
    codeset = user_locale.partition("@")[0].partition(".")[2]
    for name in filter(None, (codeset, encoding or locale.getpreferredencoding(False))):
        try:
            _DRAWN_SYMBOLS.encode(name)
        except (UnicodeEncodeError, LookupError):
            return f"the locale's encoding is {name}"
    return ""


def why_cannot_draw(environment: Mapping[str, str]) -> str:
    """Why the dashboard cannot be drawn on this terminal; empty if it can.

    A dumb terminal cannot move its cursor.
    """
    term = environment.get("TERM", "")
    return f"TERM is {term}, which cannot move the cursor" if term in DUMB_TERMINALS else ""


def has_few_colors(environment: Mapping[str, str]) -> bool:
    """Whether the terminal has at most sixteen colors, by the variables that Rich reads."""
    if environment.get("NO_COLOR") or environment.get("TEXTUAL_COLOR_SYSTEM", "auto") != "auto":
        return False  # the user has chosen
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return False
    return environment.get("TERM", "").strip().lower().rpartition("-")[2] not in ("256color", "kitty")


def color_depth(environment: Mapping[str, str]) -> int:
    """Color depth of this terminal in bits: 24 or 8; 0 for less, and where Textual may use other colors or none."""
    if any(environment.get(name) for name in _COLOR_VARIABLES):
        return 0
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return 24
    return 8 if environment.get("TERM", "").strip().lower().endswith(("-256color", "-kitty")) else 0


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


def hyperlink(text: str, url: str) -> str:
    """``text`` as a link."""
    return f"\x1b]8;;{url}\x1b\\{text}\x1b]8;;\x1b\\"


def terminal_columns(path: Path) -> int | None:
    """Columns of the terminal that ``path`` is (``/dev/stderr``); None for anything else."""
    try:
        if not stat.S_ISCHR(path.stat().st_mode):  # a pipe that is opened and closed has ended for its reader
            return None
        descriptor = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.get_terminal_size(descriptor).columns
    except OSError:  # not a terminal
        return None
    finally:
        os.close(descriptor)

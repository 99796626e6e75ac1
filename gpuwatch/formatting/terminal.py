"""What the terminal and the locale can show. One rule, for the dashboard and for text."""

from __future__ import annotations

import locale
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.formatting.text import printable

SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""Synchronized output: terminals that support it show the text between as one update; others ignore it."""
_PLAIN_TERMINALS = re.compile(r"^(linux|linux-.*|vt[0-9].*|ansi|cons[0-9].*|sun.*)$")
"""Terminals whose fonts have 256 or 512 glyphs at most; braille and eighths of cells are not among them."""
_DUMB = frozenset({"dumb", "unknown"})
_SAMPLE = "▕█▏⣿─╭→–●✖▲"
_PLAIN_LOCALES = frozenset({"C", "POSIX"})


def needs_ascii(environment: Mapping[str, str], encoding: str | None, *, terminal: bool = True) -> str:
    """Why only ASCII can be shown; empty where everything can be.

    ``encoding`` is that of the program's output. What the user says in LC_ALL, LC_CTYPE or LANG goes before it:
    Python writes UTF-8 where the locale is C (PEP 538 and 540), though nobody asked for it. What it put into LC_CTYPE
    by itself is no longer there (:func:`gpuwatch.sources.locale.undo_coercion`). ``terminal`` is whether the output
    goes to one; TERM says nothing of a file.
    """
    term = environment.get("TERM", "")
    if terminal and _PLAIN_TERMINALS.match(term):
        return f"TERM is {term}"
    asked = _asked(environment)
    if asked in _PLAIN_LOCALES:
        return f"the locale is {asked}"
    codeset = asked.partition("@")[0].partition(".")[2]
    for name in filter(None, (codeset, encoding or locale.getpreferredencoding(False))):
        try:
            _SAMPLE.encode(name)
        except (UnicodeEncodeError, LookupError):
            return f"the locale's encoding is {name}"
    return ""


def cannot_draw(environment: Mapping[str, str]) -> str:
    """Why nothing can be drawn on this terminal; empty where it can.

    A dumb one moves no cursor: lines of text are all that it shows.
    """
    term = environment.get("TERM", "")
    return f"TERM is {term}, a terminal on which nothing can be drawn" if term in _DUMB else ""


def has_few_colors(environment: Mapping[str, str]) -> bool:
    """Whether the terminal says of itself that it has sixteen colors at most, by the same signs as Rich reads."""
    if environment.get("NO_COLOR") or environment.get("TEXTUAL_COLOR_SYSTEM", "auto") != "auto":
        return False  # somebody has said what is wanted
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return False
    return environment.get("TERM", "").strip().lower().rpartition("-")[2] not in ("256color", "kitty")


def _asked(environment: Mapping[str, str]) -> str:
    """The locale for characters, as the user set it (POSIX: the first that is not empty); empty where none is set."""
    return next(filter(None, (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))), "")


def file_name(path: Path | str) -> str:
    """The name of a file as stderr can show it, every byte that it cannot as ``\\xc3``; it stays one line."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return printable(os.fsencode(path).decode(encoding, "backslashreplace"))

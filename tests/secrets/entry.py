"""One entry of the corpus, and how one is written.

In a text that is handed to the functions below, `hide` has marked what is secret. The marks are taken off again, and
what stood between them becomes `Secret.secret`: the whole value, its last eight characters where it is long (a mask
that shows four is good), and its pieces where quotes, spaces or signs stand in it (a mask that stops at the first of
them leaks the rest).
"""

import re
from dataclasses import dataclass
from typing import Literal

Context = Literal["argv", "environment", "log", "traceback", "text"]

START, END = "\x01", "\x02"
LONG = 16
TAIL = 8
SHORTEST_PIECE = 4
# A mask may show the first few characters of a long token; base64 has signs anywhere.
SHORTEST_PIECE_OF_BASE64 = 12


@dataclass(frozen=True)
class Secret:
    """What must not be shown. `text` is a tuple of arguments for "argv", else a string ("environment":
    NAME=VALUE).

    None of `secret` may be left in what is shown; `keeps` should be. `hard`: needs judgement. `held_out`: for scoring
    only, not for learning.
    """

    id: str
    kind: str
    context: Context
    text: str | tuple[str, ...]
    whole: tuple[str, ...]
    secret: tuple[str, ...]
    keeps: tuple[str, ...] = ()
    hard: bool = False
    held_out: bool = False

    @property
    def line(self) -> str:
        """The text; arguments are joined by spaces, as process lists do it."""
        return self.text if isinstance(self.text, str) else " ".join(self.text)


@dataclass(frozen=True)
class Innocent:
    """What looks like a secret and is none; its `text` must stay as it is, character for character."""

    id: str
    kind: str
    context: Context
    text: str | tuple[str, ...]
    hard: bool = False
    held_out: bool = False

    @property
    def line(self) -> str:
        """The text; arguments are joined by spaces, as process lists do it."""
        return self.text if isinstance(self.text, str) else " ".join(self.text)


def hide(value: str) -> str:
    """The value, marked as secret."""
    return f"{START}{value}{END}"


def bare(text: str) -> str:
    """The text without marks."""
    return text.replace(START, "").replace(END, "")


def marked(text: str) -> tuple[str, ...]:
    """What is marked in the text."""
    return tuple(re.findall(f"{START}([^{START}{END}]*){END}", text))


def pieces(value: str) -> tuple[str, ...]:
    """The value and the parts of it that must not be left either."""
    found = [value]
    if len(value) >= LONG:
        found.append(value[-TAIL:])
    is_base64 = len(value) >= LONG and re.fullmatch(r"[\w+/=.-]+", value)
    shortest = SHORTEST_PIECE_OF_BASE64 if is_base64 else SHORTEST_PIECE
    parts = [part for part in re.split(r"[\s'\"`\\@#&;:/?$%!,=+(){}<>|*^~]+", value) if len(part) >= shortest]
    found += [part for part in parts if part != value]
    return tuple(dict.fromkeys(found))


def make(kind: str, context: Context, text: str | tuple[str, ...], keeps: tuple[str, ...], hard: bool) -> Secret:
    """An entry out of marked text; the corpus gives it its id."""
    together = text if isinstance(text, str) else "\n".join(text)
    whole = tuple(dict.fromkeys(marked(together)))
    secret = tuple(dict.fromkeys(piece for value in whole for piece in pieces(value)))
    shown = bare(text) if isinstance(text, str) else tuple(bare(part) for part in text)
    return Secret("", kind, context, shown, whole, secret, keeps, hard)


def argv(kind: str, *arguments: str, keeps: tuple[str, ...] = (), hard: bool = False) -> Secret:
    """A command line, one string an argument; the program's name stays."""
    return make(kind, "argv", arguments, (arguments[0], *keeps), hard)


def env(kind: str, name: str, value: str, keeps: tuple[str, ...] = (), hard: bool = False) -> Secret:
    """A variable of the environment; all of its value is secret unless something in it is marked."""
    value = value if START in value else hide(value)
    return make(kind, "environment", f"{name}={value}", (name, *keeps), hard)


def log(kind: str, text: str, keeps: tuple[str, ...] = (), hard: bool = False) -> Secret:
    """One line or more of a log."""
    return make(kind, "log", text, keeps, hard)


def text(kind: str, content: str, keeps: tuple[str, ...] = (), hard: bool = False) -> Secret:
    """A piece of a file or of a shell."""
    return make(kind, "text", content, keeps, hard)


def traceback_text(source: str, error: str) -> str:
    """A traceback as CPython 3.11 prints it."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/home/mia/project/train.py", line 42, in <module>\n'
        f"    {source}\n"
        f"{error}"
    )


def trace(
    kind: str,
    source: str,
    error: str = "RuntimeError: connection refused",
    keeps: tuple[str, ...] = (),
    hard: bool = False,
) -> Secret:
    """A traceback that shows `source`."""
    return make(kind, "traceback", traceback_text(source, error), ("train.py", *keeps), hard)

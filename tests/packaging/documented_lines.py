"""The command lines of README and of the pages in gpuwatch/docs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "gpuwatch" / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "causes").glob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PUNCTUATION = "|&;()<>\n"
PLACEHOLDERS = {
    "ADDRESS": "127.0.0.1:6379",
    "COMMAND": "true",
    "FILE": "night.gpuwatch",
    "RECORDING": "night.gpuwatch",
    "OUT": "out.csv",
    "ID": "healthy",
    "NAME": "default",
    "PATH": "python",
    "RUN": "run.json",
    "RUN...": "run.json other.json",
    "URL": "http://127.0.0.1:1",
    "A": "run.json",
    "B": "other.json",
    "$table": "lives",
    "$table.parquet": "lives.parquet",
}
"""What stands for something else on a page, and what stands for it in a test."""


class Line(NamedTuple):
    """One command line. ``whole``: it stands in a block, or alone in a cell, to be typed as it is."""

    page: str
    text: str
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def lines() -> Iterator[Line]:
    """All of them, each once a page."""
    for path in PAGES:
        page, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        found = dict[str, bool]()
        for kind, block in _FENCE.findall(text):
            found |= dict.fromkeys(_commands(kind, block) if kind in ("sh", "console", "") else (), True)
        for span in re.findall(r"`([^`\n]+)`", _FENCE.sub("", text)):
            if span.startswith("gpuwatch "):
                found.setdefault(span, False)
        yield from (Line(page, line, whole) for line, whole in found.items())


def _commands(kind: str, block: str) -> Iterator[str]:
    """Lines that start gpuwatch, by themselves or in a pipe; a loop, or a line that goes on, is one line."""
    if kind != "sh":
        block = "".join(f"{line}\n" for line in re.findall(r"(?m)^\$ (.*)$", block))
    whole = ""
    for line in block.replace("\\\n", " ").splitlines():
        whole += f"{line}\n"
        if whole.count('"') % 2 or (whole.startswith("for ") and line != "done"):
            continue
        if calls(whole):
            yield whole.strip()
        whole = ""


def calls(line: str) -> list[list[str]]:
    """The arguments of each gpuwatch in a line of shell, with something in the place of placeholders."""
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=_PUNCTUATION)
        lexer.whitespace, lexer.whitespace_split = " \t", True
        words = list(lexer)
    except ValueError:
        return []  # no line of shell, or the first of several
    found: list[list[str]] = []
    simple: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set(_PUNCTUATION):
            if arguments := _arguments(simple):
                found.append(arguments)
            simple = []
        else:
            simple.append(word)
    return found


def _arguments(words: list[str]) -> list[str] | None:
    """What follows ``gpuwatch``, also behind variables and behind a command that starts it elsewhere."""
    at = [number for number, word in enumerate(words) if word in ("gpuwatch", ".venv/bin/gpuwatch")]
    starts = [n for n in at if n == 0 or "=" in words[n - 1] or words[n - 1] == "do" or words[0] in ("ssh", "claude")]
    if not starts:
        return None
    words = words[starts[-1] + 1 :]
    return [part for word in words for part in (PLACEHOLDERS[word].split() if word in PLACEHOLDERS else [word])]

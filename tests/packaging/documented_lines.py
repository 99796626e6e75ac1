"""The command lines of README and of the pages in gpuwatch/docs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
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


SHAPE = "2x24GiB"


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


def filled(line: str) -> str:
    """The line with something in the place of placeholders."""
    return re.sub(r"(?<!\S)\S+(?!\S)", lambda word: PLACEHOLDERS.get(word[0], word[0]), line)


def on_simulated_gpus(given: list[str], commands: Collection[str]) -> list[str]:
    """The arguments of gpuwatch; one of ``commands``, or the dashboard, gets simulated GPUs if it asks for none."""
    command = next((word for word in given if not word.startswith("-")), "")
    of_a_file = command == "report" and any(word.endswith((".gpuwatch", ".json")) for word in given)
    another = of_a_file or bool({"info", "check", "cut"} & set(given))
    here = given.index(command) + 1 if command in commands and not another else 0
    wants = "--sim" not in given and (here or all(word.startswith("-") for word in given[:1]))
    listening = ["--listen", "127.0.0.1:0"] if command == "exporter" else []  # whatever else listens on this machine
    return [*given[:here], *(["--sim", SHAPE] if wants else []), *given[here:], *listening]


def _arguments(words: list[str]) -> list[str] | None:
    """What follows ``gpuwatch``, also behind variables and behind a command that starts it elsewhere."""
    at = [number for number, word in enumerate(words) if word in ("gpuwatch", ".venv/bin/gpuwatch")]
    starts = [n for n in at if n == 0 or "=" in words[n - 1] or words[n - 1] == "do" or words[0] in ("ssh", "claude")]
    if not starts:
        return None
    words = words[starts[-1] + 1 :]
    return [part for word in words for part in (PLACEHOLDERS[word].split() if word in PLACEHOLDERS else [word])]

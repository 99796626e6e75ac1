"""Tokens known by their shape: prefix, alphabet and length.

The vendors publish the shapes, or all of their tokens show them; ``token_shapes.txt`` has each with its source.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple


class Shape(NamedTuple):
    """``prefixes`` followed by at least ``least`` characters of ``alphabet``; by exactly so many where ``exact``."""

    prefixes: tuple[str, ...]
    alphabet: str
    least: int
    source: str
    exact: bool = False


def _read(line: str) -> Shape:
    alphabet, least, source, *prefixes = line.split("\t")
    return Shape(tuple(prefixes), alphabet, int(least.rstrip("!")), source, least.endswith("!"))


SHAPES: Final = tuple(
    _read(line)
    for line in Path(__file__).with_name("token_shapes.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)


_BESIDE: Final[dict[tuple[str, ...], str]] = {("SK", "AC"): r"(?:[\"',:\s]{1,6}[0-9a-f]{32}(?![0-9a-f]))?"}
"""Twilio's secret has no prefix, but follows its identifier."""


def _compiled(shape: Shape) -> re.Pattern[str]:
    length = f"{{{shape.least}}}(?![A-Za-z0-9])" if shape.exact else f"{{{shape.least},}}+"
    return re.compile(f"[{shape.alphabet}]{length}{_BESIDE.get(shape.prefixes, '')}")


_RESTS: Final = (
    *((prefix, _compiled(shape)) for shape in SHAPES for prefix in shape.prefixes),
    # JSON Web Tokens (RFC 7519): two or three parts of base64url, the first of which begins with {".
    ("eyJ", re.compile(r"(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]++)*+")),
    # Keys in DER (RFC 5958) as base64 in one line.
    *((prefix, re.compile(r"[\w+/]{40,}+={0,2}")) for prefix in ("MII", "MIC")),
)
_DISCORD = re.compile(r"[MNO](?<![\w-].)[\w-]{22,27}\.[\w-]{5,7}\.[\w-]{27,45}")
"""The id of the bot, the time and a signature, each in base64url (discord.com/developers: authentication)."""
_TERRAFORM = re.compile(r"(?<![\w.-])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}+")
"""developer.hashicorp.com/terraform/cloud-docs: API tokens."""
_BOOTSTRAP = re.compile(r"(?<![\w.])(?=[a-z]{0,5}\d)[a-z0-9]{6}\.(?=[a-z]{0,15}\d)[a-z0-9]{16}(?![\w.])")
"""kubernetes.io/docs: bootstrap tokens."""
_TELEGRAM = re.compile(r"(?<!\d)\d{8,10}:AA[\w-]{32,34}(?![\w-])")
"""The id of the bot and 35 characters (core.telegram.org/bots/api)."""


_RUN = re.compile(r"[A-Za-z0-9_-]{12}")
"""Each of these tokens has as many characters in a row."""


def without_tokens(text: str, mask: str) -> str:
    """``text`` with ``mask`` in place of tokens. Takes linear time."""
    if not _RUN.search(text):
        return text
    spans = []
    for prefix, rest in _RESTS:
        at = text.find(prefix)
        while at >= 0:
            end = at + len(prefix)
            if not (at and text[at - 1].isalnum() and text[at - 1].isascii()) and (match := rest.match(text, end)):
                spans.append((at, match.end()))
                end = match.end()
            at = text.find(prefix, end)
    if text.count(".") > 1:
        spans += (match.span() for match in _DISCORD.finditer(text))
    if "token" in text:
        spans += (match.span() for match in _BOOTSTRAP.finditer(text))
    if ".atlasv1." in text:
        spans += (match.span() for match in _TERRAFORM.finditer(text))
    if ":AA" in text:
        spans += (match.span() for match in _TELEGRAM.finditer(text))
    if not spans:
        return text
    shown: list[str] = []
    done = 0
    for begin, end in sorted(spans):
        if begin >= done:
            shown += (text[done:begin], mask)
        done = max(done, end)
    return "".join((*shown, text[done:]))

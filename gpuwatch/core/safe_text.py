"""Text from outside (command lines, device names, logs), made harmless for screens, files and JSON.

Characters that control a terminal, hide text or reorder it are made visible, or escaped in JSON. Sources: Unicode
Standard Annex 9 (bidirectional controls), Unicode Technical Report 36 (invisible characters that deceive), RFC 5892
appendix A (where joiners have a meaning), UTS 51 (emoji sequences).
"""

from __future__ import annotations

import re
import unicodedata

_BELOW_SPACE = "\x00-\x1f"
_UNSAFE = (
    "\x7f-\x9f"  # C1 controls
    "\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, directions, separators
    "\u115f\u1160\u3164\uffa0\u17b4\u17b5"  # letters that look like nothing
    "\U000e0000-\U000e0fff"  # tags, and selectors that carry hidden text
)
_UNSAFE_IN_LINE = re.compile(f"[{_BELOW_SPACE}{_UNSAFE}]")
_UNSAFE_IN_JSON = re.compile(f"[{_UNSAFE}]")
"""JSON text already has control characters below the space escaped; newlines between its parts stay."""
_NOT_PRINTABLE = re.compile(f"[{_BELOW_SPACE}{_UNSAFE}\ud800-\udfff]")
_JOINERS = "\u200c\u200d"
_EMOJI_MODIFIERS = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]+$")


def is_printable(text: str) -> bool:
    """Whether :func:`printable` would change nothing, by a quick check that is cheap enough for every frame."""
    return _NOT_PRINTABLE.search(text) is None


def printable(text: str) -> str:
    """``text`` on one line with every control character made visible (``\\x1b``)."""
    if text.isascii() and text.isprintable():
        return text
    cleaned = _UNSAFE_IN_LINE.sub(_visible, text)
    return cleaned.encode("utf-8", "replace").decode("utf-8")  # lone surrogates


def printable_lines(text: str) -> str:
    """:func:`printable` for multi-line text, keeping its line ends."""
    if not _UNSAFE_IN_JSON.search(text) and not _UNSAFE_IN_LINE.search(text.replace("\n", "")):
        return text
    return "\n".join(printable(line) for line in text.split("\n"))


def escape_in_json(json_text: str) -> str:
    """The same JSON with these characters escaped, safe for terminals and editors."""
    return _UNSAFE_IN_JSON.sub(_escape, json_text)


def _visible(match: re.Match[str]) -> str:
    char = match[0]
    if char in "\t\n\r":
        return " "
    if char in _JOINERS and _is_needed_joiner(match.string, match.start()):
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape(match: re.Match[str]) -> str:
    pair = match[0].encode("utf-16-be")
    return "".join(f"\\u{pair[at]:02x}{pair[at + 1]:02x}" for at in range(0, len(pair), 2))


def _is_needed_joiner(text: str, at: int) -> bool:
    """Whether the joiner at ``at`` joins letters or one emoji; between other characters it is only invisible."""
    before, after = _EMOJI_MODIFIERS.sub("", text[max(at - 4, 0) : at])[-1:], text[at + 1 : at + 2]
    if _is_shaped(before):
        return text[at] == "\u200d" or _is_shaped(after)
    return text[at] == "\u200d" and _is_symbol(before) and _is_symbol(after)


def _is_shaped(char: str) -> bool:
    """Whether it is a letter or mark of a script in which joiners matter (Arabic, Indic and others)."""
    return "\u0600" <= char < "\u1c80" and unicodedata.category(char)[0] in "LM"


def _is_symbol(char: str) -> bool:
    return bool(char) and unicodedata.category(char) == "So"


def cut_line(line: str, most: int) -> str:
    """At most ``most`` characters of a line: its start, or a progress bar's last states, as it overwrites itself."""
    if len(line) <= most:
        return line
    state = line.find("\r", len(line) - most)
    return line[:most] if state < 0 else line[state + 1 :]


def last_line(text: str) -> str:
    """The last line that is not blank, without the space around it; empty without one."""
    return text.rstrip().rpartition("\n")[2].strip()


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, with an ellipsis if something was cut."""
    if len(text) <= width:
        return text
    return text[: max(width - 1, 0)] + "…" if width > 0 else ""


_NUMBER = re.compile(r"-?\d{1,300}(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_FORMULA = frozenset("=+-@＝＋－＠|%")


def safe_cell(value: object) -> object:
    """The value of a cell: no text of it is run as a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, (int, float)):
        return value
    text = printable(str(value))
    if _NUMBER.fullmatch(text):
        return text
    # A spreadsheet would run such a cell as a formula; some accept full-width signs too.
    return f"'{text}" if text.lstrip()[:1] in _FORMULA else text

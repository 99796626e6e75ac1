"""Settings at their default as comments with their meaning, in the text of a settings file. Pure, no Textual."""

from __future__ import annotations

import json
import re

from gpuwatch.ui.settings.preferences import SETTINGS, Preferences, Setting

_HEADER = re.compile(r"^\s*\[\s*([\w\-]+)\s*\]\s*(#.*)?$")
_ANY_HEADER = re.compile(r"^\s*\[")


def comment(setting: Setting) -> str:
    """``# interval = 1.0  # seconds between samples``."""
    default = getattr(Preferences(), setting.field)
    value = setting.shown(default) if default is not None else setting.example
    meaning = f"  # {setting.help}" if setting.help else ""
    # What JSON writes of these values (text, numbers, flags, lists of text) is TOML.
    return f"# {setting.key} = {json.dumps(value, ensure_ascii=False)}{meaning}"


def with_comments(text: str, document: dict[str, object]) -> str:
    """``text`` with a comment for each setting that ``document``, its content, leaves at the default.

    A comment about a setting that is set by now goes, if it is one of these; others stay, also outdated ones.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    for table in dict.fromkeys(setting.table for setting in SETTINGS):
        of_table = [setting for setting in SETTINGS if setting.table == table]
        content = document.get(table, {}) if table else document
        if not isinstance(content, dict):
            continue
        span = _span(lines, table)
        if span is None and table in document:
            continue  # written in another way: dotted keys, an inline table
        if span is None:
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
            span = len(lines), len(lines)
        start, end = span
        made = {comment(setting) for setting in of_table if setting.key in content}
        kept = [line for line in lines[start:end] if line.strip() not in made]
        named = [
            setting
            for setting in of_table
            if setting.key not in content
            and not any(re.match(rf"\s*#\s*{re.escape(setting.key)}\s*=", line) for line in kept)
        ]
        place = _end_of_section(kept, is_last=end == len(lines))
        gap = [""] if named and end < len(lines) and (not kept[place:] or kept[place].strip()) else []
        lines[start:end] = [*kept[:place], *map(comment, named), *gap, *kept[place:]]
    return newline.join(lines) + newline


def _span(lines: list[str], table: str) -> tuple[int, int] | None:
    """The lines of a table, without its header; None if it has no header."""
    start = 0
    if table:
        heads = [number for number, line in enumerate(lines) if (m := _HEADER.match(line)) and m[1] == table]
        if not heads:
            return None
        start = heads[0] + 1
    return start, next((n for n in range(start, len(lines)) if _ANY_HEADER.match(lines[n])), len(lines))


def _end_of_section(lines: list[str], *, is_last: bool) -> int:
    """Behind the last line, but before a comment that stands on the header of the next table."""
    end = len(lines)
    if not is_last:
        while end and lines[end - 1].lstrip().startswith("#"):
            end -= 1
        if end == 0:  # the comment at the head of the file
            end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return end

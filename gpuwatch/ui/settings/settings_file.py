"""The TOML file that stores the preferences. Pure, no Textual.

Of an invalid file the valid part is used, and the file is never overwritten. Unknown keys (misspelled, or of another
version) are reported and left as they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuwatch.core import input_size_limits, user_folders
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.suggest import closest_name
from gpuwatch.core.private_folders import why_untrusted
from gpuwatch.core.safe_text import printable
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.settings.preferences import SETTINGS, InvalidValue, Preferences, Setting

PATH_VARIABLE = "GPUWATCH_CONFIG_FILE"
"""Variable that names the settings file, unless ``--config-file`` does."""
_MAX_PROBLEMS = 20
_WRITABLE_MODE_BITS = 0o222
"""Mode bits: writable by anybody."""
_TABLES = tuple(dict.fromkeys(setting.table for setting in SETTINGS if setting.table))


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The content of a settings file, as far as it is valid."""

    path: Path
    preferences: Preferences = field(default_factory=Preferences)
    problems: tuple[str, ...] = ()
    """Problems that prevent saving to the file; one line each, without the file's name."""
    unknown: tuple[str, ...] = ()
    """Unknown keys, with a suggestion each."""

    @property
    def notice(self) -> str:
        """The number of problems and the first one, in one line; without problems, the unknown keys."""
        return next(iter(self._notices), "")

    @property
    def lines(self) -> tuple[str, ...]:
        """Every problem in a line with the file's name, and one line about unknown keys."""
        return (*(f"{self._name}: {problem}" for problem in self.problems), *self._unknown_key_notices[:1])

    def fit_notice(self, width: int) -> str:
        """The longest notice that fits into ``width`` cells."""
        texts = self._notices or [""]
        return next((text for text in texts if width_of(text) <= width), texts[-1])

    @property
    def _notices(self) -> list[str]:
        """The notice, shorter and shorter; empty if there is nothing to say. ``w`` shows all problems."""
        if not self.problems:
            return self._unknown_key_notices
        count, first = len(self.problems), self.problems[0]
        short = re.split(r"[,;:] ", first, maxsplit=1)[0]
        many = f"{count} problems"
        several = (f"{many} (w): {first}", f"{many} (w): {short}", f"{many}, w shows them")
        texts = several if count > 1 else (first, f"{short} (w)", "1 problem, w shows it")
        return [f"{self._name}: {text}" for text in texts]

    @property
    def _unknown_key_notices(self) -> list[str]:
        if not self.unknown:
            return []
        keys = f"unknown key{'s' * (len(self.unknown) > 1)}"
        return [f"{self._name}: ignored {keys} {', '.join(self.unknown)}", f"{self._name}: {len(self.unknown)} {keys}"]

    @property
    def _name(self) -> str:
        return printable(self.path.name)


def default_path() -> Path:
    """``$GPUWATCH_CONFIG_FILE``, or ``gpuwatch/settings.toml`` in the user's configuration folder."""
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return user_folders.expand_home(Path(named))
    return user_folders.config_folder() / "settings.toml"


def load_settings(path: Path) -> LoadedSettings:
    """Reads ``path``; a missing file gives the defaults."""
    limit = input_size_limits.SETTINGS
    try:
        with path.open("rb") as file:
            content = file.read(limit.bytes + 1)
    except (FileNotFoundError, NotADirectoryError):
        return LoadedSettings(path)
    except OSError as error:
        return LoadedSettings(path, problems=(f"cannot be read: {error.strerror}",))
    if not os.environ.get(PATH_VARIABLE) and path == default_path() and (why := why_untrusted(path)):
        return LoadedSettings(
            path, problems=(f"is not used: {why}",)
        )  # a file named explicitly is used whoever owns it
    if len(content) > limit.bytes:
        return LoadedSettings(path, problems=(f"is larger than {limit.size_text}",))
    if any(line.partition(b"=")[0].count(b".") > limit.depth for line in content.splitlines()):
        return LoadedSettings(path, problems=(f"is nested more than {limit.depth} deep",))
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return LoadedSettings(path, problems=(f"is not UTF-8 at byte {error.start}",))
    return LoadedSettings(path, *parse_settings(text))


def parse_settings(text: str) -> tuple[Preferences, tuple[str, ...], tuple[str, ...]]:
    """The preferences in the text of a settings file, its problems, and its unknown keys."""
    import tomllib

    problems: list[str] = []
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's, and Python's for a number of thousands of digits
        problems.append(_syntax_problem(str(error)))
        document = {}
        for part in _parsable_statements(text, tomllib.loads):
            _merge(document, part)
    found: dict[str, object] = {}
    problems += [f"{key} is a table: write [{key}]" for key in _TABLES if not isinstance(document.get(key, {}), dict)]
    for setting in SETTINGS:
        table = document.get(setting.table) if setting.table else document
        if not isinstance(table, dict) or setting.key not in table:
            continue
        try:
            found[setting.field] = setting.convert(table[setting.key])
        except InvalidValue as error:
            problems.append(f"{setting.name} {error}")
            if error.valid_part is not None:
                found[setting.field] = error.valid_part
    values: dict[str, Any] = found
    return Preferences(**values), tuple(problems[:_MAX_PROBLEMS]), tuple(_unknown_keys(document))[:_MAX_PROBLEMS]


def _syntax_problem(message: str) -> str:
    """``line 3: …`` from tomllib's message."""
    match = re.search(r"^(.*) \(at line (\d+), column \d+\)$", message, re.DOTALL)
    where, problem = (f"line {match[2]}", match[1]) if match else ("at its end", message.partition(" (at end")[0])
    if problem == r"Illegal character '\n'":
        problem = "unterminated string"
    if "int_max_str_digits" in problem:  # Python's own message, without a position
        return "a number has thousands of digits"
    return f"{where}: {printable(problem)}"


_HEADER = re.compile(r"^\s*\[\[?[\w.\-\"' ]+\]\]?\s*(#.*)?$")
_MAX_LINES = 50
"""Maximum lines of one statement in a broken file."""
_STATEMENT = re.compile(r"^\s*[\w\"'][\w.\-\"' ]*=")


def _parsable_statements(text: str, loads: Callable[[str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The statements of a broken file that parse on their own, each under its table header."""
    header = ""
    pending: list[str] = []
    for line in [*text.splitlines(), "[]"]:
        begins = bool(_HEADER.match(line) or _STATEMENT.match(line) or line == "[]")
        if begins:
            # The longest prefix that parses; the rest is dropped.
            for end in range(min(len(pending), _MAX_LINES), 0, -1):
                with suppress(ValueError, RecursionError):
                    yield loads("\n".join([header, *pending[:end]]))
                    break
            pending = []
        if _HEADER.match(line):
            header = line
        elif line.strip():
            pending.append(line)


def _merge(document: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict) and isinstance(document.get(key), dict):
            _merge(document[key], value)
        else:
            document.setdefault(key, value)


def _unknown_keys(document: Mapping[str, Any]) -> Iterator[str]:
    top = [setting.key for setting in SETTINGS if not setting.table]
    for key, value in document.items():
        if key in _TABLES:
            known = [setting.key for setting in SETTINGS if setting.table == key]
            for inner in value if isinstance(value, dict) else ():
                if inner not in known:
                    yield printable(f"{key}.{inner}") + _suggestion(closest_name(inner, known))
        elif key not in top:
            inside = {setting.key: setting.table for setting in SETTINGS if setting.table}
            meant = closest_name(key, [*top, *_TABLES, *inside])
            where = f" in [{inside[meant]}]" if meant in inside and meant not in top else ""
            yield printable(key) + _suggestion(meant and meant + where)


def _suggestion(meant: str | None) -> str:
    return f" (did you mean {meant}?)" if meant else ""


# Saving


class InvalidSettingsFile(GpuwatchError):
    """The file is invalid and is not overwritten, because its content would be lost."""


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """The settings file as last saved, and the text that it replaced."""

    preferences: Preferences
    path: Path
    before: str | None
    """None: there was no file."""
    after: str


def save_settings(preferences: Preferences, path: Path) -> SavedSettings:
    """Writes the file atomically; existing comments, order and layout are kept.

    Raises :class:`InvalidSettingsFile` if the existing file is invalid, :class:`GpuwatchError` if it is read-only
    or cannot be written.
    """
    target = Path(os.path.realpath(path))  # a symbolic link stays one
    before = load_settings(target)
    if before.problems:
        raise InvalidSettingsFile(f"not saved: {before.notice}", hint="fix it, or save to another file")
    try:
        # Check the mode, not the access rights: root may write to read-only files.
        if target.exists() and not target.stat().st_mode & _WRITABLE_MODE_BITS:
            raise GpuwatchError(
                f"not saved: {printable(path.name)} is read-only", hint=f"chmod u+w {printable(path.name)} unlocks it"
            )
        # Bytes, so that its line endings stay.
        text = target.read_bytes().decode("utf-8") if target.exists() else None
        new = _with_preferences(text or "", preferences)
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, new)
        return SavedSettings(preferences, path, text, new)
    except OSError as error:
        raise GpuwatchError(f"cannot save to {printable(str(path))}: {error.strerror}") from error


def undo_save(saved: SavedSettings) -> bool:
    """Gives the file back what it held before it was saved; False if it has changed since.

    Raises :class:`GpuwatchError` if it cannot be written.
    """
    target = Path(os.path.realpath(saved.path))
    try:
        if not target.exists() or target.read_bytes() != saved.after.encode():
            return False
        if saved.before is None:
            target.unlink()
        else:
            _replace(target, saved.before)
    except OSError as error:
        raise GpuwatchError(f"cannot save to {printable(str(saved.path))}: {error.strerror}") from error
    return True


def unused_path_beside(path: Path) -> Path:
    """An unused file name next to ``path``."""
    for number in range(1, 1000):
        other = path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not other.exists():
            return other
    raise GpuwatchError(f"too many files beside {path.name}")


def _with_preferences(text: str, preferences: Preferences) -> str:
    """``text`` with these preferences; a default is written as a comment, unless its key is there already."""
    # Imported only for saving. tomllib cannot write, and other writers drop comments.
    import tomllib

    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        if not text:
            document.add(tomlkit.comment("Settings of gpuwatch, saved from the dashboard (w)."))
        for setting in SETTINGS:
            value = getattr(preferences, setting.field)
            default = getattr(Preferences(), setting.field)
            table: Any = document
            if setting.table:
                if setting.table not in document:
                    if value == default:
                        continue
                    document.add(setting.table, tomlkit.table())
                table = document[setting.table]
            if value is None:
                table.pop(setting.key, None)
            elif setting.key in table:
                if setting.convert(table.unwrap()[setting.key]) != value:
                    table[setting.key] = setting.toml_value(preferences)
            elif value != default:
                item = tomlkit.item(setting.toml_value(preferences))
                table.add(setting.key, item.comment(setting.help) if setting.help else item)
        new = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise GpuwatchError(f"not saved: unsupported TOML layout ({printable(str(error))})") from error
    # Read the result back before replacing the file.
    if not _says_same(new, preferences, text):
        raise GpuwatchError(
            "not saved: the written file would differ from the preferences", hint="save to another file"
        )
    # Lines that look like a header inside a text of several lines would mislead: then without comments.
    commented = with_comments(new, tomllib.loads(new))
    return commented if _says_same(commented, preferences, text) else new


def _says_same(new: str, preferences: Preferences, old: str) -> bool:
    """Whether a file says what the preferences say, and of the rest what the old file says."""
    wanted = replace(preferences, interval=float(preferences.interval))
    try:
        return parse_settings(new)[:2] == (wanted, ()) and _other_content(new) == _other_content(old)
    except ValueError:
        return False


def _other_content(text: str) -> dict[str, Any]:
    """The content of a file other than the settings."""
    import tomllib

    document = tomllib.loads(text)
    for setting in SETTINGS:
        table = document.get(setting.table) if setting.table else document
        if isinstance(table, dict):
            table.pop(setting.key, None)
    return {key: value for key, value in document.items() if key not in _TABLES or value}


def _replace(target: Path, text: str) -> None:
    """Replaces a file through a temporary one next to it, keeping its permissions."""
    import tempfile  # slow to import, and needed only for saving

    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            Path(name).chmod(target.stat().st_mode & 0o777)
        Path(name).replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise


_TABLE_HEADER = re.compile(r"^\s*\[\s*([\w\-]+)\s*\]\s*(#.*)?$")
_ANY_HEADER = re.compile(r"^\s*\[")


def setting_comment(setting: Setting) -> str:
    """``# interval = 1.0  # seconds between samples``."""
    default = setting.toml_value(Preferences())
    value = default if default is not None else setting.example
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
        span = _table_range(lines, table)
        if span is None and table in document:
            continue  # written in another way: dotted keys, an inline table
        if span is None:
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
            span = len(lines), len(lines)
        start, end = span
        made = {setting_comment(setting) for setting in of_table if setting.key in content}
        kept = [line for line in lines[start:end] if line.strip() not in made]
        named = [
            setting
            for setting in of_table
            if setting.key not in content
            and not any(re.match(rf"\s*#\s*{re.escape(setting.key)}\s*=", line) for line in kept)
        ]
        place = _end_of_section(kept, is_last=end == len(lines))
        gap = [""] if named and end < len(lines) and (not kept[place:] or kept[place].strip()) else []
        lines[start:end] = [*kept[:place], *map(setting_comment, named), *gap, *kept[place:]]
    return newline.join(lines) + newline


def _table_range(lines: list[str], table: str) -> tuple[int, int] | None:
    """The lines of a table, without its header; None if it has no header."""
    start = 0
    if table:
        heads = [number for number, line in enumerate(lines) if (m := _TABLE_HEADER.match(line)) and m[1] == table]
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

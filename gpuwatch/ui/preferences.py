"""What a person has chosen for the dashboard, and the TOML file in which it is kept. Pure, no Textual.

To add a setting: a field of :class:`Preferences` and an entry in :data:`SETTINGS`; reading, checking
and saving follow. A file in which anything is wrong is used as far as it goes and never written to. Keys that
nobody knows here (of another version, or misspelt) are told, and left as they are.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.errors import GpuwatchError
from gpuwatch.formatting.suggest import closest, did_you_mean
from gpuwatch.formatting.text import printable
from gpuwatch.ui.cells import width_of
from gpuwatch.ui.filtering import FilterError, parse
from gpuwatch.ui.gpu_fields import DEFAULT_FIELDS, FIELDS
from gpuwatch.ui.rows import BY_ID, DEFAULT_COLUMNS
from gpuwatch.ui.tabs import TABS
from gpuwatch.ui.theme import DEFAULT, is_known, known_themes

MIN_INTERVAL, MAX_INTERVAL = 0.25, 60.0
"""Seconds between samples that can be asked for."""
ENVIRONMENT = "GPUWATCH_CONFIG_FILE"
"""Names the settings file where ``--config-file`` does not."""
_MOST_PROBLEMS = 20
_WRITABLE = 0o222
"""Bits of a file's mode: whether anybody may write to it."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """What can be chosen, with its defaults."""

    theme: str = DEFAULT
    ascii: bool | None = None
    """None: where the terminal cannot show more."""
    interval: float = 1.0
    """Seconds between samples."""
    read_only: bool = False
    tab: str = TABS[0].id
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    """Of the table of processes, in their order."""
    sort: str | None = None
    """A column; None: memory on the GPU, or CPU where there is none."""
    descending: bool | None = None
    """None: as it is usual for the column."""
    tree: bool = False
    """Each process below the one that started it."""
    filter: str = ""
    gpu_fields: tuple[str, ...] = DEFAULT_FIELDS
    """What is told of each GPU beside its bars, in its order."""
    gpm: bool = False
    """Ask for the activity of the GPUs' parts, which takes counters that others may want."""


class Wrong(ValueError):
    """A value that cannot be meant; the message says why. ``used`` is what can be made of it."""

    def __init__(self, message: str, used: object = None) -> None:
        super().__init__(message)
        self.used = used


class Setting(NamedTuple):
    """One key of the file."""

    table: str
    """Empty for the top of the file."""
    key: str
    field: str
    """Of :class:`Preferences`."""
    check: Callable[[object], object]
    """The value as it is kept; :class:`Wrong` for one that cannot be."""
    shown: Callable[[Any], object] = lambda value: value
    """The value as the file has it."""

    @property
    def name(self) -> str:
        """As a person reads it: ``processes.sort``."""
        return f"{self.table}.{self.key}" if self.table else self.key


def _quoted(value: object) -> str:
    return f"“{printable(value)}”" if isinstance(value, str) else repr(value)


def _flag(value: object) -> object:
    if not isinstance(value, bool):
        raise Wrong(f"is {_quoted(value)}, not true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Wrong(f"is {_quoted(value)}, not text in quotes")
    return value


def _interval(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not MIN_INTERVAL <= value <= MAX_INTERVAL:
        raise Wrong(f"is {_quoted(value)}, not a number from {MIN_INTERVAL:g} to {MAX_INTERVAL:g}")
    return float(value)


def _theme(value: object) -> object:
    name = _text(value)
    if not is_known(name):
        raise Wrong(f"is {_quoted(name)}, which is no theme{did_you_mean(name, known_themes())}")
    return name


def _one_of(known: Iterable[str], what: str) -> Callable[[object], str]:
    names = tuple(known)

    def check(value: object) -> str:
        name = _text(value)
        if name not in names:
            raise Wrong(f"is {_quoted(name)}, which is no {what}{did_you_mean(name, names)}")
        return name

    return check


def _filter(value: object) -> object:
    text = _text(value)
    try:
        parse(text)
    except FilterError as error:
        raise Wrong(f"means nothing: {error}") from None
    return text


def names_of(value: object, known: Iterable[str], what: str) -> tuple[str, ...]:
    """A list of ids; :class:`Wrong` for what is none, with those that are as ``used``."""
    names = tuple(known)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Wrong(f"is {_quoted(value)}, not a list of names in quotes")
    good = tuple(dict.fromkeys(name for name in value if name in names))
    for name in value:
        if name not in names:
            raise Wrong(f"has the {what} {_quoted(name)}, which there is not{did_you_mean(name, names)}", good or None)
    if not good:
        raise Wrong(f"is empty: name a {what} at least")
    if len(good) < len(value):
        raise Wrong(f"names a {what} twice", good)
    return good


SETTINGS: tuple[Setting, ...] = (
    Setting("", "theme", "theme", _theme),
    Setting("", "ascii", "ascii", _flag),
    Setting("", "interval", "interval", _interval),
    Setting("", "read-only", "read_only", _flag),
    Setting("", "gpm", "gpm", _flag),
    Setting("", "tab", "tab", _one_of((tab.id for tab in TABS), "tab")),
    Setting("processes", "columns", "columns", lambda value: names_of(value, BY_ID, "column"), list),
    Setting("processes", "sort", "sort", _one_of(BY_ID, "column")),
    Setting("processes", "descending", "descending", _flag),
    Setting("processes", "tree", "tree", _flag),
    Setting("processes", "filter", "filter", _filter),
    Setting("gpus", "fields", "gpu_fields", lambda value: names_of(value, FIELDS, "field"), list),
)
_TABLES = tuple(dict.fromkeys(setting.table for setting in SETTINGS if setting.table))


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file said, as far as it could be understood."""

    path: Path
    preferences: Preferences = field(default_factory=Preferences)
    problems: tuple[str, ...] = ()
    """What keeps the file from being written to; one line each, without the name of the file."""
    unknown: tuple[str, ...] = ()
    """Keys that nobody reads, with a word on what was probably meant."""

    @property
    def notice(self) -> str:
        """How many problems, and the first of them, in one line; where there are none, the unknown keys."""
        return self._with_first("") if self.problems else self._of_unknown

    @property
    def lines(self) -> tuple[str, ...]:
        """Every problem in a line that names the file, and one line on unknown keys."""
        told = [f"{self._name}: {problem}" for problem in self.problems]
        return (*told, self._of_unknown) if self.unknown else tuple(told)

    @property
    def _of_unknown(self) -> str:
        if not self.unknown:
            return ""
        many = len(self.unknown) > 1
        return f"{self._name}: left as it is, unknown key{'s' if many else ''} {', '.join(self.unknown)}"

    def fitted(self, width: int) -> str:
        """The notice where it fits into so many cells, else what is wrong without what would be right.

        Where that does not fit either, how many problems there are; ``w`` has all.
        """
        if not self.problems:
            told = self._of_unknown
            count = len(self.unknown)
            return told if width_of(told) <= width else f"{self._name}: {count} unknown key{'s' * (count > 1)}"
        count = len(self.problems)
        told = self._with_first(" (w)")
        short = re.split(r"[,;:] ", self.problems[0], maxsplit=1)[0]
        shorter = f"{self._name}: {count} problems (w): {short}" if count > 1 else f"{self._name}: {short} (w)"
        for one in (told, shorter):
            if width_of(one) <= width:
                return one
        return f"{self._name}: {count} problem{'s' * (count > 1)}, w tells {'them' if count > 1 else 'it'}"

    def _with_first(self, where: str) -> str:
        """``where``: the key that has them all."""
        count = f"{len(self.problems)} problems{where}: " if len(self.problems) > 1 else ""
        return f"{self._name}: {count}{self.problems[0]}"

    @property
    def _name(self) -> str:
        return printable(self.path.name)


def default_path() -> Path:
    """``$GPUWATCH_CONFIG_FILE``, or ``gpuwatch/settings.toml`` in the user's folder of settings."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named).expanduser()
    if sys.platform.startswith("linux"):
        # What platformdirs answers there; the first picture waits for this, and it imports twenty modules.
        folder = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        if not folder.is_absolute():
            folder = Path("~/.config").expanduser()
        return folder / "gpuwatch" / "settings.toml"
    from platformdirs import user_config_path

    return user_config_path("gpuwatch") / "settings.toml"


def load(path: Path) -> Loaded:
    """What ``path`` says; a file that is not there says nothing."""
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Loaded(path)
    except OSError as error:
        return Loaded(path, problems=(f"cannot be read: {error.strerror}",))
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        return Loaded(path, problems=(f"is not UTF-8 at byte {error.start}",))
    return Loaded(path, *understood(text))


def understood(text: str) -> tuple[Preferences, tuple[str, ...], tuple[str, ...]]:
    """What the text of a settings file says, what is wrong with it, and its keys that nobody reads."""
    import tomllib

    problems: list[str] = []
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        problems.append(_syntax(str(error)))
        document = {}
        for part in _readable(text, tomllib.loads):
            _merge(document, part)
    found: dict[str, object] = {}
    problems += [f"{key} is a table: write [{key}]" for key in _TABLES if not isinstance(document.get(key, {}), dict)]
    for setting in SETTINGS:
        table = document.get(setting.table) if setting.table else document
        if not isinstance(table, dict) or setting.key not in table:
            continue
        try:
            found[setting.field] = setting.check(table[setting.key])
        except Wrong as wrong:
            problems.append(f"{setting.name} {wrong}")
            if wrong.used is not None:
                found[setting.field] = wrong.used
    values: dict[str, Any] = found
    return Preferences(**values), tuple(problems[:_MOST_PROBLEMS]), tuple(_unknown(document))[:_MOST_PROBLEMS]


def _syntax(message: str) -> str:
    """``line 3: …`` out of what tomllib says."""
    match = re.search(r"^(.*) \(at line (\d+), column \d+\)$", message, re.DOTALL)
    where, said = (f"line {match[2]}", match[1]) if match else ("at its end", message.partition(" (at end")[0])
    if said == r"Illegal character '\n'":
        said = "a text is not closed with its quote"
    return f"{where}: {printable(said)}"


_HEADER = re.compile(r"^\s*\[\[?[\w.\-\"' ]+\]\]?\s*(#.*)?$")
_MOST_LINES = 50
"""Lines of one statement, of a file that is broken anyway."""
_STATEMENT = re.compile(r"^\s*[\w\"'][\w.\-\"' ]*=")


def _readable(text: str, loads: Callable[[str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Those statements of a broken file that can be read by themselves, each under its own header."""
    header = ""
    pending: list[str] = []
    for line in [*text.splitlines(), "[]"]:
        begins = bool(_HEADER.match(line) or _STATEMENT.match(line) or line == "[]")
        if begins:
            # The longest beginning that can be read: what is left over belongs to nothing.
            for end in range(min(len(pending), _MOST_LINES), 0, -1):
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


def _unknown(document: Mapping[str, Any]) -> Iterator[str]:
    """Keys and tables that nobody reads."""
    top = [setting.key for setting in SETTINGS if not setting.table]
    for key, value in document.items():
        if key in _TABLES:
            known = [setting.key for setting in SETTINGS if setting.table == key]
            for inner in value if isinstance(value, dict) else ():
                if inner not in known:
                    yield printable(f"{key}.{inner}") + _aside(closest(inner, known))
        elif key not in top:
            inside = {setting.key: setting.table for setting in SETTINGS if setting.table}
            meant = closest(key, [*top, *_TABLES, *inside])
            where = f" in [{inside[meant]}]" if meant in inside and meant not in top else ""
            yield printable(key) + _aside(meant and meant + where)


def _aside(meant: str | None) -> str:
    return f" (did you mean {meant}?)" if meant else ""


# Saving


class Broken(GpuwatchError):
    """The file is not written, because something in it is wrong and would be lost."""


def save(preferences: Preferences, path: Path) -> None:
    """Writes the file, whole or not at all; comments, order and layout of what was there are kept.

    Raises :class:`Broken` for a file in which something is wrong, :class:`GpuwatchError` when it
    is locked against writing or cannot be written.
    """
    target = Path(os.path.realpath(path))  # a link to a file kept elsewhere stays a link
    before = load(target)
    if before.problems:
        raise Broken(f"not saved: {before.notice}", hint="put it right, or save to another file")
    try:
        # The mode and not what this user may do: root may write to what somebody has locked.
        if target.exists() and not target.stat().st_mode & _WRITABLE:
            raise GpuwatchError(
                f"not saved: {printable(path.name)} is read-only", hint=f"chmod u+w {printable(path.name)} unlocks it"
            )
        text = target.read_text(encoding="utf-8") if target.exists() else ""
        new = _with(text, preferences)
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, new)
    except OSError as error:
        raise GpuwatchError(f"cannot save to {printable(str(path))}: {error.strerror}") from error


def beside(path: Path) -> Path:
    """A name for a file next to ``path`` that is not taken yet."""
    for number in range(1, 1000):
        other = path.with_name(f"{path.stem}-{number}{path.suffix}")
        if not other.exists():
            return other
    raise GpuwatchError(f"there are too many files beside {path.name}")


def _with(text: str, preferences: Preferences) -> str:
    """``text`` with these preferences; a setting as it is by default is only written where it stood."""
    # Imported for saving only. tomllib cannot write, and what others write keeps no comments.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        if not text:
            document.add(tomlkit.comment("Settings of gpuwatch, saved from the dashboard (w)."))
        for setting in SETTINGS:
            value = getattr(preferences, setting.field)
            default = getattr(_DEFAULTS, setting.field)
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
                if setting.check(_plain(table[setting.key])) != value:
                    table[setting.key] = setting.shown(value)
            elif value != default:
                table.add(setting.key, setting.shown(value))
        new = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise GpuwatchError(f"not saved: its layout is beyond the writer ({printable(str(error))})") from error
    # The writer is checked by the reader: nothing is replaced by what does not say the same.
    if understood(new)[:2] != (_kept(preferences), ()) or _foreign(new) != _foreign(text):
        raise GpuwatchError("not saved: the file would not say what was chosen", hint="save to another file")
    return new


def _foreign(text: str) -> dict[str, Any]:
    """What the text of a file has beside the settings."""
    import tomllib

    document = tomllib.loads(text)
    for setting in SETTINGS:
        table = document.get(setting.table) if setting.table else document
        if isinstance(table, dict):
            table.pop(setting.key, None)
    return {key: value for key, value in document.items() if key not in _TABLES or value}


def _plain(value: Any) -> object:
    return value.unwrap() if hasattr(value, "unwrap") else value


def _kept(preferences: Preferences) -> Preferences:
    return replace(preferences, interval=float(preferences.interval))


def _replace(target: Path, text: str) -> None:
    """Through a temporary file beside it, with the permissions that it had."""
    import tempfile  # with what it imports, too much for a start that saves nothing

    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
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


_DEFAULTS = Preferences()

"""The user's folders, also for a user who has no home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.core import user_folders
from gpuwatch.core.formatting.path_text import path_with_tilde

FOLDERS = [
    (user_folders.config_folder, "XDG_CONFIG_HOME", ".config"),
    (user_folders.state_folder, "XDG_STATE_HOME", ".local/state"),
    (user_folders.cache_folder, "XDG_CACHE_HOME", ".cache"),
]


@pytest.fixture
def unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id without an entry in the user database, and without HOME."""
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    monkeypatch.delenv("HOME", raising=False)
    for _, variable, _ in FOLDERS:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize(("folder", "variable", "in_home"), FOLDERS)
def test_a_variable_moves_a_folder_if_it_is_absolute(
    folder: object, variable: str, in_home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(folder)
    monkeypatch.setenv("HOME", "/home/ann")
    for value, expected in (("/srv/x", "/srv/x"), ("", f"/home/ann/{in_home}"), ("relative", f"/home/ann/{in_home}")):
        monkeypatch.setenv(variable, value)
        assert folder() == Path(expected, "gpuwatch")


def test_a_relative_home_is_that_of_the_user_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", ".")
    found = user_folders.home_folder()
    assert found is None or found.is_absolute()


@pytest.mark.usefixtures("unknown_user")
@pytest.mark.parametrize(("folder", "variable", "in_home"), FOLDERS)
def test_without_a_home_folders_are_nowhere(folder: object, variable: str, in_home: str) -> None:
    assert callable(folder)
    assert user_folders.home_folder() is None
    assert folder() == Path("/proc/no-home", in_home, "gpuwatch")
    assert user_folders.expand_home(Path("~/settings.toml")) == Path("~/settings.toml")
    assert path_with_tilde(Path("/srv/a")) == "/srv/a"


_WITHOUT_HOME = """
import os, sys
os.getuid = lambda: 54321
from gpuwatch.core import user_folders
user_folders._NO_HOME = sys.argv.pop(1)
from gpuwatch.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "--", "true"], 0, "/.local/state/gpuwatch/runs: Not a directory"),
        (["snapshot", "--sim", "1x1GiB"], 1, "set XDG_CACHE_HOME to a writable folder"),
        (["record"], 2, "name a file"),
    ],
)
def test_commands_of_a_user_without_a_home_end_with_a_line(
    arguments: list[str], code: int, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"  # even root cannot make a folder in it
    file.touch(0o600)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HOME", "GPUWATCH_"))}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_HOME, str(file), *arguments],
        env=kept, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert words in " ".join(done.stderr.split())

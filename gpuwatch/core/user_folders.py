"""The user's home, and the folders for settings, state and cache (XDG Base Directory Specification)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_NO_HOME: Final = "/proc/no-home"
"""Nothing is found in it, and nobody can make it, root included: a message that names it gives the reason."""


def home_folder() -> Path | None:
    """``$HOME``, or the home in the user database; None without one, as for a user id that a container only numbers.

    ``Path.home()`` raises RuntimeError then. A relative ``$HOME`` counts as unset.
    """
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):  # noqa: PTH117  # without a Path object: this runs before the first frame
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    return Path(home) if os.path.isabs(home) else None  # noqa: PTH117


def config_folder() -> Path:
    """``gpuwatch`` in ``$XDG_CONFIG_HOME`` or ``~/.config``, whether it exists or not."""
    return _folder("XDG_CONFIG_HOME", ".config")


def state_folder() -> Path:
    """``gpuwatch`` in ``$XDG_STATE_HOME`` or ``~/.local/state``, whether it exists or not."""
    return _folder("XDG_STATE_HOME", ".local/state")


def cache_folder() -> Path:
    """``gpuwatch`` in ``$XDG_CACHE_HOME`` or ``~/.cache``, whether it exists or not."""
    return _folder("XDG_CACHE_HOME", ".cache")


def expand_home(path: Path) -> Path:
    """``path`` with ``~`` replaced; without a home, or with an unknown ``~name``, ``path`` itself."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def _folder(variable: str, in_home: str) -> Path:
    """A relative value is ignored, as the specification demands."""
    named = os.environ.get(variable, "")
    base = Path(named) if os.path.isabs(named) else (home_folder() or Path(_NO_HOME)) / in_home  # noqa: PTH117
    return base / "gpuwatch"

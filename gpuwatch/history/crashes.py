"""Errors of gpuwatch itself: one line for the user, the traceback in a file."""

from __future__ import annotations

import platform
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import platformdirs

from gpuwatch import __version__, ownership
from gpuwatch.formatting.secrets import mask_text


def keep(error: BaseException) -> Path | None:
    """Writes the traceback, without the values of variables; None where no file could be written.

    An error whose traceback the newest file has already gets no other one: a collector that is replaced fails again.
    """
    folder = Path(platformdirs.user_state_dir("gpuwatch", appauthor=False))
    name = time.strftime("crash-%Y%m%d-%H%M%S.txt")
    command = " ".join(sys.argv[1:])
    text = mask_text(f"gpuwatch {__version__}, Python {platform.python_version()}\n$ gpuwatch {command}\n")
    text += mask_text("".join(traceback.format_exception(error)))
    try:
        folder = ownership.own_folder(folder, "XDG_STATE_HOME", "crashes")
        newest = max(folder.glob("crash-*.txt"), default=None)
        with suppress(OSError):  # another user's, in a folder that was open to all once
            if newest is not None and ownership.read_own(newest).decode("utf-8", "replace") == text:
                return newest
        path = folder / name
        ownership.write_private(path, text)
    except OSError:
        return None
    return path


def describe(error: BaseException) -> tuple[str, str]:
    """One line for the user about what failed, and one about where the traceback is; writes that file."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
    what = mask_text(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
    path = keep(error)
    rest = f"the traceback is in {path}" if path else "the traceback could not be written anywhere"
    return f"an error in gpuwatch itself{where}: {what}", f"please report it; {rest}"

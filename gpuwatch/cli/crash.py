"""What is done with an error of gpuwatch itself: one line for the user, the traceback in a file."""

from __future__ import annotations

import platform
import sys
import time
import traceback
from pathlib import Path

import platformdirs

from gpuwatch import __version__
from gpuwatch.formatting.secrets import mask_text


def keep(error: BaseException) -> Path | None:
    """Writes the traceback, without the values of variables; None where no file could be written."""
    folder = Path(platformdirs.user_state_dir("gpuwatch", appauthor=False))
    path = folder / time.strftime("crash-%Y%m%d-%H%M%S.txt")
    command = " ".join(sys.argv[1:])
    text = mask_text(f"gpuwatch {__version__}, Python {platform.python_version()}\n$ gpuwatch {command}\n")
    text += mask_text("".join(traceback.format_exception(error)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError:
        return None
    return path


def told(error: BaseException) -> tuple[str, str]:
    """What the user is told: what failed, and where the rest stands."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
    what = mask_text(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
    path = keep(error)
    rest = f"the traceback is in {path}" if path else "the traceback could not be written anywhere"
    return f"an error in gpuwatch itself{where}: {what}", f"please report it; {rest}"

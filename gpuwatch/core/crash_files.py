"""Errors of gpuwatch itself: one line for the user, the traceback in a file."""

from __future__ import annotations

import platform
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.core import private_folders, user_folders
from gpuwatch.core.errors import PROCESS_LIMIT_HINT, GpuwatchError, is_thread_refused
from gpuwatch.core.masking.mask_secrets import mask_text


def save_traceback(error: BaseException) -> Path | None:
    """Writes the traceback, without values of variables, to a file; None if that fails.

    If the newest file has the same content, it is returned: a collector that is replaced fails again.
    """
    folder = user_folders.state_folder()
    name = time.strftime("crash-%Y%m%d-%H%M%S.txt")
    command = " ".join(sys.argv[1:])
    text = mask_text(f"gpuwatch {__version__}, Python {platform.python_version()}\n$ gpuwatch {command}\n")
    text += mask_text("".join(traceback.format_exception(error)))
    try:
        folder = private_folders.private_folder(folder, "XDG_STATE_HOME", "crashes")
        newest = max(folder.glob("crash-*.txt"), default=None)
        with suppress(OSError):  # it may be another user's, if others could write to the folder once
            if newest is not None and private_folders.read_private_file(newest).decode("utf-8", "replace") == text:
                return newest
        path = folder / name
        private_folders.write_private_file(path, text)
    except OSError:
        return None
    return path


def describe_error(error: BaseException) -> tuple[str, str]:
    """One line about the error and one about the file of its traceback, for the user; of a GpuwatchError its own."""
    if isinstance(error, GpuwatchError):
        return error.message, error.hint
    if is_thread_refused(error):
        # Its seccomp profile answers clone3 with EPERM, which glibc 2.34 takes for an answer.
        return "the system starts no more threads", f"{PROCESS_LIMIT_HINT}; a newer image in Docker before 20.10.10?"
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {Path(last[0].filename).name}:{last[0].lineno}" if last else ""
    what = mask_text(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
    path = save_traceback(error)
    rest = f"the traceback is in {path}" if path else "the traceback could not be saved"
    return f"an error in gpuwatch itself{where}: {what}", f"please report it; {rest}"

"""The errors of execve: why a program could not be started."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from gpuwatch.core.errors import PROCESS_LIMIT_HINT, GpuwatchError


class NotStarted(GpuwatchError):
    """The program could not be executed; the exit code is a shell's (127 or 126)."""


def not_started(name: str, errno_value: int) -> NotStarted:
    """The error for execve's errno ``errno_value``, with a hint."""
    path = name if "/" in name else shutil.which(name, mode=os.F_OK)
    if path is not None and Path(path).is_dir():
        return NotStarted(f"{name} is a folder, not a program", exit_code=126)
    if errno_value == errno.ENOENT and path is not None and Path(path).exists():
        reason = "the interpreter in its first line does not exist"
        return NotStarted(f"{name} cannot be started: {reason}", exit_code=127)
    if errno_value in (errno.ENOENT, errno.ENOTDIR):
        run_here = f"python {name}" if name.endswith(".py") else f"./{name}"
        hint = f"it is not in PATH; to run the one in this folder, use {run_here}"
        in_this_folder = "/" not in name and Path(name).exists()
        return NotStarted(f"{name}: command not found", hint=hint if in_this_folder else "", exit_code=127)
    if (
        errno_value == errno.EACCES
        and path is not None
        and Path(path).is_file()
        and not Path(path).stat().st_mode & 0o111
    ):
        hint = f"python {name}" if name.endswith(".py") else f"chmod +x {name}"
        return NotStarted(f"{name} is not executable", hint=hint, exit_code=126)
    limit = PROCESS_LIMIT_HINT if errno_value == errno.EAGAIN else ""
    return NotStarted(f"{name} cannot be started: {os.strerror(errno_value)}", hint=limit, exit_code=126)

"""The folder for what frameworks record of a program's memory."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "gpuwatch-memory-"


def recordings_folder() -> tempfile.TemporaryDirectory[str]:
    """A new private folder for recordings. Those of gpuwatch processes that were killed are removed first."""
    for stale in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*"):
        pid = stale.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            status = stale.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(stale, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-")

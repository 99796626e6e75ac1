"""Takes away the state files of simulated machines that nobody uses any more."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gpuwatch.sim import sysfs

_KEPT_SECONDS: Final = 3600.0
"""A machine that all of a shape share outlives its users so long: what was done to it awaits the next one."""
_KEPT_PRIVATE_SECONDS: Final = 60.0
"""Nobody but its maker knows the name of a private one."""


def sweep(folder: Path, suffix: str, shared: str, now: float | None = None) -> int:
    """Removes machines in ``folder`` that nobody has open and that were last opened long ago; how many.

    Who uses a machine holds a shared lock on its file for as long as it lives (state.c), whatever ended it. So a
    file whose exclusive lock can be had has no user, of this version of gpuwatch or another. The lock is only tried
    on old files, and is held until the file is gone. The caller holds the folder's lock, under which machines are
    opened.
    """
    now = time.time() if now is None else now
    removed = 0
    for path in folder.iterdir():
        if path.suffix != suffix and not path.suffix.startswith(".new-"):
            continue
        private = path.suffix == suffix and not path.name.startswith(f"{shared}-")
        with suppress(OSError):  # taken away by somebody else, or not ours: the next one will see
            if now - path.stat().st_mtime > (_KEPT_PRIVATE_SECONDS if private else _KEPT_SECONDS):
                removed += _remove(path)
    return removed


def _remove(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError where somebody has it open
        path.unlink()
    finally:
        os.close(descriptor)
    shutil.rmtree(sysfs.folder(path), ignore_errors=True)
    return True

"""Where simulated machines keep their state: one file each, in a folder of this user's in memory."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpuwatch.errors import GpuwatchError
from gpuwatch.sim.control import load_control
from gpuwatch.sim.shape import SimShape

SHARED: Final = "shared"
"""In the name of the state file of the machine that all who ask for a shape share."""
STATE_SUFFIX: Final = ".state"


def state_name(shape: SimShape, name: str | None, library_dir: Path) -> str:
    """The name of a machine's state file: ``shared-2x24GiB.v3.419496.state``.

    It carries the layout, so that two versions of gpuwatch, which do not understand each other's file, never
    replace it under who uses it.
    """
    return f"{name or SHARED}-{shape}.v{layout(library_dir)}{STATE_SUFFIX}"


def layout(library_dir: Path) -> str:
    """The layout of the state that these libraries have: its version and its size in bytes."""
    return str(load_control(library_dir).gws_layout().decode())


def in_use(state_path: Path) -> bool:
    """Whether a process has the machine open: then it holds a shared lock on the file (state.c)."""
    try:
        descriptor = os.open(state_path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def state_folder() -> Path:
    """The folder of this user's machines, in memory where the system has such a place."""
    bases = [os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir()]
    for base in bases:
        if base and Path(base).is_dir() and os.access(base, os.W_OK | os.X_OK):
            folder = Path(base) / f"gpuwatch-sim-{os.getuid()}"
            break
    else:
        raise GpuwatchError("no folder for the simulated GPUs' state", hint="set XDG_RUNTIME_DIR")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        # In a folder that all may write to, anybody could have put it there first.
        raise GpuwatchError(f"{folder} does not belong to this user", hint="remove it")
    if stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else makes or takes away a machine meanwhile."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

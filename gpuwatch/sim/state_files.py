"""Where simulated machines keep their state: one file each, in a folder of this user's in memory."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gpuwatch import ownership
from gpuwatch.errors import GpuwatchError
from gpuwatch.sim.control import load_control
from gpuwatch.sim.shape import SimShape

SHARED: Final = "shared"
"""In the name of the state file of the machine that all who ask for a shape share."""
PRIVATE: Final = "private"
"""What the names of machines begin with that one command has for itself."""
STATE_SUFFIX: Final = ".state"


def private_name() -> str:
    """The name of a machine that this process has for itself."""
    return f"{PRIVATE}-{os.getpid()}-{secrets.token_hex(4)}"


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
    """The folder of this user's machines, in memory where the system has such a place.

    What programs map of a machine is trusted by the libraries, so nobody else may write there
    (:mod:`gpuwatch.ownership`). XDG_RUNTIME_DIR of another user, as ``sudo -E`` keeps it, is passed over.
    """
    bases = [os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir()]
    for base in bases:
        if not base or not os.access(base, os.W_OK | os.X_OK) or not Path(base).is_dir():
            continue
        if ownership.distrust(Path(base)):
            continue
        folder = Path(base) / f"gpuwatch-sim-{os.geteuid()}"
        try:
            return ownership.own_folder(folder, "XDG_RUNTIME_DIR", "machines")
        except OSError as error:
            raise GpuwatchError(
                f"the simulated GPUs cannot be kept in {folder}: {error.strerror or error}",
                hint="set XDG_RUNTIME_DIR to a folder of your own",
            ) from error
    raise GpuwatchError(
        "no folder for the simulated GPUs' state that others cannot write to",
        hint="set XDG_RUNTIME_DIR to a folder of your own",
    )


def check_state(path: Path) -> None:
    """GpuwatchError where the state that the environment names is not of this user alone, as under ``sudo -E``."""
    why = ownership.distrust(path)
    if not why and path.exists():
        why = ownership.file_distrust(path)
    if why:
        raise GpuwatchError(
            f"the simulated GPUs in {path} are not used: {why}",
            hint="unset GPUWATCH_SIM and GPUWATCH_SIM_STATE, or start it with gpuwatch sim as this user",
        )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else makes or takes away a machine meanwhile."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

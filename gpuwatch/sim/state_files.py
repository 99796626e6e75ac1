"""The state files of simulated machines, one each in a folder of this user."""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gpuwatch.core import private_folders
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.units import exact_size
from gpuwatch.sim import environment
from gpuwatch.sim.gpu_models import MODELS, DescribedGpu
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.state_bindings import describe_gpu, load_control

SHARED: Final = "shared"
"""Begins the name of the state file of the machine that all users of a shape share."""
PRIVATE: Final = "private"
"""Begins the name of a machine that belongs to one command."""
STATE_SUFFIX: Final = ".state"
_SHARED_UNUSED_SECONDS: Final = 3600.0
"""A shared machine is kept this long after its last use: what was done to it waits for the next user."""
_PRIVATE_UNUSED_SECONDS: Final = 60.0
"""Nobody but its maker knows the name of a private machine."""


def private_name() -> str:
    """A new name for a machine of this process alone."""
    return f"{PRIVATE}-{os.getpid()}-{secrets.token_hex(4)}"


def state_name(shape: SimShape, name: str | None, library_dir: Path) -> str:
    """The name of a machine's state file: ``shared-2x24GiB.v3.419496.state``.

    It contains the layout of the state (version and size in bytes), so that versions of gpuwatch with different layouts
    never replace each other's files; of a model with what that reports.
    """
    layout = load_control(library_dir).gws_layout().decode()
    reports = zlib.crc32(repr(MODELS[shape.model].described()).encode()) if shape.model else ""
    return f"{name or SHARED}-{shape}.v{layout}{reports}{STATE_SUFFIX}"


def in_use(state_path: Path) -> bool:
    """Whether a process has the machine open, and so holds a shared lock on the file (state.c)."""
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
    """The folder of this user's machines, in memory if the system has such a place.

    The libraries trust what they map, so nobody else may write there (:mod:`gpuwatch.core.private_folders`). Another
    user's XDG_RUNTIME_DIR, which ``sudo -E`` keeps, is not used.
    """
    for folder in possible_state_folders():
        try:
            return private_folders.private_folder(folder, "XDG_RUNTIME_DIR", "machines")
        except OSError as error:
            raise GpuwatchError(
                f"cannot write the simulated GPUs' state to {folder}: {error.strerror or error}",
                hint="set XDG_RUNTIME_DIR to a folder that you own",
            ) from error
    raise GpuwatchError(
        "no safe folder for the simulated GPUs' state: others can write to all candidates",
        hint="set XDG_RUNTIME_DIR to a folder that you own",
    )


def possible_state_folders() -> Iterator[Path]:
    """Where this user's machines may be, whether the folder exists or not; :func:`state_folder` takes the first."""
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir()):  # noqa: S108  # the folder in it is checked
        if not base or not os.access(base, os.W_OK | os.X_OK) or not Path(base).is_dir():
            continue
        if not private_folders.why_untrusted(Path(base)):
            yield Path(base) / f"gpuwatch-sim-{os.geteuid()}"


def check_state_is_trusted(path: Path) -> None:
    """GpuwatchError if somebody else can write to the state that the environment names, as under ``sudo -E``."""
    reason = private_folders.why_untrusted(path)
    if not reason and path.exists():
        reason = private_folders.why_file_untrusted(path)
    if reason:
        raise GpuwatchError(
            f"refusing to use the simulated GPUs in {path}: {reason}",
            hint="unset GPUWATCH_SIM and GPUWATCH_SIM_STATE, or run gpuwatch sim as this user",
        )


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, so that no other process creates or removes machines."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def ensure_machine(control: ctypes.CDLL, state: Path, shape: SimShape, described: Sequence[DescribedGpu]) -> None:
    """Creates the state file of a machine, also in place of one that does not fit; the caller holds the folder's lock.

    Raises:
        GpuwatchError: it cannot be made, or one that does not fit is in use.
    """
    if control.gws_check(os.fsencode(state), shape.count, shape.memory_bytes) == 0:
        return
    if in_use(state):
        raise GpuwatchError(
            f"the simulated GPUs in {state} are in use by an incompatible version of gpuwatch",
            hint="end the programs that use them, or choose another shape",
        )
    temporary = state.with_suffix(f".new-{os.getpid()}")
    temporary.unlink(missing_ok=True)
    label, memory = str(shape).encode(), exact_size(shape.memory_bytes).encode()
    code = control.gws_create(os.fsencode(temporary), shape.count, shape.memory_bytes, label, memory)
    if code:
        temporary.unlink(missing_ok=True)
        raise GpuwatchError(f"cannot create the simulated GPUs in {temporary}: {os.strerror(code)}")
    if shape.model:
        described = (MODELS[shape.model].described(),) * shape.count
    if described:
        handle = control.gws_open(os.fsencode(temporary))  # before anybody else can
        for device, gpu in enumerate(described):
            describe_gpu(control, handle, device, gpu)
        control.gws_close(handle)
    temporary.replace(state)
    remove_old_machines(state.parent)


def remove_old_machines(folder: Path) -> None:
    """Removes machines in ``folder`` that are not in use and were last opened long ago.

    Users of a machine hold a shared lock on its file for as long as they live (state.c). So a file whose exclusive
    lock can be had is not in use, by any version of gpuwatch. The lock is only tried on old files, and is held until
    the file is gone. The caller holds the folder's lock, under which machines are opened.
    """
    for path in folder.iterdir():
        if path.suffix != STATE_SUFFIX and not path.suffix.startswith(".new-"):
            continue
        private = path.suffix == STATE_SUFFIX and not path.name.startswith(f"{SHARED}-")
        with suppress(OSError):  # another process removed it, or it is not ours: the next sweep will see
            if time.time() - path.stat().st_mtime > (_PRIVATE_UNUSED_SECONDS if private else _SHARED_UNUSED_SECONDS):
                remove_machine(path)


def remove_machine(path: Path) -> None:
    """Removes a machine; OSError if it is in use. The caller holds the folder's lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # OSError if it is in use
        path.unlink()
    finally:
        os.close(descriptor)
    shutil.rmtree(environment.sysfs_folder(path), ignore_errors=True)

"""Writes files: a file is whole or unchanged. Links stay links; devices and pipes are written to."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.path_text import printable_path


def is_special(path: Path) -> bool:
    """Whether ``path``, links followed, is a device, a pipe, a terminal or another special file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def unwritable(path: Path) -> str:
    """Why ``path`` cannot be written, as far as known beforehand; empty if it can.

    Creates and removes a file in its folder: permissions do not reveal read-only file systems.
    """
    try:
        if is_special(path):
            return "" if os.access(path, os.W_OK) else "it is not writable"
        target = _target(path)
        if target.exists() and not os.access(target, os.W_OK):
            return "it is not writable"
        handle, probe = _temporary(target)
        os.close(handle)
        Path(probe).unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def write_text(rendered: str, path: Path) -> None:
    """Writes text to a file that is whole or unchanged (:func:`open_whole`); GpuwatchError if that fails."""
    with open_whole(path) as file:
        file.write(rendered.encode())


@contextmanager
def open_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to: a temporary one beside the target of ``path``, which is renamed at the end.

    A device or a pipe is written to directly. GpuwatchError if writing fails.
    """
    temporary: str | None = None
    try:
        if is_special(path):
            with path.open("wb") as special:
                yield special
            return
        target = _target(path)
        handle, temporary = _temporary(target)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files private; a report gets the mode of any new file.
        Path(temporary).chmod(_mode(target))
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise GpuwatchError(f"cannot write {printable_path(path)}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """The target of links; OSError for a circle of them."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, "its links form a loop")
    return target


def _temporary(target: Path) -> tuple[int, str]:
    import tempfile  # slow to import

    return tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:100]}.", suffix=".tmp")


def _mode(target: Path) -> int:
    try:
        return target.stat().st_mode & 0o777
    except OSError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask

"""Checks that gpuwatch's folders and files cannot be written by other users.

Code is loaded from the cache, saved runs are shown and removed, crash files are written: whoever can write to these
folders, or to a folder above, controls what happens, even as root. The rule is that of ssh's StrictModes, for every
folder and link on the path: the owner is root or the effective user, and nobody else may write, except in root's sticky
folders and for the user's private group. The folder itself belongs to the effective user and has mode 0700, its files
0600, whatever the umask.

If a folder fails the check (such as root with somebody else's HOME), a temporary folder replaces it for this run, and
a line on stderr says so.
"""

from __future__ import annotations

import atexit
import errno
import grp
import os
import pwd
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

ENV_PRIVATE: Final = "GPUWATCH_PRIVATE_FOLDER"
"""Passes the temporary folder to child processes of gpuwatch."""
_MAX_LINKS: Final = 40
"""Linux's limit for links in one path."""
_ABANDONED_SECONDS: Final = 10 * 86_400.0
"""Age at which temporary folders of killed runs are removed, the same as systemd-tmpfiles uses."""


def why_untrusted(path: Path) -> str:
    """Why a folder or file cannot be trusted: ``/home/ann belongs to ann``; empty if it can, or does not exist."""
    try:
        for place, status in _folders_on_path(path.absolute()):
            reason = _why_place_untrusted(place, status)
            if reason:
                return reason
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{error.filename or path}: {error.strerror or error}"
    return ""


def why_file_untrusted(path: Path) -> str:
    """Why a file in a trusted folder cannot be trusted: its owner, or its mode; empty if it can.

    Links are not followed: check their target with :func:`why_untrusted`.
    """
    status = path.lstat()
    if status.st_uid != os.geteuid():
        return f"{path} belongs to {_user_name(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):
        return ""
    return _who_may_write(path, status)


def private_folder(path: Path, variable: str, kind: str) -> Path:
    """``path`` as a folder that only we can write to, created if missing; otherwise a temporary one for this run.

    ``variable``: the environment variable that moves the folder. ``kind``: the name of the temporary one. OSError if
    neither is possible.
    """
    reason = why_untrusted(path)
    if not reason:
        _make_folder(path)
        reason = why_untrusted(path) or _foreign_owner(path)
    if not reason:
        return path
    private = (_inherited_folder() or _temporary_folder()) / kind
    if not private.is_dir():  # otherwise this or a parent process has already reported it
        _make_folder(private)
        line = (
            f"gpuwatch: not using {path}: {reason}; using {private} for this run. To fix it, {_advice(path, variable)}"
        )
        if sys.stderr is not None:
            print(line, file=sys.stderr, flush=True)
    return private


def write_private_file(path: Path, text: str) -> None:
    """Writes ``text`` to a file with mode 0600, without following a link; OSError if that fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)


def read_private_file(path: Path, max_bytes: int = -1) -> bytes:
    """The first ``max_bytes`` bytes of a file that only we can write to; PermissionError if others can, or OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode) or _who_may_write(path, status):
            raise PermissionError(errno.EACCES, "not a file that only this user owns", str(path))
        return file.read(max_bytes)


def _folders_on_path(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link on the path from ``/`` to ``path``, and ``path`` itself."""
    current = Path("/")
    yield current, current.lstat()
    waiting = list(reversed(path.parts[1:]))
    links = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            current = current.parent
            continue
        place = current / part
        status = place.lstat()
        yield place, status
        if not stat.S_ISLNK(status.st_mode):
            current = place
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = place.readlink()
        if target.is_absolute():
            current = Path("/")
            waiting.extend(reversed(target.parts[1:]))
        else:
            waiting.extend(reversed(target.parts))


def _why_place_untrusted(place: Path, status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to {_user_name(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode) or (status.st_uid == 0 and status.st_mode & stat.S_ISVTX):
        return ""
    return _who_may_write(place, status)


def _who_may_write(place: Path, status: os.stat_result) -> str:
    """Who besides the owner may write: ``/srv/cache can be written by everybody``; empty if nobody."""
    if status.st_mode & stat.S_IWOTH:
        return f"{place} can be written by everyone"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(place, status.st_gid):
        return f"{place} can be written by {_group_name(status.st_gid)}"
    return ""


def _is_private_group(place: Path, group: int) -> bool:
    """Whether a group is the user's private one, as distributions create them, and no ACL grants more."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    if user.pw_gid != group or found.gr_name != user.pw_name or set(found.gr_mem) - {user.pw_name}:
        return False
    try:
        return not hasattr(os, "getxattr") or not os.getxattr(place, "system.posix_acl_access")
    except OSError:
        return True  # it has no ACL


def _foreign_owner(folder: Path) -> str:
    """The owner of an existing folder, if it is not ours."""
    status = folder.stat()
    return f"{folder} belongs to {_user_name(status.st_uid)}" if status.st_uid != os.geteuid() else ""


def _make_folder(folder: Path) -> None:
    """Creates ``folder`` and missing folders above it; removes other users' permissions."""
    missing = []
    at = folder
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for place in reversed(missing):
        with suppress(FileExistsError):  # another process created it: it is checked again
            place.mkdir(mode=0o700)
            place.chmod(0o700)
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)


def _inherited_folder() -> Path | None:
    named = os.environ.get(ENV_PRIVATE, "")
    if not named:
        return None
    folder = Path(named)
    return folder if folder.is_dir() and not (why_untrusted(folder) or _foreign_owner(folder)) else None


def _temporary_folder() -> Path:
    """A temporary folder for this run; OSError if there is no safe place for one."""
    import tempfile  # slow to import, and rarely needed

    bases = (tempfile.gettempdir(), "/tmp", "/var/tmp", os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108  # each is checked; the folder in it is new
    for base in map(Path, filter(None, bases)):
        try:
            # Libraries are loaded from it, so it must not be mounted noexec.
            usable = base.is_dir() and not os.statvfs(base).f_flag & os.ST_NOEXEC
            if not usable or why_untrusted(base):
                continue
            _remove_abandoned_folders(base)
            folder = Path(tempfile.mkdtemp(prefix=_folder_prefix(), dir=base))
            folder.chmod(0o700)
        except OSError:
            continue
        os.environ[ENV_PRIVATE] = str(folder)
        atexit.register(_remove_folder, folder, os.getpid())
        return folder
    raise PermissionError(
        errno.EACCES, "no safe folder: others can write to all candidates; set XDG_RUNTIME_DIR to a folder that you own"
    )


def _folder_prefix() -> str:
    return f"gpuwatch-{os.geteuid()}-"


def _remove_folder(folder: Path, maker: int) -> None:
    """Removes libraries and machines of this run; runs and crash files are kept for the user."""
    import shutil

    if os.getpid() == maker:
        for kind in ("sim", "machines"):
            shutil.rmtree(folder / kind, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()


def _remove_abandoned_folders(base: Path) -> None:
    import shutil

    for abandoned in base.glob(f"{_folder_prefix()}*"):
        with suppress(OSError):
            status = abandoned.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if is_ours and time.time() - status.st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(abandoned, ignore_errors=True)


def _advice(path: Path, variable: str) -> str:
    """What the user can do; completes "to fix it, …"."""
    hint = f"set {variable} to a folder that you own"
    with suppress(OSError):
        above, status = path.parent.stat(), path.lstat()
        sticky = above.st_mode & stat.S_ISVTX and os.geteuid() not in (0, above.st_uid, status.st_uid)
        if status.st_uid != os.geteuid() and not sticky and not why_untrusted(path.parent):
            hint = f"remove {path}, or {hint}"
    return hint


def _user_name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group_name(number: int) -> str:
    try:
        return f"the group {grp.getgrgid(number).gr_name}"
    except KeyError:
        return f"the group {number}"

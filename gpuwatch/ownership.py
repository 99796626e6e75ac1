"""Which folders and files of its own gpuwatch trusts: those that nobody else can have written.

From the cache, code is loaded; kept runs are shown and removed; crash files are written. Whoever can write to one
of these folders, or to a folder above it, decides what happens there, and as root everything does. The rule is that
of ssh's StrictModes, for every folder and link on the way: the owner is root or the effective user, and nobody else
may write, except in a sticky folder of root's and for the private group of the user. The own folder belongs to the
effective user and is made 0700, its files 0600, whatever the umask.

Where that fails (root with the HOME of somebody else, say), a fresh folder takes its place for this run, and a line
on stderr says so.
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
"""Names the folder of this run to the gpuwatch processes below this one."""
_MOST_LINKS: Final = 40
"""As many as Linux follows in one path."""
_LEFT_SECONDS: Final = 10 * 86_400.0
"""What a killed run left in a folder of temporary files is removed after as long as systemd-tmpfiles waits."""
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def distrust(path: Path) -> str:
    """Why what is in ``path`` cannot be trusted: ``/home/ann belongs to ann``; empty where it can.

    ``path`` is a folder or a file; what of it is not there yet, nobody can have made.
    """
    try:
        for place, status in _places(path.absolute()):
            reason = _fault(place, status)
            if reason:
                return reason
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return f"{error.filename or path}: {error.strerror or error}"
    return ""


def file_distrust(path: Path) -> str:
    """Why one file of a trusted folder cannot be trusted: not ours, or others may write to it. Links are not followed.

    A link in a folder that only we can write to is ours as the file is; where it leads is for :func:`distrust`.
    """
    status = path.lstat()
    if status.st_uid != os.geteuid():
        return f"{path} belongs to {_user(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode):
        return ""
    return _writable(path, status)


def own_folder(path: Path, variable: str, kind: str) -> Path:
    """``path`` as a folder that is ours alone, made where it is missing; else a fresh one for this run.

    ``variable`` names what a user can set to another place, ``kind`` what the folder is for: its name in the fresh
    one. OSError where neither can be had.
    """
    why = distrust(path)
    if not why:
        _make(path)
        why = distrust(path) or _foreign(path)
    if not why:
        return path
    private = (_inherited() or _fresh()) / kind
    if not private.is_dir():  # else it was said when it was made, here or by the process above
        _make(private)
        _say(f"{path} is not used: {why}. {private} takes its place for this run; {_advice(path, variable)}")
    return private


def write_private(path: Path, text: str) -> None:
    """``text`` into a file of ours, 0600; OSError where that fails. A link in its place is not followed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(descriptor, 0o600)
        file.write(text)


def read_own(path: Path, most: int = -1) -> bytes:
    """The content of a file of ours, of a longer one its first ``most`` bytes.

    PermissionError where it is not ours, OSError where it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode) or _writable(path, status):
            raise PermissionError(errno.EACCES, "not a file of this user alone", str(path))
        return file.read(most)


def _places(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link on the way to ``path``, from ``/`` on, and ``path`` itself."""
    here = Path("/")
    yield here, here.lstat()
    waiting = list(reversed(path.parts[1:]))
    links = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = here.parent
            continue
        place = here / part
        status = place.lstat()
        yield place, status
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, "its links lead in a circle", str(path))
        target = place.readlink()
        if target.is_absolute():
            here = Path("/")
            waiting.extend(reversed(target.parts[1:]))
        else:
            waiting.extend(reversed(target.parts))


def _fault(place: Path, status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"{place} belongs to {_user(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode) or (status.st_uid == 0 and status.st_mode & stat.S_ISVTX):
        return ""
    return _writable(place, status)


def _writable(place: Path, status: os.stat_result) -> str:
    """Whether others than the owner may write: ``/srv/cache can be written by everybody``."""
    if status.st_mode & stat.S_IWOTH:
        return f"{place} can be written by everybody"
    if status.st_mode & stat.S_IWGRP and not _is_private(place, status.st_gid):
        return f"{place} can be written by {_group(status.st_gid)}"
    return ""


def _is_private(place: Path, group: int) -> bool:
    """Whether a group is the user's own, as distributions make one for each user, and no access list widens it."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    if user.pw_gid != group or found.gr_name != user.pw_name or set(found.gr_mem) - {user.pw_name}:
        return False
    try:
        return not hasattr(os, "getxattr") or not os.getxattr(place, "system.posix_acl_access")
    except OSError:
        return True  # it has none


def _foreign(folder: Path) -> str:
    """Why an existing folder cannot be ours."""
    status = folder.stat()
    return f"{folder} belongs to {_user(status.st_uid)}" if status.st_uid != os.geteuid() else ""


def _make(folder: Path) -> None:
    """Makes ``folder`` and what is missing above it, and takes from others what they may do in it."""
    missing = []
    at = folder
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for place in reversed(missing):
        with suppress(FileExistsError):  # another process made it, or somebody else: it is looked at again
            place.mkdir(mode=0o700)
            place.chmod(0o700)
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o700:
        folder.chmod(0o700)


def _inherited() -> Path | None:
    named = os.environ.get(ENV_PRIVATE, "")
    if not named:
        return None
    folder = Path(named)
    return folder if folder.is_dir() and not (distrust(folder) or _foreign(folder)) else None


def _fresh() -> Path:
    """A folder for this run; OSError where there is no safe place for one."""
    import tempfile  # with what it imports, too much for a start that finds all in order

    bases = (tempfile.gettempdir(), "/tmp", "/var/tmp", os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")
    for base in map(Path, filter(None, bases)):
        try:
            # Libraries are loaded from it.
            usable = base.is_dir() and not os.statvfs(base).f_flag & os.ST_NOEXEC
            if not usable or distrust(base):
                continue
            _sweep(base)
            folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=base))
            folder.chmod(0o700)
        except OSError:
            continue
        os.environ[ENV_PRIVATE] = str(folder)
        atexit.register(_remove, folder, os.getpid())
        return folder
    raise PermissionError(
        errno.EACCES, "there is no folder to which nobody else can write; set XDG_RUNTIME_DIR to one of your own"
    )


def _prefix() -> str:
    return f"gpuwatch-{os.geteuid()}-"


def _remove(folder: Path, maker: int) -> None:
    """What nobody can use after this run; runs and crash files stay for who made them."""
    import shutil

    if os.getpid() == maker:
        for kind in ("sim", "machines"):
            shutil.rmtree(folder / kind, ignore_errors=True)
        with suppress(OSError):
            folder.rmdir()


def _sweep(base: Path) -> None:
    import shutil

    for left in base.glob(f"{_prefix()}*"):
        with suppress(OSError):
            status = left.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if ours and time.time() - status.st_mtime > _LEFT_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


def _advice(path: Path, variable: str) -> str:
    """What the user can do about it."""
    hint = f"set {variable} to a folder of your own"
    with suppress(OSError):
        above, status = path.parent.stat(), path.lstat()
        sticky = above.st_mode & stat.S_ISVTX and os.geteuid() not in (0, above.st_uid, status.st_uid)
        if status.st_uid != os.geteuid() and not sticky and not distrust(path.parent):
            hint = f"remove it, or {hint}"
    return hint


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(f"gpuwatch: {line}", file=sys.stderr, flush=True)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group(number: int) -> str:
    try:
        return f"the group {grp.getgrgid(number).gr_name}"
    except KeyError:
        return f"the group {number}"

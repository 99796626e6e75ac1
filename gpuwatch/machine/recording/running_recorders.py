"""The recorders that run on this machine, so that a dashboard can take its samples from one of them.

A recorder keeps a small file locked for as long as it lives, in the user's state folder or, as a service, in
``/run/gpuwatch``. The kernel releases the lock however the process ends, so an entry that is not locked is left over.
No import of SQLite here: a dashboard looks before its first frame.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.core import user_folders
from gpuwatch.core.private_folders import private_folder
from gpuwatch.machine.sources.procfs import boot_id
from gpuwatch.sim.environment import ENV_STATE

SYSTEM_FOLDER = Path("/run/gpuwatch")
"""Where systemd lets the service write (``RuntimeDirectory=gpuwatch``)."""
ENV_FOLDER = "RUNTIME_DIRECTORY"
"""Set by systemd for the service."""
HEARTBEAT_SECONDS = 2.5
"""Seconds after which a :class:`SilenceReport` that is not repeated means that the recorder hangs too."""
_SUFFIX = ".recorder"
_MAX_BYTES = 8192


class SilenceReport(msgspec.Struct, frozen=True, rename={"collector_fault": "blame"}):
    """A recorder's report that its collector is late. The recorder repeats it every second."""

    at: float
    """When it was reported, in seconds since the machine started."""
    detail: str
    collector_fault: str
    """As in :class:`gpuwatch.machine.collector.feed.FeedStatus`."""


class RecorderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder says about itself."""

    path: str
    """Path of its recording."""
    pid: int
    interval: float
    """Seconds between samples."""
    gpm: bool
    place: tuple[str, str, str, str]
    """What has to be equal to see the same machine: :func:`machine_place`."""
    silence: SilenceReport | None = None

    def is_sufficient(self, interval: float, *, gpm: bool) -> bool:
        """Whether it samples at least every ``interval`` seconds, and with GPM if that is wanted."""
        return self.interval <= interval and (self.gpm or not gpm)


_entry_of = msgspec.json.Decoder(RecorderEntry).decode


def machine_place(environment: Mapping[str, str] | None = None) -> tuple[str, str, str, str]:
    """This boot, host, namespace of pids, and simulated machine: recorders of another one show something else."""
    namespace = ""
    with suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115  # it is no path
    return boot_id(), os.uname().nodename, namespace, (environment or os.environ).get(ENV_STATE, "")


def _user_folder() -> Path:
    return user_folders.state_folder() / "recorders"


class Announcement:
    """The entry of this process, which records."""

    def __init__(self, path: Path, interval: float, *, gpm: bool) -> None:
        """Announces a recording. OSError if that is not possible: the recording works without."""
        self._entry = RecorderEntry(
            path=str(path.absolute()), pid=os.getpid(), interval=interval, gpm=gpm, place=machine_place()
        )
        service = os.environ.get(ENV_FOLDER, "").partition(":")[0]
        folder = Path(service) if service else private_folder(_user_folder(), "XDG_STATE_HOME", "recorders")
        _remove_left_over_entries(folder)
        # Hosts and containers that share a folder have the same pids: none is to wait for the lock of another.
        self._file = folder / f"{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
        new = self._file.with_suffix(".new")  # until it is locked: another recorder would remove it as left over
        self._descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            os.fchmod(self._descriptor, 0o644)
            self._write(self._entry)
            new.rename(self._file)
        except OSError:
            self.close()
            new.unlink()
            raise

    def report_silence(self, detail: str, collector_fault: str) -> None:
        """Tells readers that this process works although no sample comes; repeat it every second."""
        self._update_entry(silence=SilenceReport(_uptime(), detail, collector_fault))

    def report_sample(self) -> None:
        """A sample came. A recorder that started with the machine may see the host get its name only now."""
        self._update_entry(silence=None, place=machine_place())

    def close(self) -> None:
        """Removes the entry; may be called twice."""
        if self._descriptor >= 0:
            with suppress(OSError):
                self._file.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def _update_entry(self, **fields: Any) -> None:
        entry = msgspec.structs.replace(self._entry, **fields)
        if entry != self._entry:
            with suppress(OSError):  # a full disk: readers see the old entry until a change can be written
                self._write(entry)
                self._entry = entry

    def _write(self, entry: RecorderEntry) -> None:
        # In one step, or a reader could see the end of an older and longer one behind it.
        os.pwrite(self._descriptor, msgspec.json.encode(entry).ljust(_MAX_BYTES), 0)


class RunningRecorder:
    """A recorder that lived when it was found; close it after use."""

    def __init__(self, descriptor: int, entry: RecorderEntry, user: int) -> None:
        self._descriptor = descriptor
        self.entry = entry
        self.reads_less = user not in (0, os.geteuid())
        """Whether it may not read what this user may read: the environment of this user's processes."""

    @property
    def is_alive(self) -> bool:
        return _is_locked(self._descriptor)

    @property
    def silence(self) -> SilenceReport | None:
        """Its latest report that no samples come; None if they come, or if it does not report any more."""
        entry = _read_entry(self._descriptor)
        silence = entry.silence if entry is not None else self.entry.silence
        return silence if silence is not None and 0 <= _uptime() - silence.at < HEARTBEAT_SECONDS else None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find_running_recorders(environment: Mapping[str, str] | None = None) -> list[RunningRecorder]:
    """The recorders of what this process would see too, those that may read most and have the shortest interval first.

    Those of this user, and those of the system folder, which only root can have created.
    """
    here, found = machine_place(environment), list[RunningRecorder]()
    for recorder in _living_recorders():
        if recorder.entry.place == here:
            found.append(recorder)
        else:
            recorder.close()
    return sorted(found, key=lambda recorder: (recorder.reads_less, recorder.entry.interval, recorder.entry.pid))


def recordings_in_progress() -> list[Path]:
    """The recordings of the recorders of :func:`find_running_recorders`, in its order."""
    found = find_running_recorders()
    for recorder in found:
        recorder.close()
    return [Path(recorder.entry.path) for recorder in found]


def all_recordings_in_progress() -> set[str]:
    """The recordings of all recorders that run, whatever machine they record."""
    paths = set()
    for recorder in _living_recorders():
        paths.add(recorder.entry.path)
        recorder.close()
    return paths


def _living_recorders() -> Iterator[RunningRecorder]:
    folders = [SYSTEM_FOLDER]
    with suppress(OSError):
        folders.insert(0, _user_folder())
    for folder in folders:
        for file in _entry_files(folder):
            recorder = _open_entry(file, any_owner=folder == SYSTEM_FOLDER)
            if recorder is not None and recorder.is_alive:
                yield recorder
            elif recorder is not None:
                recorder.close()


def _entry_files(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)


def _open_entry(file: Path, *, any_owner: bool) -> RunningRecorder | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    status = os.fstat(descriptor)
    entry = _read_entry(descriptor)
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    trusted = any_owner or status.st_uid in (0, os.geteuid())
    if entry is None or writable_by_others or not stat.S_ISREG(status.st_mode) or not trusted:
        os.close(descriptor)
        return None
    return RunningRecorder(descriptor, entry, status.st_uid)


def _read_entry(descriptor: int) -> RecorderEntry | None:
    try:
        return _entry_of(os.pread(descriptor, _MAX_BYTES, 0))
    except (OSError, ValueError, RecursionError):  # of another version, or just being written
        return None


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _remove_left_over_entries(folder: Path) -> None:
    """Removes what killed recorders have left."""
    for file in _entry_files(folder):
        with suppress(OSError):
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink()
            finally:
                os.close(descriptor)


def _uptime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)

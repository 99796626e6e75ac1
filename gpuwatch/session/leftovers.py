"""What gpuwatch keeps on this machine beside the program itself, and its removal.

Nothing in use is removed: a simulated machine that a process has open, the libraries while a program's environment
names them, the recording of a running recorder. Nor anything in a folder that another user can write to. Folders are
those of this environment (``XDG_CACHE_HOME``, ``XDG_STATE_HOME``, ``XDG_RUNTIME_DIR``), as with every command.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.core import private_folders, user_folders
from gpuwatch.machine.recording import running_recorders
from gpuwatch.sim import library_cache, state_files


@dataclass(frozen=True, slots=True)
class Leftover:
    """One file or folder that gpuwatch made."""

    path: Path
    kind: str
    why_kept: str = ""
    """Why it stays; empty if it is to be removed."""

    @property
    def size_bytes(self) -> int:
        """Size of all files in it; links are not followed, unreadable files are not counted."""
        total = 0
        for path in (self.path, *(self.path.rglob("*") if self.path.is_dir() else ())):
            with suppress(OSError):
                status = path.lstat()
                total += 0 if path.is_dir() and not path.is_symlink() else status.st_size
        return total


def leftovers(*, recordings: bool = False) -> list[Leftover]:
    """Everything that is kept. Recordings are only to be removed if ``recordings``."""
    files = [*_machine_leftovers(), *_library_leftovers(), *_saved_leftovers(recordings)]
    settings = user_folders.config_folder() / "settings.toml"
    if settings.exists():
        files.append(Leftover(settings, "your settings", "yours; to reset it, remove the file yourself"))
    return files


def remove(leftover: Leftover) -> None:
    """Removes one. Raises OSError if it cannot be removed, or is in use by now."""
    path = leftover.path
    if path.suffix == state_files.STATE_SUFFIX:
        with state_files.folder_lock(path.parent):
            state_files.remove_machine(path)
    elif path.is_dir() and not path.is_symlink():
        with _not_being_built(path):
            shutil.rmtree(path)
    else:
        path.unlink()


def remove_empty(removed: list[Leftover]) -> None:
    """Removes the folders that are empty once these are gone."""
    simulation_folder = next(state_files.possible_state_folders(), None)
    if (
        simulation_folder is not None
        and simulation_folder.is_dir()
        and [path.name for path in simulation_folder.iterdir()] == ["lock"]
    ):
        shutil.rmtree(simulation_folder, ignore_errors=True)
    state = user_folders.state_folder()
    for folder in (
        *{leftover.path.parent for leftover in removed},
        library_cache.cache_folder().parent,
        state / "recorders",
        state,
    ):
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _not_being_built(folder: Path) -> Iterator[None]:
    """Holds the lock of :mod:`gpuwatch.sim.library_cache` on the cache; BlockingIOError if somebody has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _machine_leftovers() -> Iterator[Leftover]:
    folder = next(state_files.possible_state_folders(), None)
    if folder is not None and folder.is_dir():
        why = private_folders.why_untrusted(folder)
        for path in sorted(folder.glob(f"*{state_files.STATE_SUFFIX}")):
            yield Leftover(path, "a simulated machine", why or ("in use" if state_files.in_use(path) else ""))


def _library_leftovers() -> Iterator[Leftover]:
    cache = library_cache.cache_folder()
    if cache.is_dir():
        why_in_use = "a program is using them" if _is_named_by_a_process(cache) else ""
        try:
            with _not_being_built(cache):
                pass
        except BlockingIOError:
            why_in_use = "they are being compiled"
        yield Leftover(cache, "libraries of the simulated GPUs", private_folders.why_untrusted(cache) or why_in_use)


def _is_named_by_a_process(folder: Path) -> bool:
    """Whether a program's environment names it: one that starts has no machine open yet, nor every library mapped.

    Its simulated machine may also be in a folder that this environment does not know (``XDG_RUNTIME_DIR``).
    """
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # another user's, or gone
            if os.fsencode(folder) in environment.read_bytes():
                return True
    return False


def _saved_leftovers(recordings: bool) -> Iterator[Leftover]:
    state = user_folders.state_folder()
    distrust = private_folders.why_untrusted(state)
    if (state / "runs").is_dir():
        yield Leftover(state / "runs", "saved runs", distrust)
    for path in sorted(state.glob("crash-*.txt")):
        yield Leftover(path, "a gpuwatch traceback", distrust)
    being_written = running_recorders.all_recordings_in_progress()
    why_kept = "" if recordings else "a recording: --recordings removes it"
    for path in sorted((state / "recordings").glob("*")):
        # A recording in use has files beside it, whose names begin as its own does.
        why_in_use = "a recorder is writing it" if any(str(path).startswith(name) for name in being_written) else ""
        yield Leftover(path, "a recording", distrust or why_in_use or why_kept)

"""Saved runs: one JSON file each in the user's state folder; those of an experiment are in one file together.

Files are written atomically, private to the user, with secrets masked. The oldest are removed when there are too many,
or when they take too much space. A folder that others can write to is not used (:mod:`gpuwatch.core.private_folders`).
"""

from __future__ import annotations

import datetime
import os
import re
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gpuwatch.core import input_size_limits, private_folders, user_folders
from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.core.model.json_codec import NotADocument, from_json, runs_in, to_json
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import Experiment

MAX_FILES = 200
"""Files kept: an experiment counts once, however many runs it has."""
MAX_BYTES = 256 << 20
"""Maximum size of all files; the newest is kept whatever its size."""
_ABANDONED_SECONDS = 3600.0
"""Age of a half-written file after which its writer must have been killed."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def runs_folder() -> Path:
    """``runs`` in the user's state folder; XDG_STATE_HOME is honoured."""
    return user_folders.state_folder() / "runs"


class RunStore:
    """Saves and loads the runs in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = runs_folder() if folder is None else folder
        self.unreadable = 0
        """Files that the last :meth:`latest` could not read."""
        self.why_untrusted = ""
        """Why the last :meth:`latest` did not read the folder: others can write to it."""
        self._experiments: dict[tuple[datetime.datetime, str], Path] = {}
        """Files of experiments, by start and configuration of their runs."""

    def save(self, run: Run) -> Path:
        """Writes ``run`` with secrets masked, and removes the oldest beyond the limits. OSError if that fails."""
        return self._write(run, f"{_moment(run.started_at)}-{_slug(run.config)}.json")

    def save_experiment(self, document: Experiment) -> Path | None:
        """Writes an experiment and its runs to one file, as :meth:`save` does; to one file each if it is too large.

        None if it has no runs.
        """
        made = runs_in(document)
        if len(to_json(document, indent=0)) <= input_size_limits.DOCUMENT.bytes:
            return self._write(document, f"{_moment(document.started_at)}-try.json") if made else None
        paths = [self.save(run) for run in made]
        return paths[0]

    def _write(self, document: Run | Experiment, name: str) -> Path:
        self.folder = private_folders.private_folder(self.folder, "XDG_STATE_HOME", "runs")
        path = self.folder / name
        handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(to_json(masked(document), indent=0).encode())
            Path(temporary).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(temporary).unlink()
            raise
        self._prune()
        return path

    def path_of(self, run: Run) -> Path:
        """Where ``run`` is saved: the file of its experiment, if the last :meth:`latest` found it there."""
        alone = self.folder / f"{_moment(run.started_at)}-{_slug(run.config)}.json"
        return self._experiments.get((run.started_at, run.config), alone)

    def latest(self, count: int = MAX_FILES) -> list[Run]:
        """The newest runs, newest first; files that cannot be read are counted and skipped."""
        self.unreadable = 0
        self.why_untrusted = private_folders.why_untrusted(self.folder)
        if self.why_untrusted:
            return []
        found: list[Run] = []
        for path in self._files():
            if len(found) >= count:
                break
            try:
                document = from_json(private_folders.read_private_file(path, input_size_limits.DOCUMENT.bytes + 1))
            except (OSError, NotADocument):
                document = None
            if not isinstance(document, Run | Experiment):
                self.unreadable += 1
                continue
            found += runs_in(document)
            if isinstance(document, Experiment):
                self._experiments.update({(run.started_at, run.config): path for run in runs_in(document)})
        return sorted(found, key=lambda run: run.started_at, reverse=True)[:count]

    def _prune(self) -> None:
        room = MAX_BYTES
        for number, old in enumerate(self._files()):
            with suppress(OSError):  # another process removed it
                room -= old.stat().st_size
                if number >= MAX_FILES or (room < 0 and number > 0):
                    old.unlink()
        for leftover in self.folder.glob(".*.tmp"):
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime > _ABANDONED_SECONDS:
                    leftover.unlink()

    def _files(self) -> list[Path]:
        """Newest first: file names begin with the time."""
        try:
            return sorted(self.folder.glob("[0-9]*.json"), reverse=True)
        except OSError:
            return []


def _moment(started_at: datetime.datetime) -> str:
    return started_at.strftime("%Y%m%dT%H%M%S.%f")


def _slug(config: str) -> str:
    return _UNSAFE.sub("_", config)[:60].strip(".") or "run"


def newest_runs(runs: Iterable[Run], most: int) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """From saved runs (newest first): the latest user programs, and the latest run of each probe by start time."""
    programs: list[Run] = []
    probes: dict[str, Run] = {}
    for run in runs:
        if run.is_program:
            programs.append(run)
        else:
            probes.setdefault(run.config, run)
    return tuple(programs[:most]), tuple(sorted(probes.values(), key=lambda run: run.started_at))


def is_of_this_machine(run: Run, host: str | None, *, simulated: bool) -> bool:
    """Whether a saved run is from this machine (home folders may be shared between machines)."""
    return run.simulated == simulated and (run.host is None or host is None or run.host == host)

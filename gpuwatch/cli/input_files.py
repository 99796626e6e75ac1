"""Files as the input of a command: saved documents, and recordings with a part of their time."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.output import print_line
from gpuwatch.cli.progress import progress
from gpuwatch.core.errors import EXIT_FAILED, UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.model.json_codec import Document, NotADocument, read

if TYPE_CHECKING:
    from gpuwatch.machine.recording.reader import Recording


def is_recording(path: Path) -> bool:
    """Whether a file is a database, or named as one that was damaged; False for one that cannot be read."""
    from gpuwatch.machine.recording.recording_database import MAGIC

    try:
        with path.open("rb") as file:
            begin = file.read(len(MAGIC)) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return False
    return begin == MAGIC or bool(begin and path.suffix == ".gpuwatch")


@contextmanager
def read_recording(path: Path, *, may_be_empty: bool = False) -> Iterator[Recording]:
    """The recording in a file, which has samples unless ``may_be_empty``. Exits with 1 if something of it is lost.

    :class:`~gpuwatch.core.errors.GpuwatchError` if it cannot be read at all.
    """
    from gpuwatch.machine.recording.reader import Recording, open_recording

    with Recording(path) if may_be_empty else open_recording(path) as recording:
        try:
            yield recording
        except click.exceptions.Exit:
            if not recording.damage:
                raise
        if recording.damage:
            lost = recording.damage.text(recording.samples)
            print_line(f"gpuwatch: {printable_path(path)} is damaged: {lost} (see gpuwatch record check)")
            raise click.exceptions.Exit(EXIT_FAILED)


def recorded_range(recording: Recording, since: str | None, until: str | None) -> tuple[float, float]:
    """Start and end of a range as people write it, in seconds since the epoch; without them, those of the recording.

    :class:`UsageError` if nothing was recorded then.
    """
    from gpuwatch.machine.recording.time_expressions import parse_begin, parse_moment, time_text

    assert recording.begin is not None
    assert recording.end is not None
    first, last = recording.begin, recording.end
    begin = first if since is None else parse_begin(since, last)
    end = last if until is None else parse_moment(until, last)
    if since is not None and end < begin <= last:
        raise UsageError(f"the start {time_text(begin)} is after the end {time_text(end)}")
    if begin > last or end < first:
        raise UsageError(
            f"nothing was recorded from {time_text(begin)} {'on' if until is None else f'to {time_text(end)}'}",
            hint=f"{printable_path(recording.path)} has {time_text(first)} to {time_text(last)}",
        )
    return begin, end


def latest_recording() -> Path:
    """The recording of a recorder that runs on this machine, else the newest one in this user's folder.

    UsageError, which says how to make one, if there is none.
    """
    from gpuwatch.machine.recording.recording_defaults import default_recording_file
    from gpuwatch.machine.recording.running_recorders import recordings_in_progress

    if paths := recordings_in_progress():
        return paths[0]
    folder = default_recording_file().parent
    recordings: list[tuple[float, Path]] = []
    with suppress(OSError):
        for path in folder.glob("*.gpuwatch"):
            with suppress(OSError):
                recordings.append((path.stat().st_mtime, path))
    if not recordings:
        raise UsageError(
            f"no recorder is running, and there is no recording in {printable_path(folder)}",
            hint="create one with gpuwatch record, or name a file",
        )
    return max(recordings)[1]


def read_document(path: Path) -> Document:
    """A saved document (JSON, or HTML that carries it); a one-line :class:`UsageError` for anything else."""
    name = printable_path(path)
    progress(f"reading {name}")
    try:
        return read(path)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    except NotADocument as error:
        reason, hint = (
            ("", f"for a log, use gpuwatch explain {shlex.quote(name)}") if error.is_text else (f": {error}", "")
        )
        raise UsageError(f"{name} is not a gpuwatch document{reason}", hint=hint) from error
    finally:
        progress("")

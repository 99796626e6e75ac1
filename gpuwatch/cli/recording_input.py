"""A recording as the input of a command, which says at its end what of the recording could not be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.output import print_line
from gpuwatch.core.errors import EXIT_FAILED
from gpuwatch.core.formatting.terminal_support import file_name

if TYPE_CHECKING:
    from gpuwatch.machine.recording.reader import Recording

_SUFFIX = ".gpuwatch"


def is_recording(path: Path) -> bool:
    """Whether a file is a database, or named as one that was damaged; False for one that cannot be read."""
    from gpuwatch.machine.recording.tables import MAGIC

    try:
        with path.open("rb") as file:
            begin = file.read(len(MAGIC)) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return False
    return begin == MAGIC or bool(begin and path.suffix == _SUFFIX)


@contextmanager
def recording_of(path: Path, *, empty: bool = False) -> Iterator[Recording]:
    """The recording in a file, which has samples unless ``empty``. Exits with 1 if something of it is lost.

    :class:`~gpuwatch.core.errors.GpuwatchError` if it cannot be read at all.
    """
    from gpuwatch.machine.recording.reader import Recording, open_recording

    with Recording(path) if empty else open_recording(path) as recording:
        left: click.exceptions.Exit | None = None
        try:
            yield recording
        except click.exceptions.Exit as error:
            left = error
        if recording.damage:
            lost = recording.damage.text(recording.samples)
            print_line(f"gpuwatch: {file_name(path)} is damaged: {lost} (see gpuwatch record check)")
            raise click.exceptions.Exit(EXIT_FAILED)
        if left is not None:
            raise left

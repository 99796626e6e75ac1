"""The newest samples of a recording that grows, one after another as they are written."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.history.sample_frames import DamagedData, FrameDecoder
from gpuwatch.machine.recording.database_cells import decompress, without_checksum
from gpuwatch.machine.recording.recording_database import DATABASE_ERRORS, open_to_read, unreadable_error

_MAX_BLOCKS = 3
"""Blocks that are read again after this process was stopped for some minutes; older ones are left out."""


class NewestSamples:
    """Follows the writer of a file. Used by one thread. :class:`~gpuwatch.core.errors.GpuwatchError` if it cannot be
    read.

    A check that finds nothing new takes about 20 µs.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = open_to_read(path)
        self._data_version: int | None = None
        self._last_block = 0
        """The last sealed block that was seen."""
        self._last_frame = 0
        """The last frame of the open block that was decoded."""
        self._open_samples = 0
        """Samples of the open block that were decoded."""
        self._decoder = FrameDecoder()
        self._any_taken = False

    def close(self) -> None:
        self._db.close()

    def take(self) -> list[Snapshot]:
        """The samples since the last call, oldest first; in the first call only the newest."""
        version = self._rows("PRAGMA data_version")[0][0]
        if version == self._data_version:
            return []
        self._data_version = version
        missed_blocks: list[tuple[int, bytes]] = []
        self._rows("BEGIN")  # or a block that is sealed in between would be seen twice or not at all
        try:
            last_block = self._rows("SELECT max(id) FROM minutes")[0][0] or 0
            sealed = last_block != self._last_block
            if sealed and self._any_taken:
                blocks = "SELECT id, block FROM data WHERE id > ? ORDER BY id DESC LIMIT ?"
                missed_blocks = self._rows(blocks, (self._last_block, _MAX_BLOCKS))
            after = 0 if sealed else self._last_frame
            frames = self._rows("SELECT id, frame FROM open_frames WHERE id > ? ORDER BY id", (after,))
        finally:
            self._rows("COMMIT")
        found: list[Snapshot] = []
        if sealed:
            for number, block in reversed(missed_blocks):
                found += _samples_of_block(block, self._open_samples if number == self._last_block + 1 else 0)
            self._last_block, self._last_frame, self._open_samples, self._decoder = last_block, 0, 0, FrameDecoder()
        for number, data in frames:
            self._last_frame = number
            for decoder in self._decoder.read(without_checksum(data)):
                self._open_samples += 1
                found.append(decoder.snapshot())
        if not self._any_taken:
            found = found[-1:]
        self._any_taken = self._any_taken or bool(found)
        return found

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except DATABASE_ERRORS as error:
            raise unreadable_error(self._path, error) from error


def _samples_of_block(block: bytes, already_taken: int) -> list[Snapshot]:
    """The samples of a block after the first ``already_taken``."""
    with suppress(DamagedData):
        return [decoder.snapshot() for decoder in islice(FrameDecoder().read(decompress(block)), already_taken, None)]
    return []

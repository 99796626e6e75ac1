"""Seals samples into a block of a recording, with what is stored of them besides: means, GPU time, rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from gpuwatch.machine.history.process_usage import Key, ProcessLife, ProcessLives
from gpuwatch.machine.history.sample_frames import DamagedData, StoredSample
from gpuwatch.machine.recording.database_cells import checksum, compress, pack_times
from gpuwatch.machine.recording.database_rows import life_of, recorded_findings, write_findings, write_lives
from gpuwatch.machine.recording.gpu_time_and_energy import (
    HOUR_SECONDS,
    GpuTime,
    GpuTimeMeter,
    merged_times,
    pack_gpu_time,
    unpack_gpu_time,
    with_bounded_processes,
)
from gpuwatch.machine.recording.minute_and_hour_means import (
    BLOCK_SECONDS,
    Points,
    interval_begin,
    merge_points,
    pack_points,
    summarize,
    unpack_points,
)

_R = TypeVar("_R")
_T = TypeVar("_T")
_LIVES_KEPT_SECONDS = 60.0
"""Seconds for which a process that is not seen is kept in memory."""


class BlockWriter:
    """Writes blocks in the order of their samples, each in a transaction of the caller."""

    def __init__(self, db: sqlite3.Connection, interval: float) -> None:
        """``interval``: seconds between samples, as they were asked for."""
        self._db = db
        self._meter = GpuTimeMeter(interval)
        self._lives = ProcessLives(self._find_life, self._meter.max_gap_seconds)
        self._newest_hour: tuple[int, GpuTime | None] | None = None
        """The newest hour of GPU time: its start and what is stored of it; None if that is only a part of it."""
        self._newest_tiers: dict[int, tuple[int, Points | None]] = {}
        """The newest block of each tier, by seconds of its points: its start and its points; None if it is damaged."""

    def seal(self, run: int, samples: Sequence[StoredSample], frames: bytes, boot: float) -> None:
        """Writes the block of these samples, at least one, whose chunk has these frames.

        ``boot``: seconds since the machine started, at its end.
        """
        snapshots, times = [sample.snapshot for sample in samples], [sample.at for sample in samples]
        entry = (run, times[0], times[-1], boot, len(times))
        cursor = self._db.execute(
            "INSERT INTO minutes (run, begin, end, boot, samples, times, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*entry, pack_times(times), checksum(*entry)),
        )
        self._db.execute("INSERT INTO data (id, block) VALUES (?, ?)", (cursor.lastrowid, compress(frames)))
        for seconds, block in BLOCK_SECONDS.items():
            self._write_tier(seconds, block, summarize(snapshots, seconds))
        for snapshot in snapshots:
            self._lives.add(snapshot)
            self._meter.add(snapshot)
        for begin, time in self._meter.pop_hours().items():
            self._write_hour(begin, time, cursor.lastrowid or 0)
        write_findings(self._db, list(recorded_findings(samples, lambda *query: self._db.execute(*query).fetchall())))
        write_lives(self._db, self._lives.take_changed(times[-1] - _LIVES_KEPT_SECONDS))

    def _write_tier(self, seconds: int, block: int, points: Points) -> None:
        by_block: dict[int, Points] = {}
        for begin, summaries in points.items():
            by_block.setdefault(interval_begin(begin, block), {})[begin] = summaries
        for begin, more in by_block.items():
            stored = self._newest_tiers.get(seconds)
            if stored is None or stored[0] != begin:
                query = "SELECT block FROM tiers WHERE seconds = ? AND begin = ?"
                row = self._db.execute(query, (seconds, begin)).fetchone()
                stored = self._newest_tiers[seconds] = (begin, _decode_or_none(unpack_points, row[0]) if row else {})
            if stored[1] is None:
                continue  # it is left to readers
            merge_points(stored[1], more)
            values = (seconds, begin, pack_points(stored[1]))
            self._db.execute("INSERT OR REPLACE INTO tiers VALUES (?, ?, ?)", values)

    def _write_hour(self, begin: int, time: GpuTime, block: int) -> None:
        if self._newest_hour is None or self._newest_hour[0] != begin:
            self._newest_hour = (begin, self._stored_hour(begin, block))
        stored = self._newest_hour[1]
        if stored is not None:
            stored = with_bounded_processes(merged_times((stored, time)), time)
            self._newest_hour = (begin, stored)
            self._db.execute("INSERT OR REPLACE INTO gpu_time VALUES (?, ?)", (begin, pack_gpu_time(stored)))

    def _stored_hour(self, begin: int, block: int) -> GpuTime | None:
        """The stored GPU time of the hour; None if damaged, which readers report."""
        row = self._db.execute("SELECT block FROM gpu_time WHERE begin = ?", (begin,)).fetchone()
        if row is not None:
            return _decode_or_none(unpack_gpu_time, row[0])
        earlier = "SELECT 1 FROM minutes WHERE id < ? AND begin <= ? AND end > ? LIMIT 1"
        found = self._db.execute(earlier, (block, begin + HOUR_SECONDS, begin)).fetchone()
        return None if found else GpuTime()

    def _find_life(self, key: Key) -> ProcessLife | None:
        query = "SELECT first, last, life FROM processes WHERE pid = ? AND create_time = ? AND device = ?"
        row = self._db.execute(query, key).fetchone()
        return _decode_or_none(life_of, row) if row else None


def _decode_or_none(decode: Callable[[_R], _T], data: _R) -> _T | None:
    """The stored data, decoded; None if damaged, which readers report."""
    with suppress(DamagedData):
        return decode(data)
    return None

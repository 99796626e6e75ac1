"""Damaged recordings: what can be read is exported, and nothing ends in a traceback."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.machine.recording.reader import open_recording
from gpuwatch.share.exports import csv_writer, ndjson_writer, openmetrics_writer, perfetto_writer, recording_tables
from gpuwatch.share.exports.exported_period import select_period
from tests.exports.recorded import record
from tests.exports.trace_reader import Trace

_PLACES = (
    ("data", "block"), ("events", "event"), ("findings", "finding"), ("processes", "life"), ("tiers", "block"),
    ("minutes", "times"),
)  # fmt: skip
_TIMES = (("findings", "since"), ("findings", "until"), ("events", "at"), ("processes", "first"), ("processes", "last"))


def damage(path: Path, rng: random.Random) -> None:
    with sqlite3.connect(path) as db:
        for _ in range(rng.randrange(1, 6)):
            if rng.random() < 0.3:
                table, column = rng.choice(_TIMES)
                value = rng.choice((1e300, -1e300, float("inf"), "text", b"bytes", 0, 10**18))
                with suppress(sqlite3.IntegrityError):  # part of a key
                    db.execute(f"UPDATE {table} SET {column} = ?", (value,))
                continue
            table, column = rng.choice(_PLACES)
            rows = db.execute(f"SELECT {column} FROM {table}").fetchall()
            (old,) = rng.choice(rows)
            if not isinstance(old, bytes) or not old:
                continue
            new = bytearray(old)
            for _ in range(rng.randrange(1, 4)):
                new[rng.randrange(len(new))] = rng.randrange(256)
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (bytes(new), old))


@pytest.mark.thorough
def test_no_damage_is_a_traceback(tmp_path: Path) -> None:
    whole, path, rng = tmp_path / "whole", tmp_path / "x", random.Random(5)
    record(whole, 130)
    ended = Counter[str]()
    for _ in range(15):
        shutil.copy(whole, path)
        damage(path, rng)
        try:
            with open_recording(path) as recording:
                for step in (0, 60):
                    period = select_period(recording, None, None, step)
                    Trace(b"".join(perfetto_writer.write(period)))
                    for written in (ndjson_writer.write(period), openmetrics_writer.write(period)):
                        assert b"".join(written) or recording.damage
                    for name in ("devices",) if step else recording_tables.TABLE_NAMES:
                        assert b"".join(csv_writer.write(period, recording_tables.table(name, step)))
            ended["exported"] += 1
        except GpuwatchError:
            ended["refused"] += 1
    assert ended["exported"] > 7

"""Recordings of every schema since the first release keep opening."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.machine.recording.gpu_time_by_group import gpu_usage
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.recording_database import SCHEMA
from gpuwatch.machine.recording.recording_info import check_recording, info_lines, recording_info
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.session.recorded_period_document import period_document
from tests.recording.days import NOON
from tests.recording.make_fixture import FOLDER, HOT

FILES = sorted(FOLDER.glob("recording-*.gpuwatch"))


def test_there_is_one_of_each() -> None:
    assert {path.name for path in FILES} == {f"recording-{number}.gpuwatch" for number in range(3, SCHEMA + 1)}


def test_files_of_other_versions_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "old.gpuwatch"
    data = bytearray(FILES[0].read_bytes())
    data[60:64] = (2).to_bytes(4, "big")
    path.write_bytes(data)
    for use in (Recording, check_recording, RecordingWriter):
        with pytest.raises(UsageError, match=r"old.gpuwatch .* \(schema 2\)"):
            use(path)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_old_files_open(path: Path) -> None:
    with Recording(path) as recording:
        assert recording.samples == 90
        assert recording.begin == pytest.approx(NOON.timestamp(), abs=0.01)
        shots = [kept.snapshot for kept in recording.snapshots()]
        assert [device.name for device in shots[0].devices] == ["NVIDIA H200"] * 2
        assert {row.user for row in shots[-1].processes} == {"alice", "bob", "carol"}
        assert [shot.devices[0].number("temperature.gpu_celsius") for shot in shots[:3]] == [50, 50, 50]
        assert [one.kind for one in recording.events()] == ["recording.began", "throttle.began", "recording.ended"]
        assert [one.finding.title for one in recording.findings()] == [HOT.title]
        assert len(recording.processes()) == 3
        (point, *_) = recording.summaries(60, 0, 2e9, frozenset({"power.draw_watts"})).values()
        assert all(one.least <= one.mean <= one.most for one in point.values())
    assert not check_recording(path).damaged


@pytest.mark.parametrize("table", ["clocks", "gpu_time", "events", "open_frames", "minutes"])
def test_a_table_more_is_ignored_and_one_less_is_an_error_in_one_line(tmp_path: Path, table: str) -> None:
    """The first files of this schema have a table ``clocks``, which nothing reads."""
    path = tmp_path / "other.gpuwatch"
    path.write_bytes(FILES[0].read_bytes())
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"DROP TABLE {table}")
    if table == "clocks":
        assert not check_recording(path).damaged
        return
    with pytest.raises(GpuwatchError, match=f"no such table: {table}"):
        check_recording(path)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_never_an_error_of_gpuwatch(tmp_path: Path, seed: int) -> None:
    """Bytes anywhere in the file are overwritten: it is refused, or what is left is read."""
    noise, whole = random.Random(seed), FILES[-1].read_bytes()
    path = tmp_path / "damaged.gpuwatch"
    for _ in range(20):
        data = bytearray(whole)
        for _ in range(noise.choice((1, 3, 20))):
            place = noise.randrange(len(data))
            data[place : place + 8] = noise.randbytes(8)
        path.write_bytes(data[: noise.choice((len(data), noise.randrange(len(data))))])
        with suppress(GpuwatchError):
            check_recording(path)
        with suppress(GpuwatchError), Recording(path) as recording:
            list(info_lines(recording_info(recording)))
        with suppress(GpuwatchError), Recording(path) as recording:
            for kept in recording.snapshots():
                assert kept.snapshot
            recording.history(NOON.timestamp() + 60, 60, frozenset({"power.draw_watts"}))
            with suppress(GpuwatchError):
                gpu_usage(recording, None, None, "user")
            with suppress(GpuwatchError):
                period_document(recording, NOON.timestamp(), NOON.timestamp() + 90, runs=RunStore(tmp_path))

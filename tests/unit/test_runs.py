"""Runs on disk: whole or not there, never more than wanted, and a bad file harms nobody."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gpuwatch.history import runs
from gpuwatch.history.runs import RunStore
from gpuwatch.model.run import Run

NOON = datetime.datetime(2026, 5, 11, 12, 0, tzinfo=datetime.UTC)


def run(number: int = 0, config: str = "growth") -> Run:
    return Run(
        config=config,
        group="memory",
        workload="matmul",
        simulated=False,
        started_at=NOON + datetime.timedelta(seconds=number),
        verdict="ok",
    )


def test_saved_runs_come_back_newest_first(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    assert store.latest() == []
    for number in (1, 3, 2):
        store.save(run(number))
    assert store.latest() == [run(3), run(2), run(1)]
    assert store.latest(1) == [run(3)]


def test_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST", 3)
    store = RunStore(tmp_path)
    for number in range(5):
        store.save(run(number))
    assert store.latest() == [run(4), run(3), run(2)]
    assert len(list(tmp_path.iterdir())) == 3, "no temporary file is left"


def test_unreadable_files_are_skipped_and_counted(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(run(1))
    (tmp_path / "20260512T000000.0-half.json").write_text('{"schema": "gpuwatch.run/1", "con')
    (tmp_path / "20260513T000000.0-bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "20260514T000000.0-folder.json").mkdir()
    (tmp_path / "notes.txt").write_text("not ours")
    assert store.latest() == [run(1)]
    assert store.unreadable == 3


def test_a_hostile_name_stays_inside_the_folder(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    path = store.save(run(1, "../../etc/\x1b[31mpasswd\n"))
    assert path.parent == tmp_path / "runs"
    assert path.name.isprintable()
    assert store.latest()[0].config == "../../etc/\x1b[31mpasswd\n"


def test_the_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = runs.save(run(1))
    assert path.is_relative_to(tmp_path / "gpuwatch")
    assert runs.latest(5) == [run(1)]


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        RunStore(tmp_path / "file" / "runs").save(run())
    assert RunStore(tmp_path / "file" / "runs").latest() == []

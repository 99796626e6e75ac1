"""Runs on disk: whole or not there, never more than wanted, and a bad file harms nobody."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import msgspec
import pytest

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.try_results import Answer, Experiment, Trial
from gpuwatch.machine.history import saved_runs
from gpuwatch.machine.history.saved_runs import RunStore

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
    monkeypatch.setattr(saved_runs, "MAX_FILES", 3)
    store = RunStore(tmp_path)
    for number in range(5):
        store.save(run(number))
    assert store.latest() == [run(4), run(3), run(2)]
    assert len(list(tmp_path.iterdir())) == 3, "no temporary file is left"


def test_an_experiment_is_one_file_and_its_runs_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_runs, "MAX_FILES", 2)
    store = RunStore(tmp_path)
    store.save(run(0))
    trials = [Trial(asked="default", run=run(number, "default")) for number in (1, 2, 4)]
    document = Experiment(
        command="python train.py",
        started_at=NOON + datetime.timedelta(seconds=1),
        took_seconds=4.0,
        rule="after 20 steps",
        trials=(*trials, Trial(asked="xla", not_tried="no")),
        answer=Answer(sentence="no difference"),
    )
    path = store.save_experiment(document)
    store.save(run(3))
    assert store.latest() == [run(4, "default"), run(3), run(2, "default"), run(1, "default")]
    assert store.latest(2) == [run(4, "default"), run(3)]
    assert {store.path_of(one) for one in store.latest() if one.config == "default"} == {path}
    assert store.unreadable == 0
    monkeypatch.setattr(input_size_limits, "DOCUMENT", input_size_limits.DOCUMENT._replace(bytes=1000))
    assert store.save_experiment(document) == tmp_path / "20260511T120001.000000-default.json"


def test_they_take_no_more_room_than_they_may_but_the_newest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RunStore(tmp_path)
    size = store.save(run(0)).stat().st_size
    monkeypatch.setattr(saved_runs, "MAX_BYTES", int(2.5 * size))
    for number in range(1, 5):
        store.save(run(number))
    assert store.latest() == [run(4), run(3)]
    monkeypatch.setattr(saved_runs, "MAX_BYTES", 1)
    store.save(run(5))
    assert store.latest() == [run(5)]


def test_what_a_killed_writer_left_goes_after_a_while(tmp_path: Path) -> None:
    old, young = tmp_path / ".old.tmp", tmp_path / ".young.tmp"
    for half in (old, young):
        half.write_text("{")
    os.utime(old, (0, 0))
    RunStore(tmp_path).save(run(1))
    assert not old.exists()
    assert young.exists(), "somebody may still be writing it"


def test_files_are_private_and_hold_no_secrets(tmp_path: Path) -> None:
    told = msgspec.structs.replace(run(1), environment={"HF_TOKEN": "hf_plain"}, log_tail=("--password hunter2",))
    path = RunStore(tmp_path / "runs").save(told)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    for secret in ("hf_plain", "hunter2"):
        assert secret not in path.read_text()


def test_unreadable_files_are_skipped_and_counted(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(run(1))
    (tmp_path / "20260512T000000.0-half.json").write_text('{"schema": "gpuwatch.run/1", "con')
    (tmp_path / "20260513T000000.0-bytes.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "20260514T000000.0-folder.json").mkdir()
    deep = '{"schema": "gpuwatch.run/1", "results": {"a": ' + "[" * 100_000
    (tmp_path / "20260515T000000.0-deep.json").write_text(deep)
    (tmp_path / "20260516T000000.0-other.json").write_text(to_json(Comparison(runs=(), columns=())))
    (tmp_path / "notes.txt").write_text("not ours")
    assert store.latest() == [run(1)]
    assert store.unreadable == 5


def test_a_hostile_name_stays_inside_the_folder(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    path = store.save(run(1, "../../etc/\x1b[31mpasswd\n"))
    assert path.parent == tmp_path / "runs"
    assert path.name.isprintable()
    assert store.latest()[0].config == "../../etc/\x1b[31mpasswd\n"


def test_the_folder_follows_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = RunStore().save(run(1))
    assert path.is_relative_to(tmp_path / "gpuwatch")
    assert RunStore().latest(5) == [run(1)]


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        RunStore(tmp_path / "file" / "runs").save(run())
    assert RunStore(tmp_path / "file" / "runs").latest() == []

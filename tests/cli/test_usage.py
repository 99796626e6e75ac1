"""``gpuwatch usage`` as users run it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.core.formatting.durations import rounded_duration
from gpuwatch.core.model.gpu_time_usage import Usage
from gpuwatch.core.model.json_codec import from_json
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.recording import week
from tests.recording.make_fixture import FOLDER
from tests.recording.recordings import wait_for_samples


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("usage") / "week.gpuwatch"
    week.record(path)
    return path


def test_hours_of_the_week_in_every_format(file: Path, tmp_path: Path) -> None:
    text = gpuwatch("usage", str(file))
    assert (text.code, text.err) == (0, "")
    assert "GPU-hours by user" in text.out
    assert "162.9 of 167.0 h" in text.out
    document = from_json(gpuwatch("usage", str(file), "--json").out.encode())
    assert isinstance(document, Usage)
    assert [one.user for one in document.groups] == ["bob", "alice", "carol", "dave"]
    rows = list(csv.DictReader(io.StringIO(gpuwatch("usage", str(file), "--by", "job", "--csv").out)))
    assert rows[0]["container"] == ""
    assert float(rows[1]["gpu_hours_held"]) == pytest.approx(21)
    assert [row["gpu_hours_used"] for row in rows if row["user"] == "dave"] == [""], "unknown is not 0"
    for suffix in ("html", "md", "txt", "json", "csv"):
        output = tmp_path / f"usage.{suffix}"
        assert gpuwatch("usage", str(file), "-o", str(output)).code == 0
        assert "alice" in output.read_text()
        assert "hf_verysecret" not in output.read_text()
    assert json.loads((tmp_path / "usage.json").read_text())["schema"] == "gpuwatch.usage/1"
    assert "alice" in gpuwatch("report", str(tmp_path / "usage.json"), "--format", "markdown").out


def test_a_stretch(file: Path) -> None:
    asked = ("--since", "2026-05-11T12:30Z", "--until", "2026-05-11T17:15Z", "--json")
    document = from_json(gpuwatch("usage", str(file), *asked).out.encode())
    assert isinstance(document, Usage)
    assert document.total.gpu_hours_held == pytest.approx(4.75)
    last_day = from_json(gpuwatch("usage", str(file), "--since", "24h", "--json").out.encode())
    assert isinstance(last_day, Usage)
    assert (last_day.hours, last_day.hours_recorded) == (pytest.approx(24), pytest.approx(24))


def test_names_are_replaced(file: Path) -> None:
    shown = gpuwatch("usage", str(file), "--redact", "--by", "job").out
    assert "user-1" in shown
    assert not {"alice", "node07", "infer-0"} & set(shown.replace("-", " ").split())


@pytest.mark.parametrize(
    ("arguments", "code", "wanted"),
    [
        (("--since", "2027-01-01"), 2, "nothing was recorded from"),
        (("--since", "tomorrow"), 2, "not a time: 'tomorrow'"),
        (("--since", "2h", "--until", "-3h"), 2, "is after the end"),
        (("--by", "usr"), 2, "did you mean user?"),
        (("--json", "--csv"), 2, "cannot be combined"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(file: Path, arguments: tuple[str, ...], code: int, wanted: str) -> None:
    shown = gpuwatch("usage", str(file), *arguments)
    assert (shown.code, shown.out) == (code, "")
    assert wanted in shown.err
    assert shown.err.count("\n") == 1


def test_files_that_have_no_hours_are_one_line(tmp_path: Path) -> None:
    empty, text, nothing = tmp_path / "empty.gpuwatch", tmp_path / "notes.txt", tmp_path / "nothing.gpuwatch"
    RecordingWriter(empty).close()
    text.write_text("not a recording\n" * 20)
    nothing.write_bytes(b"")
    whole = (FOLDER / "recording-3.gpuwatch").read_bytes()
    damaged = tmp_path / "damaged.gpuwatch"
    damaged.write_bytes(whole[:5000])
    for path, code, wanted in (
        (empty, 1, "no samples yet"),
        (text, 2, "is not a recording"),
        (nothing, 2, "is not a recording"),
        (tmp_path / "missing.gpuwatch", 2, "No such file"),
        (tmp_path, 2, "cannot read"),
        (damaged, 1, "cannot read"),
    ):
        shown = gpuwatch("usage", str(path))
        assert (shown.code, shown.out) == (code, ""), shown
        assert wanted in shown.err
        assert shown.err.count("\n") == 1


def test_older_files_have_hours_too() -> None:
    for path in sorted(FOLDER.glob("recording-*.gpuwatch")):
        shown = gpuwatch("usage", str(path), "--by", "process")
        assert (shown.code, shown.err) == (0, "")
        assert "train.py" in shown.out


def test_the_recording_of_this_machine(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuwatch.machine.recording.recording_defaults import default_recording_file

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = gpuwatch("usage")
    assert (shown.code, shown.out) == (2, "")
    assert "gpuwatch record" in shown.err
    assert "no recorder is running" in shown.err
    assert not list(tmp_path.iterdir()), "nothing is created by reading"
    default_recording_file().parent.mkdir(parents=True)
    shutil.copy(file, default_recording_file())
    assert "alice" in gpuwatch("usage").out


_PROGRAM = """
import sys, time
from tests.sim.cuda_client import allocate, use
use(0)
assert allocate(1 << 30)[0] == 0
time.sleep(float(sys.argv[1]))
"""


def test_a_program_from_its_start_to_its_exit(sim_machine: Callable[[str], SimMachine], tmp_path: Path) -> None:
    """Recorded on a simulated GPU: what ``usage`` counts is what the event of its exit tells."""
    file = tmp_path / "run.gpuwatch"
    repository = Path(__file__).resolve().parents[2]
    own_state = {"PYTHONPATH": str(repository), "XDG_STATE_HOME": str(tmp_path / "state")}
    environment = sim_machine("2x8GiB").environment({**os.environ, **own_state})
    recorder = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "record", str(file), "--every", "250ms"], env=environment
    )
    try:
        wait_for_samples(file, 3)
        subprocess.run([sys.executable, "-c", _PROGRAM, "4"], env=environment, check=True, timeout=60)
        with Recording(file) as recording:
            wait_for_samples(file, recording.samples + 6)
        own = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "usage", "--json"], env=environment, capture_output=True, timeout=60
        )
        assert own.returncode == 0, own.stderr
        assert json.loads(own.stdout)["source"].endswith("run.gpuwatch"), "of the recorder that runs"
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=20)
    document = from_json(gpuwatch("usage", str(file), "--by", "process", "--json").out.encode())
    assert isinstance(document, Usage)
    assert document.simulated
    (one,) = document.groups
    seconds = one.process_hours * 3600
    assert 2.5 < seconds < 6
    assert one.gpu_hours_held == one.process_hours
    assert one.memory_peak_bytes is not None
    assert one.memory_peak_bytes >= 1 << 30
    assert [device.hours_held > 0 for device in document.devices] == [True, False]
    with Recording(file) as recording:
        (text,) = [event.text for event in recording.events() if event.kind == "process.exited"]
        (life,) = recording.processes()
    assert f"held it for {rounded_duration(seconds)}" in text
    assert life.held_seconds == pytest.approx(seconds, abs=1e-6)
    shown = gpuwatch("usage", str(file), "--by", "command").out
    assert "SIMULATED" in shown
    assert f"{seconds / 3600:.3f}" in shown, "of a short time, hours have three decimals"

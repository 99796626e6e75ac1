"""``gpuwatch export`` as users run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.json_codec import to_json
from tests.conftest import gpuwatch
from tests.exports.test_perfetto import RUN


def test_formats_follow_from_the_suffix(file: Path, tmp_path: Path) -> None:
    for name, start in (
        ("a.pftrace", b"\x0a"),
        ("a.csv", b"time,host"),
        ("a.ndjson", b'{"schema"'),
        ("a.om", b"# TYPE"),
    ):
        done = gpuwatch("export", str(file), "-o", str(tmp_path / name))
        assert (done.code, done.out) == (0, ""), done.err
        assert (tmp_path / name).read_bytes().startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.ndjson", "a.om", "a.pftrace"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no format was given"),
        (("-o", "x.xyz"), "x.xyz: its suffix is not that of a format"),
        (("--format", "perfetto"), "perfetto is a binary format"),
        (("--format", "ndjson", "--table", "events"), "--table applies only to csv and parquet"),
        (("--format", "csv", "--table", "events", "--every", "1h"), "--every 1h applies only to the table devices"),
        (("--format", "csv", "--run", "run.json"), "--run applies only to perfetto"),
        (("--format", "csv", "--since", "soon"), "not a time"),
        (("--format", "csv", "--since", "2020-01-01T00:00", "--until", "2020-01-02T00:00"), "nothing was recorded"),
        (("-o", "no/folder/x.csv"), "its folder does not exist"),
    ],
)
def test_mistakes(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = gpuwatch("export", str(file), *arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_start_without_a_sign_counts_back(file: Path) -> None:
    done, other = (gpuwatch("export", str(file), "--format", "csv", "--since", text) for text in ("1s", "1 s ago"))
    assert (done.code, done.out) == (0, other.out), done.err
    assert len(done.out) < len(gpuwatch("export", str(file), "--format", "csv").out)


def test_an_extra_that_is_not_installed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pyarrow'] = None\n")
    code = "import sys; from gpuwatch.cli.entry_point import main; sys.argv[0] = 'gpuwatch'; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "export", str(file), "-o", str(tmp_path / "x.parquet")],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == (
        "gpuwatch: parquet needs pyarrow, which is not installed (pip install 'gpuwatch-tui[parquet]')\n"
    )


def test_runs_of_another_time_are_named(file: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(to_json(replace(RUN, started_at=RUN.started_at.replace(year=2001))))
    done = gpuwatch("export", str(file), "-o", str(tmp_path / "x.pftrace"), "--run", str(tmp_path / "run.json"))
    assert done.code == 0
    assert "left out 1 of 1 run: " in done.err


def test_a_closed_pipe_ends_it(file: Path) -> None:
    command = [sys.executable, "-m", "gpuwatch", "export", str(file), "--format", "ndjson"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_half_file(file: Path, tmp_path: Path, number: int) -> None:
    # A pipe that nobody reads stops it in the middle: written files are too fast to be interrupted for sure.
    slow = (
        "import time, gpuwatch.share.exports.csv_writer as c; old = c.write\n"
        "def write(*a):\n for piece in old(*a):\n  yield piece\n  print('piece', flush=True); time.sleep(60)\n"
        "c.write = write; import sys; from gpuwatch.cli.entry_point import main; main()"
    )
    target = tmp_path / "x.csv"
    target.write_text("the old one")
    command = [sys.executable, "-c", slow, "export", str(file), "-o", str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "piece\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(number)
        began = time.monotonic()
        assert process.wait(20) == 128 + number
        assert time.monotonic() - began < 10
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert target.read_text() == "the old one"


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")
    done = gpuwatch("export", str(tmp_path / "x"), "--format", "csv")
    assert (done.code, done.out) == (2, "")
    assert "is not a recording" in done.err

"""An error that nobody caught is told as what it is: of stdout, or of something else."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.cli import main as module
from gpuwatch.core import crash_files
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.machine.sources import procfs


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception) -> str:
    def fail(**_: object) -> object:
        raise error

    monkeypatch.setattr(module.cli, "main", fail)
    monkeypatch.setattr(module, "_discard_output", lambda code: code)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/tmp/state"),
        PermissionError(errno.EACCES, "Permission denied"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    ],
)
def test_an_error_of_something_else_is_not_told_of_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError
) -> None:
    told = run(monkeypatch, capsys, error)
    assert told.count("\n") == 1
    assert "output" not in told
    assert error.strerror in told


def test_an_error_of_stdout_is_told_of_the_output() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "cause"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "cannot write the output: No space left on device" in done.stderr


def test_without_proc_it_is_said_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GpuwatchError, match=r"cannot read .*/stat: No such file or directory") as raised:
        procfs.boot_time(str(tmp_path))
    assert "mount -t proc" in raised.value.hint
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    with pytest.raises(GpuwatchError, match="no boot time"):
        procfs.boot_time(str(tmp_path))
    monkeypatch.setattr(crash_files, "save_traceback", None)  # a collector says this too, and saves nothing
    assert crash_files.describe_error(raised.value) == (raised.value.message, raised.value.hint)


def test_a_dashboard_without_stdin_needs_a_terminal() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -m gpuwatch <&-', sys.executable], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "needs a terminal" in done.stderr

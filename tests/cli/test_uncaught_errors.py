"""An error that nobody caught is told as what it is: of stdout, or of something else."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from gpuwatch.cli import main as module


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

"""On a kernel without newer system calls, or with a Python built for one, everything works all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ABSENT = """
import os, signal
for module, name in ((os, "memfd_create"), (os, "MFD_CLOEXEC"), (os, "pidfd_open"), (signal, "pidfd_send_signal")):
    if hasattr(module, name):
        delattr(module, name)
"""
"""A Python built for glibc 2.17, as conda's and uv's may be."""
_REFUSED = """
import errno, os
def refuse(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
os.memfd_create = os.pidfd_open = refuse
"""
"""Linux before 3.17, or a sandbox."""


@pytest.mark.parametrize("change", [_ABSENT, _REFUSED])
@pytest.mark.parametrize(
    ("arguments", "code"), [(["snapshot", "--json"], None), (["run", "-q", "--no-save", "--", "true"], 0)]
)
def test_without_newer_system_calls(change: str, arguments: list[str], code: int | None, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(change)
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "in gpuwatch itself" not in done.stderr + done.stdout
    if code is not None:
        assert done.returncode == code
    else:
        assert '"schema": "gpuwatch.snapshot' in done.stdout

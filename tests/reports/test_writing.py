"""Files by way of links, devices and pipes; what cannot be written is said before the work where it can be told."""

from __future__ import annotations

import fcntl
import os
import pty
import stat
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from gpuwatch.cli.output import check_writable
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.terminal_support import terminal_columns
from gpuwatch.core.write_file import write_text
from gpuwatch.share.reports.report_formats import format_for, write
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.reports.documents import full_run
from tests.reports.test_comparison import timed

LOG = "OOM when allocating tensor with shape[1024] and type float on /device:GPU:0 by allocator GPU_0_bfc\n"


@pytest.mark.parametrize("existing", [True, False], ids=["to a file", "dangling"])
def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path, existing: bool) -> None:
    real = tmp_path / "real"
    real.mkdir()
    target, link = real / "a.md", tmp_path / "l.md"
    if existing:
        target.write_text("old")
    link.symlink_to(target)
    write(full_run(), link)
    assert link.is_symlink()
    assert "soft-missing" in target.read_text(encoding="utf-8")
    assert sorted(tmp_path.iterdir()) == [link, real]
    assert list(real.iterdir()) == [target]


def test_a_circle_of_links_is_reported(tmp_path: Path) -> None:
    link = tmp_path / "l.md"
    link.symlink_to("l.md")
    with pytest.raises(GpuwatchError, match=r"circle|symbolic links"):
        write_text("x", link)
    with pytest.raises(UsageError, match=r"circle|symbolic links"):
        check_writable(link)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_failure(tmp_path: Path) -> None:
    link = tmp_path / "l.md"
    link.symlink_to("/dev/full")
    with pytest.raises(GpuwatchError, match="No space left on device"):
        write(full_run(), link)
    assert link.is_symlink()
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert list(tmp_path.iterdir()) == [link]


def test_a_pipe_gets_the_document(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert format_for(pipe) == "text"
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    write(full_run(), pipe)
    reader.join(10)
    assert "soft-missing" in got[0]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_terminal_gets_text_of_its_width() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
    terminal = Path(os.ttyname(theirs))
    assert terminal_columns(terminal) == 72
    assert terminal_columns(Path("/dev/null")) is None
    shown = bytearray()

    def read() -> None:
        while b"\x04" not in shown:
            shown.extend(os.read(ours, 4096))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    write(compare([timed("default"), timed("growth")]), terminal)
    os.write(theirs, b"\x04")
    reader.join(10)
    os.close(theirs)
    os.close(ours)
    lines = shown.decode().splitlines()
    assert any("growth" in line for line in lines)
    assert max(map(len, lines)) <= 72


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_text("x", tmp_path / "a.md")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.md").stat().st_mode) == mode


def test_an_old_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("old")
    path.chmod(0o640)
    write_text("new", path)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_what_cannot_be_written_is_one_kind_of_error_before_the_work(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LOG)
    broken = tmp_path / "broken.md"
    broken.symlink_to("nowhere/x.md")
    for output in ("/proc/x.md", str(tmp_path / "missing" / "x.md"), str(broken), str(tmp_path)):
        done = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "explain", str(log), "-o", output], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert done.stderr.startswith("gpuwatch: cannot write")
        assert len(done.stderr.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == [log, broken]

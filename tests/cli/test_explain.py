"""``gpuwatch explain``: any encoding, any size, from a file or a pipe that still grows."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click.testing
import pytest

from gpuwatch.cli import explain as command
from gpuwatch.cli import progress, read_log
from gpuwatch.cli.main import cli
from gpuwatch.core.errors import EXIT_FINDING, GpuwatchError, UsageError
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.json_codec import from_json
from gpuwatch.share.reports.report_formats import FORMATS, render
from tests.logs.logs import MIB, text
from tests.waiting import wait_for

OOM = text("stub_tf221_gpu_bfc_oom")
SELF = [sys.executable, "-c", "from gpuwatch.cli.explain import explain; explain()"]


def invoke(*arguments: str, **options: Any) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command.explain, arguments, **options)


def explained(path: Path) -> dict[str, Any]:
    document = json.loads(invoke(str(path), "--json").stdout)
    assert isinstance(document, dict)
    return document


def test_cause_and_action_are_at_the_top(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(OOM)
    result = invoke(str(path))
    assert result.exit_code == EXIT_FINDING
    head = "\n".join(result.stdout.splitlines()[:6])
    assert "memory.request-too-large" in head
    assert "Split this tensor" in head
    assert result.stdout.index("400 MiB > limit of 256 MiB") < result.stdout.index("Device map")


def test_a_healthy_log_exits_with_0_and_a_foreign_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "mapped.log"
    path.write_text(text("stub_tf221_map_default"))
    assert invoke(str(path)).exit_code == 0
    path.write_text("dear diary\n")
    assert "unknown: gpuwatch recognizes nothing" in invoke(str(path)).stdout


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (gzip.compress(b"a log" * 99, mtime=0)[:-12], "cannot decompress"),
        (b"\xfd7zXZ\0\0\4", "it is cut off"),
        (b"PK\3\4", "unzip"),
        (b'{\n  "schema": "gpuwatch.run/1",\n', "gpuwatch report"),
    ],
    ids=["empty", "gzip", "xz", "zip", "a document"],
)
def test_a_file_that_is_not_a_log_is_named_as_what_it_is(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(content)
    result = invoke(str(path))
    assert isinstance(result.exception, UsageError)
    assert says in f"{result.exception.message} {result.exception.hint}"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
@pytest.mark.parametrize("chunk", [1 << 18, 7])
def test_every_encoding_is_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, chunk: int
) -> None:
    monkeypatch.setattr(read_log, "_READ_BYTES", chunk)
    path = tmp_path / "log"
    path.write_bytes(("Zugriff verweigert: Gerät\n" + OOM).encode(encoding))
    if chunk == 7 and encoding in ("utf-16-le", "utf-16-be"):
        pytest.skip("without a mark the encoding is guessed from the first block, which this is too short for")
    found = explained(path)
    assert found["primary"] == "memory.request-too-large"
    assert found["ooms"][0]["requested_bytes"] == 400 * MIB
    assert found["lines"] == OOM.count("\n") + 1


def test_undecodable_bytes_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "log"
    noise = bytes(range(256)) * 40
    path.write_bytes(noise + b"\n" + OOM.replace(" trying", "\0 trying").encode() + b"\n" + noise)
    assert explained(path)["primary"] == "memory.request-too-large"


def test_a_line_without_end_and_a_last_line_without_newline(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 3_000_000 + b"\n" + OOM.rstrip("\n").encode())
    found = explained(path)
    assert found["primary"] == "memory.request-too-large"
    assert found["lines"] == OOM.rstrip("\n").count("\n") + 2


@pytest.mark.parametrize("bad", ["missing.log", "."])
def test_what_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(bad)
    assert isinstance(result.exception, UsageError)
    assert "cannot read" in result.exception.message
    assert "\n" not in result.exception.message


@pytest.mark.parametrize("suffix", [entry.suffix for entry in FORMATS])
def test_it_is_written_in_every_format(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "log"
    path.write_text(OOM)
    output = tmp_path / f"report{suffix}"
    result = invoke(str(path), "-o", str(output))
    assert (result.exit_code, result.stdout) == (EXIT_FINDING, "")
    assert "memory.request-too-large" in output.read_text(encoding="utf-8")


def test_a_saved_explanation_is_a_document_like_others(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(OOM + "login https://joe:hunter2@host/ failed with RuntimeError\nValueError: token=hunter2\n")
    shown = invoke(str(path), "--json").stdout_bytes
    assert b"hunter2" not in shown
    document = from_json(shown)
    assert isinstance(document, Explanation)
    for entry in FORMATS:
        drawn = render(document, entry.name)
        assert "memory.request-too-large" in drawn
        assert "hunter2" not in drawn


def test_a_wrong_output_is_rejected_before_reading(tmp_path: Path) -> None:
    assert isinstance(invoke("-", "-o", str(tmp_path / "report.pdf"), input="").exception, UsageError)
    assert isinstance(invoke("-", "-o", str(tmp_path / "none" / "a.md"), input="").exception, UsageError)


def test_a_pipe_is_followed_until_it_ends() -> None:
    process = subprocess.Popen([*SELF, "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    raw = OOM.encode()
    for begin in range(0, len(raw), 3000):
        process.stdin.write(raw[begin : begin + 3000])
        process.stdin.flush()
        time.sleep(0.01)  # so that it comes in parts
    assert process.poll() is None
    process.stdin.close()
    found = json.loads(process.stdout.read())
    assert (found["primary"], found["source"]) == ("memory.request-too-large", "stdin")
    assert process.wait(timeout=30) == EXIT_FINDING


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_reading_and_not_the_explanation(ending: signal.Signals) -> None:
    process = subprocess.Popen([*SELF, "-", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(OOM.encode())
    process.stdin.flush()
    wait_for(lambda: _waits(process.pid), "a program that has read everything and waits for more")
    process.send_signal(ending)
    out, _ = process.communicate(timeout=30)
    assert json.loads(out)["primary"] == "memory.request-too-large"
    assert process.returncode == (143 if ending is signal.SIGTERM else EXIT_FINDING), "timeout(1) sees that it worked"


def _waits(pid: int) -> bool:
    """Whether the process sleeps in poll(), by the kernel's account."""
    try:
        return int(Path(f"/proc/{pid}/syscall").read_text().split()[0]) in _POLL
    except PermissionError:  # some containers
        time.sleep(3)  # what it needs at most
        return True
    except ValueError:  # "running"
        return False


_POLL = {"x86_64": (7, 271), "aarch64": (73,)}.get(os.uname().machine, ())


def test_on_a_terminal_causes_appear_while_reading() -> None:
    ours, theirs = pty.openpty()
    links = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_HYPERLINK")}
    process = subprocess.Popen(
        [*SELF, "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**links, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    assert process.stdin is not None
    seen = b""
    try:
        process.stdin.write(OOM.encode())
        process.stdin.flush()
        until = time.monotonic() + 60
        while time.monotonic() < until and b"Ctrl+C shows the explanation" not in seen:
            seen += os.read(ours, 4096)
        assert re.search(rb"\(\x1b]8;;file://[^\x1b]*\x1b\x5cmemory.request-too-large\x1b]8;;\x1b\x5c\)", seen)
        assert b"Split this tensor" in seen
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert json.loads(out)["lines"] == OOM.count("\n")
    assert process.returncode == EXIT_FINDING


@pytest.mark.slow
def test_memory_stays_constant_however_long_the_log() -> None:
    """Lines all different, so that no cache could help; the peak of a long log is that of a short one."""
    code = (
        "import resource, sys\n"
        "from gpuwatch.cli.explain import explain\n"
        "try: explain()\n"
        "finally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    peaks = []
    for count in (20_000, 400_000):
        process = subprocess.Popen(
            [sys.executable, "-c", code, "-", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        for begin in range(0, count, 5000):
            block = (
                f"step {i}: loss {i * 0.731:.5f} device GPU:{i % 4} memory {i} MB, Op{i} of {i * 7} failed: Error {i}\n"
                for i in range(begin, begin + 5000)
            )
            process.stdin.write("".join(block).encode())
        _, errors = process.communicate(timeout=120)
        peaks.append(int(errors.split()[-1]))
    assert peaks[1] < peaks[0] + 8 * 1024, f"{peaks} KiB"


def test_work_is_announced_once_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Timers run where the test lets them: what is over by then says nothing."""
    monkeypatch.delenv("GPUWATCH_PROGRESS")
    begun: list[progress._DelayedLine] = []
    monkeypatch.setattr(progress._DelayedLine, "start", lambda late: begun.append(late))
    log = tmp_path / "train.log"
    log.write_text("step 3: loss 0.2\n" * 9)
    assert command.explanation_of(log).primary == "healthy"
    (late,) = begun
    assert late.finished.is_set()
    late.run()
    assert capsys.readouterr().err == ""
    for name in ("importing", "measuring\x1b[2J"):
        progress.progress(name)
    _, late = begun
    late.interval = 0
    late.run()
    progress.progress("saving")
    assert len(begun) == 2
    assert capsys.readouterr().err == "gpuwatch: measuring\\x1b[2J …\n"
    progress.progress("")
    monkeypatch.setenv("GPUWATCH_PROGRESS", "terminal")
    progress.progress("nothing of it")
    assert len(begun) == 2


RECORDING = Path(__file__).parents[1] / "fixtures/recording-3.gpuwatch"
SNAPSHOT = RECORDING.with_name("snapshot.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("record", "info", RECORDING),
        ("record", "check", RECORDING),
        ("record", "cut", RECORDING, "-o", "cut.gpuwatch"),
        ("usage", RECORDING),
        ("export", RECORDING, "-o", "all.csv"),
        ("report", RECORDING),
        ("report", SNAPSHOT),
        ("compare", SNAPSHOT, SNAPSHOT),
        ("diff", SNAPSHOT, SNAPSHOT),
        ("diff", RECORDING, RECORDING),
        ("pick", "--prometheus", "http://127.0.0.1:9"),
    ],
    ids=lambda arguments: " ".join(one if isinstance(one, str) else one.name for one in arguments[:3]),
)
def test_whatever_reads_much_says_so_before_it_reads(
    arguments: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each began its work a second ago; nothing is left of it when it ends."""
    monkeypatch.delenv("GPUWATCH_PROGRESS")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress._DelayedLine, "start", lambda late: late._say())
    done = click.testing.CliRunner().invoke(cli, [str(one) for one in arguments])
    begun = done.stderr.splitlines()[0]
    assert re.fullmatch(r"gpuwatch: (reading|writing|comparing|querying) .* …", begun), done.stderr
    ended = progress._delayed_line is None
    progress.progress("")
    assert ended or isinstance(done.exception, GpuwatchError), "which the program tells last"

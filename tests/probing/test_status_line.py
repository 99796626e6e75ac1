"""``gpuwatch run`` on a terminal: the program's bytes, its size, its keys, and the line below it."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import sys
import termios
from pathlib import Path

import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.experiment.probing.output_passthrough import OutputChannel
from gpuwatch.experiment.probing.status_line import StatusLine
from tests.probing.watched import read, watched, with_torch
from tests.terminal import Terminal, wait_until_ended

ROWS, COLUMNS = 20, 100
_OURS = re.compile(rb"\r?\n\x1b7\x1b\[1;\d+r\x1b8\x1b\[A|\x1b7\x1b\[(?:1;\d+)?r.*?\x1b8", re.DOTALL)

# Bars on both streams, as tqdm and Keras draw them; colours; characters of several bytes, cut in two.
_BARS = """
import os, sys, time
print(os.isatty(0), os.isatty(1), os.isatty(2), *os.get_terminal_size(), flush=True)
for n in range(40):
    os.write(2, b"\\r%3d/40 \\x1b[32m" % n + "━".encode()[:2]); os.write(2, "━".encode()[2:] + b"\\x1b[0m")
    if n % 10 == 9:
        os.write(2, b"\\r" + b" " * 20 + b"\\r"); os.write(1, b"epoch %d\\n" % n)
    time.sleep(float(sys.argv[1]))
os.write(2, b"\\nno newline at the end")
sys.exit(5)
"""


def terminal(*command: str, **environment: str) -> Terminal:
    return Terminal(command, {**os.environ, "LANG": "C.UTF-8", **environment}, columns=COLUMNS, rows=ROWS)


def gpuwatch_run(*arguments: str, **environment: str) -> Terminal:
    return terminal(sys.executable, "-m", "gpuwatch", "run", *arguments, **environment)


def output_of(shown: Terminal, timeout: float = 20.0) -> tuple[bytes, int | None]:
    code = shown.close(timeout)
    return bytes(shown.output), code


def test_bars_reach_the_terminal_byte_for_byte() -> None:
    command = (sys.executable, "-c", _BARS, "0.002")
    alone = output_of(terminal(*command))
    assert alone[1] == 5
    assert output_of(gpuwatch_run("-q", "--no-live", "--", *command)) == alone


def test_the_line_takes_a_row_and_leaves_the_rest_alone() -> None:
    command = (sys.executable, "-c", _BARS, "0.06")
    alone, _ = output_of(terminal(*command))
    seen, code = output_of(gpuwatch_run("-q", "--", *command))
    assert code == 5
    drawn = _OURS.findall(seen)
    assert drawn[0] == b"\r\n\x1b7\x1b[1;19r\x1b8\x1b[A"
    assert drawn[-1] == b"\x1b7\x1b[r\x1b[20;1H\x1b[2K\x1b8"
    assert sum(b"gpuwatch 0:00:0" in one for one in drawn) >= 3
    rest = _OURS.sub(b"", seen)
    assert rest == alone.replace(b"100 20\r\n", b"100 19\r\n")
    # No sequence and no character of the program's was cut in two.
    before = [seen[: match.start()] for match in _OURS.finditer(seen)]
    assert not any(re.search(rb"\x1b\[?[\d;]*$|\xe2$|\xe2\x94$", text) for text in before)


def test_the_terminal_is_given_back_when_gpuwatch_is_killed(tmp_path: Path) -> None:
    program = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
    shown = gpuwatch_run("--", sys.executable, "-c", program)
    shown.drain(15, until=lambda out: re.search(rb"pid \d+\r\n", out) is not None and b"gpuwatch 0:00:01" in out)
    found = re.search(rb"pid (\d+)", bytes(shown.output))
    assert found is not None
    os.kill(shown.pid, signal.SIGKILL)
    shown.drain(5, until=lambda out: out.endswith(b"\x1b7\x1b[r\x1b[20;1H\x1b[2K\x1b8"))
    assert bytes(shown.output).endswith(b"\x1b7\x1b[r\x1b[20;1H\x1b[2K\x1b8")
    wait_until_ended(int(found[1]))
    shown.close()


def test_ctrl_c_is_the_programs(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    shown = gpuwatch_run(
        "-o", str(out), "--", sys.executable, "-c", "import time; print('rea' 'dy', flush=True); time.sleep(60)"
    )
    shown.drain(15, until=lambda seen: b"ready" in seen)
    shown.keys("\x03")
    seen, code = output_of(shown)
    assert code == -signal.SIGINT
    assert b"KeyboardInterrupt" in seen
    assert "It was interrupted" in seen.decode()
    assert read(out)["verdict"] == "interrupted"


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again() -> None:
    program = "import itertools, time\nfor n in itertools.count(): print('ti' 'ck', n, flush=True); time.sleep(0.1)"
    shell = terminal("bash", "--norc", "--noprofile", "-i", PS1="ready> ", HISTFILE="")
    shell.drain(5, until=lambda out: b"ready> " in out)
    shell.keys(f'{sys.executable} -m gpuwatch run -q -- {sys.executable} -c "{program}"\n')
    shell.drain(15, until=lambda out: b"tick 5" in out)
    shell.keys("\x1a")
    shell.drain(10, until=lambda out: b"Stopped" in out)
    stopped = bytes(shell.output)
    assert b"Stopped" in stopped
    assert stopped.rindex(b"\x1b[r") > stopped.rindex(b"\x1b[1;19r"), "the shell has all rows"
    size = len(shell.output)
    shell.drain(0.5)
    assert b"tick" not in bytes(shell.output)[size:]
    shell.keys("fg\n")
    shell.drain(10, until=lambda out: b"tick" in out[size:] and b"\x1b[1;19r" in out[size:])
    assert b"\x1b[1;19r" in bytes(shell.output)[size:]
    shell.keys("\x03")
    shell.drain(10, until=lambda out: out.endswith(b"ready> "))
    shell.keys("echo code $?; exit\n")
    seen, _ = output_of(shell)
    assert b"code 130" in seen


def test_another_size_reaches_the_program() -> None:
    program = (
        "import os, signal, time\n"
        "def say(*_): print('size', *os.get_terminal_size(), flush=True)\n"
        "signal.signal(signal.SIGWINCH, say); say(); time.sleep(1); time.sleep(1)"
    )
    shown = gpuwatch_run("-q", "--", sys.executable, "-c", program)
    shown.drain(15, until=lambda out: b"size 100 19" in out)
    fcntl.ioctl(shown._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    shown.drain(10, until=lambda out: b"size 80 29" in out)
    seen, _ = output_of(shown)
    assert b"size 80 29" in seen
    assert b"\x1b[1;29r" in seen


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {}])
def test_a_terminal_that_cannot_has_no_line(environment: dict[str, str]) -> None:
    options = [] if environment else ["--no-live"]
    shown = Terminal(
        [
            *("env", *(f"{name}={value}" for name, value in environment.items())),
            *(sys.executable, "-m", "gpuwatch", "run", "-q", *options, "--", "sleep", "1.5"),
        ],
        os.environ,
        columns=COLUMNS,
        rows=ROWS,
    )
    assert output_of(shown)[0] == b""


def test_a_cause_is_said_when_it_is_recognised(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, time, torch\n"
        "print('I0000 00:00:1795165879.323996    5609 cuda_platform.cc:1] failed call to cuInit: INTERNAL: "
        "CUDA error: Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected', "
        "file=sys.stderr)\n"
        "time.sleep(6); print('done')\n"
    )
    shown = gpuwatch_run("-q", "--no-save", "--", sys.executable, str(script), **with_torch(tmp_path))
    shown.drain(20, until=lambda out: b"gpuwatch: " in out)
    shown.drain(0.2)
    assert b"done" not in shown.output
    said = re.search(rb"gpuwatch: ([^\r]*)", bytes(shown.output))
    assert said is not None
    assert "→".encode() in said[1], "it says what to do"
    assert shown.close(15) == 0


def test_nothing_is_said_in_a_pipe(tmp_path: Path) -> None:
    code = "import torch, time; time.sleep(4)"
    assert watched("--no-save", "--", sys.executable, "-c", code, env=with_torch(tmp_path)).stderr == b""


class _Terminal(OutputChannel):
    """A channel whose terminal is a list of what reached it."""

    def __init__(self, rows: int = 24, columns: int = 60) -> None:
        super().__init__(intercept=False)
        self.shown: list[bytes] = []
        self.is_terminal = True
        self._size = rows, columns

    can_draw = True  # type: ignore[assignment]
    is_open = True  # type: ignore[assignment]

    def size(self) -> tuple[int, int]:
        return self._size

    def resize(self, reserved_rows: int = 0) -> None:
        pass

    def write_stderr(self, data: bytes) -> None:
        self.shown.append(bytes(data))


@pytest.mark.parametrize(
    "cut", [b"\x1b", b"\x1b[", b"\x1b[38;5;1", b"\x1b]0;title", b"\xe2\x94", b"\xf0\x9f\x9a", b"\xc3"]
)
def test_nothing_is_drawn_inside_a_sequence_or_character(cut: bytes) -> None:
    channel = _Terminal()
    channel._tail = b"before " + cut
    assert not channel.can_write
    channel._tail += {b"\x1b[38;5;1": b"m", b"\x1b]0;title": b"\x07"}.get(cut, b"")
    if cut in (b"\x1b[38;5;1", b"\x1b]0;title"):
        assert channel.can_write


def test_causes_wait_for_the_start_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    channel = _Terminal()
    live = StatusLine(channel, ["/usr/bin/python", "/home/a/train.py"], draw_line=False, print_findings=True)
    found = Finding(
        id="visibility.hidden", severity="error", certainty="fact", title="Hidden\x1b[31m", action="Unset it."
    )
    channel._tail = b"12/40 ["
    live.queue_findings([found])
    live.tick()
    assert channel.shown == []
    channel._tail = b"12/40 [===]\n"
    live.tick()
    live.queue_findings([found])
    live.tick()
    (line,) = channel.shown
    assert line.startswith(b"gpuwatch: Hidden")
    assert b"\x1b" not in line
    assert line.endswith("→ Unset it.\n".encode())


def test_the_line_is_as_wide_as_the_terminal_and_ends_with_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for columns in (40, 60, 80, 200):
        channel = _Terminal(columns=columns)
        live = StatusLine(channel, ["/usr/bin/python", "/home/a/train.py"], draw_line=True, print_findings=True)
        monkeypatch.setattr(live, "_foreground", lambda: True)
        live.begin()
        assert live.line_text().strip().endswith("python train.py")
        live.queue_findings(
            [Finding(id="driver.missing", severity="error", certainty="fact", title="No driver answers")]
        )
        live.draw()
        text = re.sub(r"\x1b(?:\[[\d;]*[A-Za-z]|[78])", "", channel.shown[-1].decode())
        assert len(text) == columns - 1
        assert "No driver answers" in text
        live.end()
        live.end()

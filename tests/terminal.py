"""A program in a terminal of its own: what it draws, what it costs. Benchmarks and tests use it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.waiting import wait_for


class Terminal:
    """Runs ``command`` in a pseudo-terminal and drains what it writes."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int = 160, rows: int = 50
    ) -> None:
        self.started = time.monotonic()
        self.output = bytearray()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            try:
                os.execvpe(
                    command[0], list(command), {**environment, "TERM": "xterm-256color", "LINES": "", "COLUMNS": ""}
                )
            finally:
                os._exit(127)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def drain(self, seconds: float, until: Callable[[bytes], bool] | None = None) -> float | None:
        """Reads for ``seconds``; with ``until`` returns when it holds, with the seconds since the start."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._fd], [], [], left)[0]:
                break
            try:
                chunk = os.read(self._fd, 1 << 16)
            except OSError:
                break
            if not chunk:
                break
            self.output += chunk
            if until is not None and until(bytes(self.output)):
                return time.monotonic() - self.started
        return None

    def keys(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def hang_up(self) -> None:
        """Closes the terminal, as its window does; the program is the caller's to wait for."""
        os.close(self._fd)

    def close(self, timeout: float = 5.0) -> int | None:
        """Waits for the end (reading on), kills what does not end; the exit code, None when killed."""
        end = time.monotonic() + timeout
        code: int | None = None
        while time.monotonic() < end:
            self.drain(0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.drain(0.2)  # what it wrote last, up to the end of the output
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)
        return code


def family(pid: int) -> list[int]:
    """``pid`` and everything that descends from it."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = [pid]
    for member in found:
        found.extend(child for child, parent in parents.items() if parent == member)
    return found


def workers(pid: int) -> list[int]:
    """The same without the shell that gives the screen back, and without what has ended just now."""
    return [member for member in family(pid) if _command(member) not in ("", "sh")]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def cpu_seconds(pid: int) -> float:
    """CPU time of the whole family so far, collected children included."""
    spent = 0.0
    for member in family(pid):
        try:
            # The clock of the process (clock_getcpuclockid(3)): /proc counts in hundredths of a second.
            spent += time.clock_gettime(~member << 3 | 2)
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent += sum(int(field) for field in fields[13:15]) / os.sysconf("SC_CLK_TCK")
    return spent


def memory_bytes(pid: int) -> tuple[int, int]:
    """Resident and proportional size of the whole family (shared pages once in the second)."""
    resident = proportional = 0
    for member in family(pid):
        try:
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith("Rss:"):
                    resident += int(line.split()[1]) * 1024
                elif line.startswith("Pss:"):
                    proportional += int(line.split()[1]) * 1024
        except OSError:
            continue
    return resident, proportional


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_ended(pid: int, seconds: float = 5.0) -> None:
    """A killed process needs a moment; AssertionError when it is still there after ``seconds``."""
    wait_for(lambda: ended(pid), f"the end of process {pid}", seconds)

"""The process between ``gpuwatch run`` and the program: starts it, and ends all of it if gpuwatch is killed.

It runs by path with the standard library only, so that it starts fast and stays small. It is the program's parent and
adopts its orphans (prctl PR_SET_CHILD_SUBREAPER), so it knows every descendant. It shares gpuwatch's process group, so
it can tell a signal to the whole group from one to gpuwatch alone. Lines on a socket::

    to gpuwatch: started PID MONOTONIC-SECONDS · failed ERRNO · signal NUMBER · ended WAIT-STATUS LEFT MAX-RSS-KIB
                 · gone · reported (all signals that came before "report")
    to the guard: restore HEX (bytes that undo what was drawn on the terminal) · drop (the channel) · end (everything)
                  · interrupt (SIGINT, as a terminal would) · group NUMBER (its process group) · report · leave

End of file on the socket means that gpuwatch is dead.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False  # importing typing would take a third of the start time
if TYPE_CHECKING:
    from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_SECONDS = 2.0
_CHILDREN_EXIT_SECONDS = 0.5
"""Seconds that the program's children have to exit by themselves."""
_READ_BYTES = 1 << 16
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "yash", "ash", "busybox", "fish"})
"""Programs that run others in the foreground and leave Ctrl+C to them."""
PASSED_SIGNALS: tuple[int, ...] = (
    *(signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGXCPU, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR),
    *range(signal.SIGRTMIN, signal.SIGRTMAX + 1),
)
"""Signals that end the program or are handled by it: the guard leaves them to it. All that end a process, except those
of its own errors (SIGSEGV, SIGABRT)."""


class Guard:
    """The only object of this process."""

    def __init__(self, control: int, channel: int, *, merged: bool, own_session: bool = False) -> None:
        """``own_session``: the program gets a session of its own, and no input."""
        self._control = control
        self._channel = channel
        self._merged = merged
        self._own_session = own_session
        self._restore_bytes = b""
        self._program = 0
        self._wait_status: int | None = None
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)

    def run(self, command: list[str], write_end: int) -> None:
        """Starts ``command`` with ``write_end`` (-1: unchanged) as its stderr, and guards it until it ends."""
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        handled_signals = [number for number in PASSED_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        for number in handled_signals:
            signal.signal(number, _ignore_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_SIGNALS)  # blocked by gpuwatch until the handlers were set
        error_read, error_write = os.pipe()
        try:
            self._program = os.fork()
        except OSError as error:  # at the limit of processes
            self._send(f"failed {error.errno}")
            return
        if self._program == 0:
            os.close(error_read)
            self._exec_program(command, write_end, error_write, handled_signals)
        os.close(error_write)
        if write_end >= 0:
            os.close(write_end)
        errno_text = b""
        with suppress(OSError):
            errno_text = os.read(error_read, 16)
        os.close(error_read)
        if errno_text:
            os.waitpid(self._program, 0)
            self._send(f"failed {errno_text.decode()}")
            return
        self._send(f"started {self._program} {time.monotonic()}")
        self._guard()

    def _exec_program(
        self, command: list[str], write_end: int, error_write: int, handled_signals: list[int]
    ) -> NoReturn:
        """In the child: becomes the program, with the signal handlers that gpuwatch was started with."""
        try:
            parent = os.getppid()
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(143)
            signal.set_wakeup_fd(-1)
            # Python itself ignores SIGPIPE and SIGXFSZ.
            for number in (*handled_signals, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            if self._own_session:
                os.setsid()
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            if write_end >= 0:
                os.dup2(write_end, 2)
                if self._merged:
                    os.dup2(write_end, 1)
            try:
                os.execvp(command[0], command)
            except OSError as error:
                if error.errno != errno.ENOEXEC:
                    raise
                # As execvp(3) does: the shell runs a script without a #! line.
                os.execv("/bin/sh", ["/bin/sh", _path_of(command[0]), *command[1:]])
        except OSError as error:
            os.write(error_write, str(error.errno).encode())
        finally:
            os._exit(127)

    def _guard(self) -> None:
        pending = b""
        while True:
            ready, _, _ = select.select([self._control, self._wake_read], [], [])
            if self._wake_read in ready:
                self._report_signals()
            if self._control in ready:
                try:
                    data = os.read(self._control, 4096)
                except OSError:
                    data = b""  # gpuwatch died before it had read all our lines
                if not data:
                    self._end_after_gpuwatch()
                    return
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    command, _, rest = line.partition(b" ")
                    if command == b"restore":
                        self._restore_bytes = bytes.fromhex(rest.decode())
                    elif command == b"drop":
                        # Nobody reads our stderr any more: the program's writes must fail as they would without us.
                        os.close(self._channel)
                        self._channel = -1
                    elif command == b"end":
                        self._end_all()
                        self._send("gone")
                    elif command == b"interrupt":
                        self._interrupt()
                    elif command == b"group":
                        self._signal_group(int(rest))
                    elif command == b"report":
                        if select.select([self._wake_read], [], [], 0)[0]:
                            self._report_signals()
                        self._send("reported")
                    elif command == b"leave":
                        self._pass_on_output()
                        return

    def _interrupt(self) -> None:
        """SIGINT to the program; if that is a shell, also to what it waits for, which a terminal would signal too."""
        if self._wait_status is None:  # else the pid may be another's by now
            pids = foreground_pids(self._program)
            # A terminal signals all at once. Here a shell could start its next command between two signals: it stands
            # still until it has its own.
            shells = [pid for pid in pids if _is_shell(pid)]
            for number, receivers in (signal.SIGSTOP, shells), (signal.SIGINT, pids), (signal.SIGCONT, shells):
                for pid in receivers:
                    with suppress(OSError):
                        os.kill(pid, number)

    def _signal_group(self, number: int) -> None:
        """Signals the program's process group: never after the number may have become another's."""
        with suppress(OSError):
            if descendants(os.getpid()):
                os.killpg(self._program, number)

    def _report_signals(self) -> None:
        for number in os.read(self._wake_read, 512):
            if number != signal.SIGCHLD:
                self._send(f"signal {number}")
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._program:
                self._wait_status = status
                self._send(f"ended {status} {self._descendants_left()} {usage.ru_maxrss}")

    def _descendants_left(self) -> int:
        """Number of descendants left, after a moment for helpers that exit by themselves."""
        ends_at = time.monotonic() + _CHILDREN_EXIT_SECONDS
        while (left := len(descendants(os.getpid()))) and time.monotonic() < ends_at:
            select.select([], [], [], 0.02)
        return left

    def _send(self, line: str) -> None:
        with suppress(OSError):  # gpuwatch is dead: end of file on the socket will tell
            os.write(self._control, line.encode() + b"\n")

    def _end_after_gpuwatch(self) -> None:
        """gpuwatch was killed: restores the terminal and ends the program."""
        if self._restore_bytes:
            with suppress(OSError):
                os.write(2, self._restore_bytes)
        self._end_all()

    def _end_all(self) -> None:
        """SIGTERM, then after a grace period SIGKILL until nothing is left."""
        _signal_all(signal.SIGTERM)
        ends_at = time.monotonic() + _GRACE_SECONDS
        while descendants(os.getpid()):
            if time.monotonic() > ends_at:
                _signal_all(signal.SIGKILL)
            select.select([], [], [], 0.02)
            self._reap()

    def _pass_on_output(self) -> None:
        """The program has ended; processes that it left behind keep running and writing."""
        if self._channel < 0 or not descendants(os.getpid()):
            return
        os.set_blocking(self._channel, True)
        with suppress(OSError):
            while chunk := os.read(self._channel, _READ_BYTES):
                os.write(2, chunk)


def descendants(ancestor: int) -> list[int]:
    """Pids of the living descendants of ``ancestor``."""
    parents = {pid: parent for pid, (parent, _) in _parents_and_groups().items()}
    pids: list[int] = []
    for pid in parents:
        ancestor_pid = parents[pid]
        while ancestor_pid in parents and ancestor_pid != ancestor:
            ancestor_pid = parents[ancestor_pid]
        if ancestor_pid == ancestor:
            pids.append(pid)
    return pids


def foreground_pids(program: int) -> list[int]:
    """The program and, where it is a shell, its children in the foreground, and theirs.

    Children of a script share its process group, except where it uses job control (``set -m``): these a terminal
    would not signal either. The children first: a shell acts on the signal once its child has ended.
    """
    parents_and_groups = _parents_and_groups()
    pids = []
    pending = [program]
    while pending:
        pid = pending.pop()
        pids.append(pid)
        if _is_shell(pid) and pid in parents_and_groups:
            pending += [
                child
                for child, (parent, group) in parents_and_groups.items()
                if parent == pid and group == parents_and_groups[pid][1]
            ]
    return pids[::-1]


def _parents_and_groups() -> dict[int, tuple[int, int]]:
    """Parent and process group of every living process, by pid."""
    processes: dict[int, tuple[int, int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123  (no pathlib: it costs the start)
                    state, parent, group = file.read().rpartition(b")")[2].split()[:3]
            except OSError:
                continue
            if state != b"Z":
                processes[int(entry)] = int(parent), int(group)
    return processes


def _is_shell(pid: int) -> bool:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe")) in _SHELLS  # noqa: PTH115, PTH119
    except OSError:
        return False


def _signal_all(number: signal.Signals) -> None:
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            os.kill(pid, number)


def _path_of(name: str) -> str:
    if "/" in name:
        return name
    folders = os.get_exec_path()
    return next((path for folder in folders if os.access(path := f"{folder}/{name}", os.X_OK)), name)


def _ignore_signal(number: int, frame: object) -> None:
    """The wake-up descriptor receives the signal."""


def main() -> None:
    """Arguments: control socket, read end and write end of the channel (-1: none), ``m`` if stdout is merged and ``s``
    for a session of its own (else ``-``), command."""
    control, channel, write_end = (int(text) for text in sys.argv[1:4])
    for descriptor in (control, channel, write_end):
        if descriptor >= 0:
            os.set_inheritable(descriptor, False)
    Guard(control, channel, merged="m" in sys.argv[4], own_session="s" in sys.argv[4]).run(sys.argv[5:], write_end)


if __name__ == "__main__":
    main()

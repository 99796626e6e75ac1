"""Watches a program of the user's own: unchanged, its output its own, a Run at the end.

stdin and stdout are inherited and never touched. stderr goes through us, byte for byte, because the
frameworks write their log there; where ours is a terminal, the program gets a terminal too. The
program stays in our process group, so that Ctrl+C reaches it as it would without us.
"""

from __future__ import annotations

import datetime
import fcntl
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.model.run import Outcome, Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.probing.locate import ProbeScript, probe_folder
from gpuwatch.probing.observe import Observation, Observed
from gpuwatch.probing.streams import Lines
from gpuwatch.probing.runner import SnapshotSource, kept_environment

_CHUNK = 1 << 16
_GRACE = 2.0
_TICK = 0.2

# Between us and the program: asks the kernel to end it when we are killed (prctl PR_SET_PDEATHSIG, which
# survives exec), then becomes it. A fork of ours could not, because we have threads.
_LAUNCH = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGTERM)\n"
    "os.getppid() == int(sys.argv[1]) or sys.exit(143)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


def watch(
    command: Sequence[str],
    *,
    source: SnapshotSource | None = None,
    before: Snapshot | None = None,
    placement: bool = False,
    environment: dict[str, str] | None = None,
    simulation: str | None = None,
) -> Observed:
    """Runs ``command`` to its end and returns what was observed.

    ``placement`` switches TensorFlow's placement logging on, which makes its log longer. The
    program's exit code or signal is in the run's outcome. KeyboardInterrupt is the program's to
    handle: it is ignored here while the program lives.
    """
    wanted = dict(os.environ if environment is None else environment)
    events_read, events_write = os.pipe()
    os.set_inheritable(events_write, True)
    wanted["GPUWATCH_WATCH_FD"] = str(events_write)
    if placement:
        wanted["GPUWATCH_WATCH_PLACEMENT"] = "1"
    hook = str(probe_folder() / "_gpuwatch_watch")
    wanted["PYTHONPATH"] = os.pathsep.join([hook, *filter(None, [wanted.get("PYTHONPATH")])])
    started_at = datetime.datetime.now(datetime.UTC)
    started = time.monotonic()
    err_read, err_write = _stderr_channel()
    try:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _LAUNCH, str(os.getpid()), *command],
            stderr=err_write,
            env=wanted,
            pass_fds=(events_write,),
        )
    except OSError as error:
        os.close(err_read)
        os.close(events_read)
        raise GpuwatchError(f"{command[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(err_write)
        os.close(events_write)
    observation = Observation(started, before)
    observation.pid = process.pid
    outcome = _Pump(process, err_read, events_read, observation, source).run()
    observation.ended = outcome.exit_code is not None
    observed = observation.finish(
        _as_script(command),
        outcome,
        started_at=started_at,
        total_seconds=time.monotonic() - started,
        fresh=True,
        environment=kept_environment(wanted),
        simulation=simulation,
    )
    return msgspec.structs.replace(observed, run=_judged(observed))


def _judged(observed: Observed) -> Run:
    """The program's own end: an exit code other than 0 is its failure, whatever the log says."""
    run = observed.run
    code = run.outcome.exit_code
    if run.verdict == "ok" and code:
        if run.ooms:
            return msgspec.structs.replace(run, verdict="oom", verdict_reason="it ran out of memory")
        return msgspec.structs.replace(run, verdict="error", verdict_reason=f"it ended with exit code {code}")
    return run


def _as_script(command: Sequence[str]) -> ProbeScript:
    return ProbeScript(
        name="run",
        title=" ".join(command),
        summary="A program of the user's own.",
        group="run",
        framework="tensorflow",
        workload="program",
        verdict="ok",
        environment={},
        path=Path(command[0]),
    )


def _stderr_channel() -> tuple[int, int]:
    """Our end and the program's: a terminal where ours is one, a pipe elsewhere."""
    if not os.isatty(2):
        return os.pipe()
    ours, theirs = pty.openpty()
    tty.setraw(theirs)  # our terminal does the rest: nothing may be translated twice
    with suppress(OSError):
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(2, termios.TIOCGWINSZ, struct.pack("HHHH", 0, 0, 0, 0)))
    return ours, theirs


class _Pump:
    """Moves the program's stderr and events until it has ended."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        err: int,
        events: int,
        observation: Observation,
        source: SnapshotSource | None,
    ) -> None:
        self._process = process
        self._err = err
        self._events = events
        self._observation = observation
        self._source = source
        self._selector = selectors.DefaultSelector()
        self._handlers: dict[int, tuple[Callable[[bytes], None], Lines]] = {
            err: (self._pass_on, Lines(observation.log_line)),
            events: (lambda chunk: None, Lines(self._take_event)),
        }
        for descriptor in self._handlers:
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)

    def run(self) -> Outcome:
        kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _: self._process.send_signal(number))
        signal.signal(signal.SIGHUP, lambda number, _: self._process.send_signal(number))
        try:
            while self._process.poll() is None:
                self._drain(_TICK)
                self._look()
            until = time.monotonic() + _GRACE
            # A child that the program left behind may hold the pipe open: it is not waited for.
            while self._selector.get_map() and time.monotonic() < until and self._drain(0.05):
                pass
            self._look()
            for _, lines in self._handlers.values():
                lines.close()
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._selector.close()
            os.close(self._err)
            os.close(self._events)
            for number, handler in kept.items():
                signal.signal(number, handler)
        code = self._process.returncode
        return Outcome(exit_code=code if code >= 0 else None, signal=-code if code < 0 else None)

    def _drain(self, timeout: float) -> bool:
        got = False
        if not self._selector.get_map():
            time.sleep(min(timeout, 0.02))
            return False
        for key, _ in self._selector.select(timeout):
            try:
                chunk = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""  # a terminal whose other end is closed answers EIO
            got = True
            handle, lines = self._handlers[key.fd]
            if not chunk:
                self._selector.unregister(key.fd)
                continue
            handle(chunk)
            lines.feed(chunk)
        return got

    def _pass_on(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            try:
                view = view[os.write(2, view) :]
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                return  # whoever read our stderr is gone; the program goes on

    def _take_event(self, line: bytes) -> None:
        self._observation.event_line(line)

    def _look(self) -> None:
        if self._source is not None:
            for snapshot in self._source.drain():
                self._observation.snapshot(snapshot, time.monotonic())

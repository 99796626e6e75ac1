"""Watches a program of the user's own: unchanged, its output its own, a Run at the end.

The program stays in our process group, so that Ctrl+C, Ctrl+Z and hang-ups reach it as they would without
us; a signal that was sent to us alone is passed on. Its parent is a guard (:mod:`gpuwatch.probing.guard`),
which ends it, and whatever it started, when we are killed.
"""

from __future__ import annotations

import datetime
import errno
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.model.run import Outcome, Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.probing import guard
from gpuwatch.probing.backlog import Backlog
from gpuwatch.probing.channel import Channel
from gpuwatch.probing.family import Family
from gpuwatch.probing.live import Live
from gpuwatch.probing.locate import ProbeScript, probe_folder
from gpuwatch.probing.observe import Observation, Observed
from gpuwatch.probing.runner import SnapshotSource, kept_environment
from gpuwatch.probing.streams import Lines, Streams
from gpuwatch.sources.lineage import OomKills, oom_kills

_TICK = 0.5
_PACE = 0.02
_GRACE = 2.0
"""Seconds for output of a program that has ended, where somebody may still write."""
_QUIET = 0.2
_WITNESS = 0.1
"""Seconds after which a signal that the guard did not get too was meant for us alone."""
_YOUNG = 10.0
"""Seconds for which a run is kept every second: whatever ends it then, there is something to look at."""
_SHARE, _SHARE_YOUNG = 0.005, 0.05
"""Share of a core that judging and keeping an unfinished run may cost."""


class NotStarted(GpuwatchError):
    """The program could not be executed; the exit code is the one that a shell gives (127 or 126)."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch."""

    placement: bool = False
    """Switch TensorFlow's placement logging on, which makes its log longer."""
    log: bool = True
    """Read the program's stderr on its way; False leaves it the program's own."""
    line: bool = False
    """Draw a status line on the terminal."""
    speak: bool = False
    """Say causes when they are recognised."""
    simulation: str | None = None


Judge = Callable[[Observed], Run]
"""Makes a finished run of what was observed, and keeps it."""


def watch(
    command: Sequence[str],
    judge: Judge,
    options: Options,
    *,
    source: SnapshotSource | None = None,
    before: Snapshot | None = None,
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Run:
    """Runs ``command`` to its end and returns the run, which ``judge`` finishes.

    ``judge`` is called now and then while the program runs too, so that a run which breaks off is kept as
    far as it came; ``meanwhile`` once, while the program starts. The program's exit code or signal is in the
    run's outcome. Raises :class:`NotStarted`.
    """
    with _Watch(command, judge, options, source, before, environment) as watching:
        return watching.run(meanwhile)


class _Watch:
    """One program, from its start to its end. A context manager: nothing that it started stays behind."""

    def __init__(
        self,
        command: Sequence[str],
        judge: Judge,
        options: Options,
        source: SnapshotSource | None,
        before: Snapshot | None,
        environment: Mapping[str, str] | None,
    ) -> None:
        self._command = list(command)
        self._judge = judge
        self._options = options
        self._source = source
        self._streams = Streams()
        self._family = Family(self._streams)
        self._environment = self._watched(dict(os.environ if environment is None else environment))
        self._channel = Channel(wanted=options.log)
        self._live = Live(self._channel, command, line=options.line, speak=options.speak)
        self._backlog = Backlog(self._log_line)
        self._signals = _Signals(self._streams, self._take_signal)
        self._control, self._theirs = socket.socketpair()
        self._guard: subprocess.Popen[bytes] | None = None
        self._program: int | None = None
        self._since = 0.0
        self._failed: int | None = None
        self._status: int | None = None
        self._left = 0
        self._guard_gone = False
        self._everybody_gone = False
        self._asked: list[int] = []
        self._kills = oom_kills()
        self._started_at = datetime.datetime.now(datetime.UTC)
        self._started = time.monotonic()
        self._observation = Observation(self._started, before, self._family.belongs)
        self._latest = before
        self._keep_at = self._started
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.end()
        # To the guard, our end closing means that we are dead: whatever still runs is ended.
        self._control.close()
        self._theirs.close()
        if kind is not None and self._guard is not None:
            self._guard.wait()
        self._family.close()
        self._signals.close()
        self._streams.close()
        self._channel.close()

    def _watched(self, environment: dict[str, str]) -> dict[str, str]:
        environment["GPUWATCH_WATCH"] = self._family.address
        if self._options.placement:
            environment["GPUWATCH_WATCH_PLACEMENT"] = "1"
            environment["TF_CPP_MIN_LOG_LEVEL"] = "0"  # placements are logged at the lowest level
        hook = str(probe_folder() / "_gpuwatch_watch")
        environment["PYTHONPATH"] = os.pathsep.join([hook, *filter(None, [environment.get("PYTHONPATH")])])
        return environment

    # From start to end

    def run(self, meanwhile: Callable[[], None] | None) -> Run:
        """All of it; see :func:`watch`."""
        self._live.begin()
        self._start()
        if meanwhile is not None:
            meanwhile()
        while self._status is None and self._failed is None and not self._guard_gone:
            if not self._streams.drain(0 if len(self._backlog) else self._signals.patience(_TICK)):
                self._backlog.work()  # passing on comes first
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + _PACE
                self._signals.judge()
                self._look()
                self._live.tick()
                if self._program is not None and time.monotonic() >= self._keep_at:
                    self._keep()
        if self._failed is not None:
            self._live.end()
            raise _not_started(self._command[0], self._failed)
        if self._program is None:
            raise KeyboardInterrupt  # the guard was ended before it could start anything
        self._finish()
        self._look()
        self._live.end()
        self._live.speak()
        return self._judge(self._observed(self._outcome()))

    def _start(self) -> None:
        channel = self._channel
        # A signal that comes while the guard starts waits until it can tell of it.
        kept = signal.pthread_sigmask(signal.SIG_BLOCK, guard.WATCHED)
        try:
            self._guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__),
                    *map(str, (self._theirs.fileno(), channel.read, channel.write, int(channel.merged))),
                    *self._command,
                ],
                env=self._environment,
                pass_fds=[fd for fd in (self._theirs.fileno(), channel.read, channel.write) if fd >= 0],
            )
        except OSError as error:
            raise GpuwatchError(f"{sys.executable} cannot be started: {error.strerror}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, kept)
        self._family.ancestor = self._guard.pid
        self._theirs.close()
        channel.given()
        if channel.open:
            self._streams.add(channel.read, self._take_output)
        self._streams.add(self._control.fileno(), Lines(self._take_report).feed, self._guard_ended)
        self._tell_guard()

    def _finish(self) -> None:
        """What is still on its way, and what the program left behind."""
        until = time.monotonic() + _GRACE
        heard = time.monotonic()
        while self._channel.open and self._streams.reads(self._channel.read) and time.monotonic() < until:
            if self._streams.drain(0.02):
                heard = time.monotonic()
            elif self._left and time.monotonic() - heard > _QUIET:
                break  # somebody holds it open and is silent
        self._family.listen_only()
        while self._streams.drain(0):
            pass
        self._backlog.close()
        if self._left and self._killed:
            # What a killed program leaves behind nobody looks after: workers that hold GPUs, above all.
            self._say("end")
            until = time.monotonic() + 2 * _GRACE
            while not self._everybody_gone and not self._guard_gone and time.monotonic() < until:
                self._streams.drain(0.05)
        self._say("leave")

    @property
    def _killed(self) -> bool:
        return self._status is not None and os.WIFSIGNALED(self._status)

    # What comes in

    def _take_output(self, chunk: bytes) -> None:
        self._channel.pass_on(chunk)
        self._backlog.put(chunk)
        if self._channel.broken:
            self._streams.remove(self._channel.read)
            self._channel.close()
            self._say("drop")

    def _log_line(self, line: bytes) -> None:
        self._observation.log_line(line)
        self._family.log_line(line)

    def _take_report(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if word == b"started":
            self._program = int(rest)
            self._since = time.monotonic()
            self._signals.ready = True
        elif word == b"failed":
            self._failed = int(rest)
        elif word == b"ended":
            status, left = rest.split()
            self._status, self._left = int(status), int(left)
        elif word == b"gone":
            self._everybody_gone = True
        elif word == b"signal":
            self._signals.witnessed(int(rest))

    def _guard_ended(self) -> None:
        self._guard_gone = True

    def _take_signal(self, number: int, everybody: bool, came: float) -> None:
        """A signal to us, or to our whole process group (``everybody``), at monotonic time ``came``."""
        if number == signal.SIGWINCH:
            self._live.resized()
            self._tell_guard()
            # The program was told before its terminal had the new size.
            for pid in guard.descendants(self._guard.pid) if self._guard is not None else ():
                with suppress(OSError):
                    os.kill(pid, signal.SIGWINCH)
        elif number == signal.SIGTSTP:
            self._pause()
        elif self._program is not None:
            self._asked.append(number)
            if not everybody or came < self._since:
                with suppress(OSError):
                    os.kill(self._program, number)

    def _pause(self) -> None:
        """Ctrl+Z: the terminal is the shell's until we are continued."""
        self._live.end()
        self._tell_guard()
        self._signals.stop_here()
        self._live.begin()
        self._tell_guard()

    def _tell_guard(self) -> None:
        if self._options.line:
            self._say(f"restore {self._live.undo.hex()}")

    def _say(self, line: str) -> None:
        with suppress(OSError):
            self._control.sendall(line.encode() + b"\n")

    # What goes out

    def _look(self) -> None:
        observation = self._observation
        if self._program is not None:
            observation.told = self._family.leading(self._program)
            observation.pid = observation.told.pid or self._program
        if self._source is None:
            return
        for snapshot in self._source.drain():
            observation.snapshot(snapshot, time.monotonic())
            self._latest = snapshot
        used: dict[str, int] = {}
        for process in self._latest.processes if self._latest is not None else ():
            held = process.number("gpu_memory_bytes")
            if held is not None and process.device_uuid and self._family.belongs(process.pid):
                used[process.device_uuid] = used.get(process.device_uuid, 0) + int(held)
        self._live.update(self._latest, used, observation.told.throughput)

    def _keep(self) -> None:
        """The run as far as it came: from the start and every second at first, later at most every minute."""
        began = time.process_time()
        run = self._judge(self._observed(Outcome()))
        self._live.findings(run.findings)
        cost = time.process_time() - began
        now = time.monotonic()
        if now - self._started < _YOUNG:
            pause = max(1.0, cost / _SHARE_YOUNG)
        else:
            pause = max(min(60.0, max(5.0, (now - self._started) / 100)), cost / _SHARE)
        self._keep_at = now + pause

    def _outcome(self) -> Outcome:
        if self._status is None:
            return Outcome(signal=signal.SIGKILL)
        killed = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else None
        return Outcome(
            exit_code=None if killed is not None else os.WEXITSTATUS(self._status),
            signal=killed,
        )

    def _observed(self, outcome: Outcome) -> Observed:
        own = self._observation.told.environment
        observed = self._observation.finish(
            _as_script(self._command),
            outcome,
            started_at=self._started_at,
            total_seconds=time.monotonic() - self._started,
            fresh=True,
            environment=kept_environment(self._environment if own is None else own),
            simulation=self._options.simulation,
            processes=self._family.processes(self._observation.held),
        )
        run = self._judged(observed.run, outcome)
        own_map = self._family.map_of_leading()
        if own_map is not None:
            run = msgspec.structs.replace(run, device_map=own_map)
        return msgspec.structs.replace(observed, run=run)

    def _judged(self, run: Run, outcome: Outcome) -> Run:
        """The program's own end decides, whatever its log says."""
        took = _duration(run.phases.total_seconds)
        starved = outcome.signal == signal.SIGKILL and _oom_killed(self._kills, oom_kills())
        asked = [number for number in self._asked if number in (outcome.signal, (outcome.exit_code or 0) - 128)]
        ended = bool(outcome.exit_code) or outcome.signal is not None
        if outcome.exit_code is None and outcome.signal is None:
            verdict, reason = "interrupted", f"It was still running when this was written, after {took}."
        elif signal.SIGINT in (outcome.signal, (outcome.exit_code or 0) - 128) or (
            ended and any(error.type == "KeyboardInterrupt" for error in run.errors)
        ):
            verdict, reason = "interrupted", f"It was interrupted (SIGINT, Ctrl+C) after {took}."
        elif asked:
            verdict, reason = "interrupted", f"It was ended by {_name(asked[-1])} after {took}, as gpuwatch was asked."
        elif ended and run.ooms:
            verdict, reason = "oom", "it ran out of memory"
        elif starved:
            limit = self._kills.limit_bytes
            whose = "of the host" if limit is None else f"that its control group may use ({limit >> 20} MiB)"
            verdict, reason = "error", f"The kernel killed it (SIGKILL) because the memory {whose} was used up."
        elif outcome.signal is not None:
            verdict, reason = "error", f"It was killed by {_name(outcome.signal)} after {took}."
        elif outcome.exit_code:
            verdict, reason = "error", f"It ended with exit code {outcome.exit_code}{_exception(run)}."
        else:
            verdict, reason = "ok", ""
        problems = run.problems
        if self._left:
            word = "was ended too" if outcome.signal is not None else "still runs"
            problems = (*problems, f"processes that the program left behind: {self._left}; what was left {word}")
        if self._observation.log.frameworks and run.framework is None:
            problems = (*problems, "inside the program: its Python ignores PYTHONPATH (-I, -E), or it is no Python")
        if self._backlog.left_out:
            problems = (*problems, f"{self._backlog.left_out >> 20} MiB of output came too fast to be read")
        if not self._options.log:
            problems = (*problems, "the log was not read (--no-log)")
        outcome = msgspec.structs.replace(outcome, ended=outcome.exit_code is not None)
        return msgspec.structs.replace(
            run,
            verdict=verdict,
            verdict_reason=reason,
            problems=problems,
            outcome=outcome,
            host_memory_out=starved,
            left_behind=self._left,
        )


class _Signals:
    """Signals as bytes among the other streams, each with the answer to whom it was sent."""

    def __init__(self, streams: Streams, take: Callable[[int, bool, float], None]) -> None:
        self._streams = streams
        self._take = take
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._kept: dict[int, object] = {}
        self.ready = False
        self._mine: list[tuple[int, float]] = []
        self._witnessed: list[tuple[int, float]] = []
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*guard.WATCHED, signal.SIGWINCH, signal.SIGTSTP):
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN and handler is not None:
                self._kept[number] = handler
                signal.signal(number, _nothing)
        streams.add(self._read, self._arrived)

    def close(self) -> None:
        signal.set_wakeup_fd(self._fd)
        for number, handler in self._kept.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from getsignal
        self._streams.remove(self._read)
        os.close(self._read)
        os.close(self._write)

    def patience(self, most: float) -> float:
        """How long one may wait for anything."""
        return min(most, _WITNESS / 4) if self._mine else most

    def witnessed(self, number: int) -> None:
        """The guard got it too."""
        self._witnessed.append((number, time.monotonic()))

    def judge(self) -> None:
        """Hands out what is decided; nothing before there is a program."""
        if not self.ready:
            return
        now = time.monotonic()
        self._witnessed = [entry for entry in self._witnessed if now - entry[1] < 5 * _WITNESS]
        for entry in list(self._mine):
            number, came = entry
            other = next((seen for seen in self._witnessed if seen[0] == number), None)
            if other is not None:
                self._witnessed.remove(other)
            elif now - came < _WITNESS:
                continue
            self._mine.remove(entry)
            self._take(number, other is not None, came)

    def stop_here(self) -> None:
        """Stops this process as the signal would have; returns when it is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _nothing)

    def _arrived(self, numbers: bytes) -> None:
        for number in numbers:
            if number in (signal.SIGWINCH, signal.SIGTSTP):
                self._take(number, True, time.monotonic())
            elif number in self._kept:
                self._mine.append((number, time.monotonic()))


def _nothing(number: int, frame: FrameType | None) -> None:
    """The wake-up descriptor has it already."""


def _as_script(command: Sequence[str]) -> ProbeScript:
    return ProbeScript(
        name="run",
        title=shlex.join(command),
        summary="A program of the user's own.",
        group="run",
        framework="tensorflow",
        workload="program",
        verdict="ok",
        environment={},
        path=Path(command[0]),
    )


def _not_started(name: str, code: int) -> NotStarted:
    path = name if "/" in name else shutil.which(name, mode=os.F_OK)
    if path is not None and Path(path).is_dir():
        return NotStarted(f"{name} is a folder, not a program", exit_code=126)
    if code == errno.ENOENT and path is not None and Path(path).exists():
        why = "the interpreter that its first line names does not exist"
        return NotStarted(f"{name} cannot be started: {why}", exit_code=127)
    if code in (errno.ENOENT, errno.ENOTDIR):
        hint = f"not in PATH; the one in this folder is ./{name}" if "/" not in name and Path(name).exists() else ""
        return NotStarted(f"{name}: there is no such program", hint=hint, exit_code=127)
    if code == errno.EACCES and path is not None and Path(path).is_file() and not Path(path).stat().st_mode & 0o111:
        hint = f"python {name}" if name.endswith(".py") else f"chmod +x {name}"
        return NotStarted(f"{name} is not executable", hint=hint, exit_code=126)
    return NotStarted(f"{name} cannot be started: {os.strerror(code)}", exit_code=126)


def _oom_killed(before: OomKills, after: OomKills) -> bool:
    """Somebody near was killed meanwhile: our control group's counter is the better witness."""
    if before.cgroup is not None and after.cgroup is not None:
        return after.cgroup > before.cgroup
    return before.machine is not None and after.machine is not None and after.machine > before.machine


def _exception(run: Run) -> str:
    error = next((error for error in reversed(run.errors) if not error.expected), None)
    if error is None:
        return ""
    lines = error.message.strip().splitlines()
    return f", in {error.type}" + (f": {lines[0][:200].rstrip('.')}" if lines else "")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "an unknown time"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"

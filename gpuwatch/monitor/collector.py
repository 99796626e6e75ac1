"""The live feed: starts the collector's process, reads its snapshots, replaces it when it hangs."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec

from gpuwatch.errors import GpuwatchError
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.feed import FeedStatus
from gpuwatch.monitor.forked import Forked
from gpuwatch.monitor.wire import HEAD_BYTES, MEANWHILE, PREVIEW, Calm, Receiver, aged, head, plain
from gpuwatch.sources import procfs

_REPLACE_AFTER = 10.0
"""Seconds without a snapshot after which the collector is replaced (a slow driver takes one or two)."""
_MOST_DOUBLINGS = 4
_OVERDUE = 2.0
_KEEP = 600
_STOOD_STILL = 1.0
"""Seconds by which this process wakes too late where it was itself stopped."""
_STARTS_WITHIN = 5.0
"""Seconds that a new collector may take before its silence is the driver's."""

# The package is found where it is now, without putting the working directory on the path.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from gpuwatch.monitor.worker import main; main()"


class Collector:
    """Snapshots from a process of its own; implements :class:`gpuwatch.monitor.feed.Feed`.

    ``interval`` is in seconds. ``environment`` replaces the process's environment (simulated GPUs).
    ``first``: a process that was started already; those that replace it are started here.
    """

    def __init__(
        self,
        interval: float = 1.0,
        *,
        on_demand: bool = False,
        gpm: bool = False,
        environment: dict[str, str] | None = None,
        first: subprocess.Popen[bytes] | Forked | None = None,
    ) -> None:
        self._interval = interval
        self._on_demand = on_demand
        self._gpm = gpm
        self._environment = environment
        self._wake: Callable[[], None] | None = None
        self._process: subprocess.Popen[bytes] | Forked | None = first
        if first is not None and gpm:
            self._command(gpm=True)  # it was started before anybody knew
        self.preview: Snapshot | None = None
        """The devices of the first sample, which are there before its processes are."""
        self._machine: Snapshot | None = None
        """The host, while the driver has not answered to this collector."""
        self._ahead: Sequence[tuple[bytes, bytes]] = ()
        self._frames: deque[Snapshot] = deque(maxlen=_KEEP)
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._last: float | None = None
        self._began = self._started = time.monotonic()
        """When the first collector was started, and when the one that runs now."""
        self._pardoned = 0.0
        """When this process went on after it had stood still: before that nobody waited for anything."""
        self._replaced = 0
        self._in_vain = 0
        """Replacements since the last snapshot."""
        self._took = 0.0
        self._detail = ""
        self._fault = ""
        """What was wrong with the last collector that was replaced, itself; empty where it waited for the driver."""
        self._threads: list[threading.Thread] = []

    @property
    def interval(self) -> float:
        """Seconds between samples."""
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = seconds
        self._command(interval=seconds)

    @property
    def gpm(self) -> bool:
        """Whether the activity of the GPUs' parts is asked for (Hopper and later); may be set at any time."""
        return self._gpm

    @gpm.setter
    def gpm(self, wanted: bool) -> None:
        self._gpm = wanted
        self._command(gpm=wanted)

    def launch(self) -> subprocess.Popen[bytes] | Forked:
        """Starts the process alone, so that it works while the caller imports what it needs."""
        process = self._process
        if process is None:
            process = self._process = self._spawn()
            self._began = self._started = time.monotonic()
        return process

    def read_ahead(self, frames: Sequence[tuple[bytes, bytes]]) -> None:
        """What the process has said to somebody else before :meth:`start`: kind and body of each frame."""
        self._ahead = frames

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Begins to read; ``wake`` is called from the reader's thread after each snapshot."""
        self._wake = wake
        self.launch()
        supervisor = threading.Thread(target=self._supervise, name="gpuwatch-collector", daemon=True)
        self._threads.append(supervisor)
        supervisor.start()

    def drain(self, *, ageing: bool = True) -> list[Snapshot]:
        """Every snapshot since the last call, oldest first.

        Without ``ageing`` the processes of a :class:`~gpuwatch.monitor.wire.Calm` one are the very rows of the
        one before, with the run times of then; :func:`~gpuwatch.monitor.wire.aged` brings them up to date.
        """
        with self._lock:
            frames = list(self._frames)
            self._frames.clear()
        return [aged(one) if isinstance(one, Calm) else one for one in frames] if ageing else frames

    def wait(self, count: int, timeout: float) -> list[Snapshot]:
        """Blocks until ``count`` snapshots are there or ``timeout`` seconds have passed."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._frames) >= count, timeout)
        return self.drain()

    def fresh(self, timeout: float) -> Snapshot | None:
        """A snapshot begun after this call; None when none came within ``timeout`` seconds."""
        asked = datetime.datetime.now(datetime.UTC)
        until = time.monotonic() + timeout
        self._command(now=True)
        while (left := until - time.monotonic()) > 0:
            for snapshot in self.wait(1, left):
                if snapshot.taken_at >= asked:
                    return snapshot
        return None

    def status(self) -> FeedStatus:
        """How the collector is doing."""
        now = time.monotonic()
        if self._stopping.is_set():
            return FeedStatus("stopped", None if self._last is None else now - self._last)
        last = self._last
        since = now - max(self._began if last is None else last, self._pardoned)
        overdue = since - self._interval
        if overdue > _OVERDUE:
            age = None if last is None else now - last
            blame = self._blame()
            return FeedStatus("not-answering", age, overdue, self._replaced, self._detail, blame, self._machine)
        if last is None:
            return FeedStatus("starting", None, 0.0, self._replaced, self._detail, machine=self._machine)
        return FeedStatus("ok", now - last, 0.0, self._replaced, self._detail)

    def _blame(self) -> str:
        """What is wrong with the collector itself; empty while it runs, and so waits for the driver."""
        process = self._process
        if process is None:
            return self._fault
        code = process.returncode
        if code is None and procfs.stopped(process.pid):
            return "was stopped"
        if code is not None:
            return "ended"
        # Its successor has first to start; only after that it can be the driver that it waits for.
        return self._fault if time.monotonic() - self._started < _STARTS_WITHIN else ""

    def resumed(self) -> None:
        """This process stood still, and goes on: the wait for the collector begins now."""
        self._pardoned = time.monotonic()

    def stop(self) -> None:
        """Ends the process and the threads."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        process = self._process
        if process is not None:
            _end(process)
        for thread in self._threads:
            thread.join(timeout=1.0)

    # -- inside ---------------------------------------------------------------------------------

    def _command(self, **what: float) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # it is being replaced; its successor starts with what is set now
                process.stdin.write(msgspec.json.encode(what) + b"\n")
                process.stdin.flush()

    def _spawn(self) -> subprocess.Popen[bytes]:
        package_parent = str(Path(__file__).resolve().parents[2])
        try:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-c",
                    _START,
                    package_parent,
                    str(self._interval),
                    "1" if self._on_demand else "0",
                    "1" if self._gpm else "0",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if not os.environ.get("GPUWATCH_DEBUG") else None,
                env=self._environment,
            )
        except OSError as error:
            raise GpuwatchError(f"the collector cannot be started: {error}") from error

    def _supervise(self) -> None:
        """Reads one collector after another until stopped."""
        pause = 0.0
        while not self._stopping.wait(pause):
            process = self._process
            if process is None:
                process = self._process = self._spawn()
                self._started = time.monotonic()
            reader = threading.Thread(target=self._read, args=(process,), name="gpuwatch-reader", daemon=True)
            reader.start()
            while reader.is_alive() and not self._stopping.is_set():
                # It ends when the process does; else there is nothing to do before it can be overdue.
                patience = self._patience()
                last = max(self._last or 0.0, self._started, self._pardoned)
                wake = max(last + patience, time.monotonic()) + 0.05
                reader.join(timeout=wake - time.monotonic())
                if time.monotonic() - wake > _STOOD_STILL:
                    self.resumed()
                last = max(self._last or 0.0, self._started, self._pardoned)
                if time.monotonic() - last > patience:
                    self._fault = "was stopped" if procfs.stopped(process.pid) else ""
                    what = "the collector was stopped" if self._fault else "the collector did not answer"
                    self._detail = f"{what} and was replaced"
                    break
            if self._stopping.is_set():
                return
            if not reader.is_alive():
                self._fault = "ended"
                self._detail = f"the collector ended by itself ({_ending(process)}) and was replaced"
            _end(process)
            self._process = None
            self._replaced += 1
            self._in_vain += 1
            pause = min(10.0, 0.5 * 2 ** min(self._replaced, 5))

    def _patience(self) -> float:
        """Seconds that a collector may go without a snapshot.

        A driver that is slow and answers needs time, and a new collector asks it for more than the old one
        did: so the time doubles with every one that brought nothing.
        """
        return max(_REPLACE_AFTER * (1 << min(self._in_vain, _MOST_DOUBLINGS)), 5 * self._interval, 3 * self._took)

    def _read(self, process: subprocess.Popen[bytes] | Forked) -> None:
        receiver = Receiver(ageing=False)
        ahead, self._ahead = self._ahead, ()
        for kind, frame in chain(ahead, _frames(process)):
            snapshot = receiver.receive(kind, frame)
            if process is not self._process:
                return  # an old collector that came back to life
            if kind == PREVIEW:
                with self._arrived:
                    self.preview = snapshot
                    self._arrived.notify_all()
                continue
            if kind == MEANWHILE:
                self._machine = snapshot
                if self._wake is not None:
                    self._wake()
                continue
            self._last, self._machine = time.monotonic(), None
            self._in_vain, self._took = 0, snapshot.took_seconds
            with self._arrived:
                if len(self._frames) == _KEEP:
                    self._frames.popleft()
                    self._frames[0] = aged(plain(self._frames[0]))  # nobody will have seen the one before it
                self._frames.append(snapshot)
                self._arrived.notify_all()
            if self._wake is not None:
                self._wake()


def _frames(process: subprocess.Popen[bytes] | Forked) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each frame until the process ends."""
    stream = process.stdout
    assert stream is not None
    while len(start := stream.read(HEAD_BYTES)) == HEAD_BYTES:
        length, kind = head(start)
        frame = stream.read(length)
        if len(frame) < length:
            return
        yield kind, frame


def _end(process: subprocess.Popen[bytes] | Forked) -> None:
    """Closes its stdin, then kills it; one that hangs inside the driver is left to the kernel."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)


def _ending(process: subprocess.Popen[bytes] | Forked) -> str:
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=0.2)  # its output ends a moment before it does
    code = process.poll()
    if code is None:
        return "it closed its output"
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"

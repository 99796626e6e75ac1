"""The feed of this machine: starts the collector's process, reads its snapshots, replaces it when it hangs."""

from __future__ import annotations

import datetime
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.core.errors import PROCESS_LIMIT_HINT, GpuwatchError
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.collector_supervision import (
    CRASH_SIGNALS,
    HANG_SECONDS,
    LATE_CHECK_SECONDS,
    CollectorProcess,
    CollectorWatch,
    SuspectCalls,
    end_process,
    ending_text,
    read_frames,
    wait_for_exit_code,
)
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.collector.forked_collector import ForkedProcess
from gpuwatch.machine.collector.host_processes import LocalProcesses
from gpuwatch.machine.collector.protocol import FAILURE, PREVIEW, SOURCE, Settings, Source, note_seen_devices
from gpuwatch.machine.history.sample_frames import FrameDecoder
from gpuwatch.machine.sources import procfs
from gpuwatch.machine.sources.driver_call_tracking import CallPage

if TYPE_CHECKING:
    from gpuwatch.machine.collector.continued_idle_times import ContinuedIdleTimes
    from gpuwatch.machine.collector.host_snapshots import HostSnapshots

_REPLACE_SECONDS = 10.0
"""Seconds without a snapshot after which the collector is replaced (a slow driver takes one or two)."""
_MAX_DOUBLINGS = 4
_OVERDUE_SECONDS = 2.0
_FIRST_SAMPLE_SECONDS = 0.6
"""Seconds to wait for the first sample before the host is read without the driver."""
_SLOWEST_SAMPLE_SHARE = 0.98
"""Share of the slowest sample's time that the next one may still need: some ask the driver for more than others."""
_MAX_KEPT_SAMPLES = 600
_STOPPED_SECONDS = 1.0
"""Seconds by which a wait may overrun before this process is taken to have been stopped (SIGSTOP, suspend)."""
_FAILED_PAUSE_SECONDS = 60.0
"""Seconds before a collector that failed with an error of gpuwatch itself is started again."""
_START_SECONDS = 5.0
"""Seconds that a new collector may take to start; later the driver is blamed for the wait."""

_MAX_STARVED_SECONDS = 60.0
"""Seconds that a collector may wait for a CPU, besides its patience with the driver, before it is replaced."""
_OWN_FAILURE = "failed"

# Finds the package at its current place without putting the working directory on the path.
_START_CODE = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from gpuwatch.machine.collector.collector_process import main; main()"
)


class LiveFeed:
    """Snapshots from a collector process; implements :class:`gpuwatch.machine.collector.feed.Feed`.

    ``interval`` is in seconds. ``environment`` replaces the process's environment (simulated GPUs).
    ``first``: a process that is already running; its replacements are started here. ``share``: the samples may be
    those of a recorder on this machine, if it takes as many and reads as much.
    """

    def __init__(
        self,
        interval: float,
        *,
        on_demand: bool = False,
        gpm: bool = False,
        environment: dict[str, str] | None = None,
        first: CollectorProcess | None = None,
        share: bool = False,
    ) -> None:
        self._settings = Settings(interval, on_demand, gpm, share)
        """Those of the collector. A new one has to be given ``seen``: the driver reports each Xid once, and does not
        say which GPU it is that it has lost."""
        self.host = LocalProcesses(environment)
        self._source = Source()
        """Where the samples come from."""
        self._silence_reported_at = 0.0
        """When the collector's process last reported that the recorder's own collector is late."""
        self._environment = environment
        self._wake: Callable[[], None] = lambda: None
        self._process: CollectorProcess | None = first
        self._watch: CollectorWatch | None = None
        """What that process does."""
        self._suspect_calls = SuspectCalls()
        if first is not None:
            page = first.page if isinstance(first, ForkedProcess) else None
            self._watch = CollectorWatch(first.pid, None if page is None else CallPage(page))
            self._send_command(interval=interval, gpm=gpm, share=share)  # it was started before they were known
        self._host_only: Snapshot | None = None
        """The host without devices, while the driver has not answered the current collector."""
        self._host_snapshots: HostSnapshots | None = None
        """Reads the host while no snapshots come."""
        self._frames_read_ahead: Sequence[tuple[bytes, bytes]] = ()
        self._newest_snapshot: Snapshot | None = None
        self._idle_times: ContinuedIdleTimes | None = None
        """Continues idle times, once the samples come from another collector or recorder than at first."""
        self._snapshots: deque[Snapshot] = deque(maxlen=_MAX_KEPT_SAMPLES)
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._last_arrival: float | None = None
        self._first_started_at = self._started_at = time.monotonic()
        """When the first and when the current collector were started."""
        self._resumed_at = 0.0
        """When this process was last continued after a stop: waits are counted from then."""
        self._replacements = 0
        self._vain_replacements = 0
        """Replacements since the last snapshot."""
        self._sample_seconds = 0.0
        """What the last sample took."""
        self._slowest_sample_seconds = 0.0
        """Seconds that a sample of this driver may take, as the latest ones show."""
        self._detail = ""
        self._call_left_out = False
        """Whether the last collector was replaced for a call that hung, which the next one leaves out."""
        self._call_hung_since_sample = False
        """Whether a collector since the last snapshot was replaced for a call that hung."""
        self._last_collector_fault = ""
        """Fault of the last replaced collector itself; empty if it was waiting for the driver."""
        self.failure = ""
        """The error of gpuwatch itself that ended the last collector; empty once a snapshot has come."""
        self._library_crashes = False
        """Whether the driver's library crashes as it is opened: then no sample will come soon."""
        self._threads: list[threading.Thread] = []

    @property
    def interval(self) -> float:
        return self._settings.interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._settings.interval = seconds
        self._send_command(interval=seconds)

    def launch(self) -> CollectorProcess:
        """Starts only the process, which works while the caller imports what it needs."""
        process = self._process
        if process is None:
            process = self._process = self._spawn()
            self._first_started_at = self._started_at = time.monotonic()
        return process

    def read_ahead(self, frames: Sequence[tuple[bytes, bytes]]) -> None:
        """Frames that were read from the process before :meth:`start`: kind and body of each."""
        self._frames_read_ahead = frames

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Starts reading; ``wake`` is called from the reader's thread after each snapshot.

        Once it reads, another call only sets ``wake``; the snapshots that came before wait to be drained.
        """
        self._wake = wake or (lambda: None)
        if self._threads:
            return
        self.launch()
        supervisor = threading.Thread(target=self._supervise, name="gpuwatch-collector", daemon=True)
        self._threads.append(supervisor)
        supervisor.start()

    def drain(self) -> list[Snapshot]:
        with self._lock:
            frames = list(self._snapshots)
            self._snapshots.clear()
        return frames

    def wait(self, count: int, timeout: float) -> list[Snapshot]:
        """Blocks until ``count`` snapshots are there, ``timeout`` seconds have passed, or the collector has failed."""
        with self._arrived:
            self._arrived.wait_for(
                lambda: len(self._snapshots) >= count or bool(self.failure) or self._library_crashes, timeout
            )
        return self.drain()

    def sample_now(self) -> None:
        """Requests an extra snapshot now; it comes with :meth:`drain`."""
        self._send_command(now=True)

    def fresh(self, timeout: float) -> Snapshot | None:
        """A snapshot taken after this call; None if none came within ``timeout`` seconds."""
        asked = datetime.datetime.now(datetime.UTC)
        until = time.monotonic() + timeout
        self._send_command(now=True)
        while (left := until - time.monotonic()) > 0:
            for snapshot in self.wait(1, left):
                if snapshot.taken_at >= asked:
                    return snapshot
            if self.failure or self._library_crashes:
                return None
        return None

    def status(self) -> FeedStatus:
        now, last = time.monotonic(), self._last_arrival
        age = None if last is None else now - last
        if self._stopping.is_set():
            return FeedStatus("stopped", age)
        since = now - max(self._first_started_at if last is None else last, self._resumed_at)
        overdue = since - self._settings.interval
        origin = (self._source.recording, self._source.note)
        if self.failure:  # known without waiting
            overdue, reason, fault = max(overdue, 0.0), self.failure, _OWN_FAILURE
        elif overdue > _OVERDUE_SECONDS + self._slowest_sample_seconds:
            reason, fault = self.silence()
        elif last is None:
            return FeedStatus("starting", None, 0.0, self._replacements, self._detail, machine=self._host_only)
        else:
            return FeedStatus("ok", age, 0.0, self._replacements, self._detail, "", None, *origin)
        return FeedStatus("not-answering", age, overdue, self._replacements, reason, fault, self._host_only, *origin)

    @property
    def waited_for_cpu(self) -> float:
        """Seconds since its last sample in which the collector waited for a CPU, and could not query the driver."""
        return 0.0 if self._watch is None else self._watch.cpu_wait_seconds

    def silence(self) -> tuple[str, str]:
        """Why no samples come, as far as known; and what is wrong with the collector, empty if it is the driver."""
        fault, watch = self._current_fault(), self._watch
        waits = "" if fault or watch is None or self._source.recording else watch.pending_call_text()
        return waits or self._source.detail or self._detail, fault

    def _current_fault(self) -> str:
        """Fault of the collector itself; empty while it runs, so that the driver is at fault."""
        if self._source.collector_fault or self._source.recording:
            return self._source.collector_fault
        process, watch = self._process, self._watch
        if process is None:
            return self._last_collector_fault
        code = process.returncode
        if code is None and procfs.is_stopped(process.pid):
            return "was stopped"
        if code is not None:
            return self._last_collector_fault if self._library_crashes else ending_text(code)
        # Its successor has to start first; only then can it be waiting for the driver.
        is_starting = time.monotonic() - self._started_at < _START_SECONDS
        if is_starting and (self._last_collector_fault or self._call_hung_since_sample):
            return self._last_collector_fault
        return "" if watch is None else watch.collector_fault()

    def resumed(self) -> None:
        """Called after SIGCONT: the wait for the collector starts now."""
        self._resumed_at = time.monotonic()

    def stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        process = self._process
        if process is not None:
            end_process(process)
        for thread in self._threads:
            thread.join(timeout=1.0)
        if self._watch is not None:
            self._watch.close()

    def _send_command(self, **command: float) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError, ValueError):  # it is being replaced; its successor starts with the current settings
                process.stdin.write(msgspec.json.encode(command) + b"\n")
                process.stdin.flush()

    def _spawn(self) -> subprocess.Popen[bytes]:
        package_parent = str(Path(__file__).resolve().parents[3])
        settings, page = self._settings, None
        with suppress(OSError):
            page = CallPage()
        settings.left_out = self._suspect_calls.left_out
        settings.page = None if page is None else page.descriptor
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START_CODE, package_parent, msgspec.json.encode(settings).decode()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if not os.environ.get("GPUWATCH_DEBUG") else None,
                env=self._environment,
                pass_fds=() if page is None else (page.descriptor,),
            )
        except OSError as error:
            if page is not None:
                page.close()
            hint = PROCESS_LIMIT_HINT if error.errno == errno.EAGAIN else ""
            raise GpuwatchError(f"the collector cannot be started: {error.strerror or error}", hint=hint) from error
        self._watch = CollectorWatch(process.pid, page)
        return process

    def _supervise(self) -> None:
        """Reads collectors, one after another, until :meth:`stop`."""
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                process, reader = self._begin_reading()
            except (GpuwatchError, RuntimeError) as error:
                from gpuwatch.core.crash_files import describe_error

                self._note_failure("; ".join(filter(None, describe_error(error))))
                pause = _FAILED_PAUSE_SECONDS
                continue
            while reader.is_alive() and not self._stopping.is_set():
                # The reader ends when the process does; otherwise nothing happens before a snapshot is overdue.
                patience = self._patience()
                silent_since, now = self._silent_since(), time.monotonic()
                late = silent_since + (
                    _FIRST_SAMPLE_SECONDS if self._last_arrival is None else self._settings.interval + _OVERDUE_SECONDS
                )
                wake = max(max(silent_since, self._silence_reported_at) + patience, now) + 0.05
                if now >= late:
                    self._sample_host()
                    wake = min(wake, now + LATE_CHECK_SECONDS)
                else:
                    wake = min(wake, late)
                reader.join(timeout=wake - time.monotonic())
                if time.monotonic() - wake > _STOPPED_SECONDS:
                    self.resumed()
                silent_since = max(self._silent_since(), self._silence_reported_at)
                if self._must_replace(process, time.monotonic() - silent_since, patience):
                    break
            if self._stopping.is_set():
                return
            left_out = not reader.is_alive() and self._note_end(process)
            left_out = left_out or (reader.is_alive() and self._call_left_out)
            end_process(process)
            if self._watch is not None:
                self._watch.close()
            self._process = None
            self._begin_idle_times()
            self._replacements += 1
            self._vain_replacements += 1
            pause = _FAILED_PAUSE_SECONDS if self.failure else min(10.0, 0.5 * 2 ** min(self._replacements, 5))
            if left_out:
                pause = 0.0  # the next one does not make that call

    def _begin_reading(self) -> tuple[CollectorProcess, threading.Thread]:
        """A collector and the thread that reads it. GpuwatchError or RuntimeError if the system starts no more."""
        process = self._process
        if process is None:
            process = self._process = self._spawn()
            self._started_at = time.monotonic()
        reader = threading.Thread(target=self._read_snapshots, args=(process,), name="gpuwatch-reader", daemon=True)
        try:
            reader.start()
        except RuntimeError:
            end_process(process)
            if self._watch is not None:
                self._watch.close()
            self._process = None
            raise
        return process, reader

    def _note_failure(self, text: str) -> None:
        with self._arrived:
            self.failure = text
            self._arrived.notify_all()

    def _silent_since(self) -> float:
        return max(self._last_arrival or 0.0, self._started_at, self._resumed_at)

    def _must_replace(self, process: CollectorProcess, silent_seconds: float, patience: float) -> bool:
        """Whether a collector that has been silent for so many seconds is to be replaced; notes why."""
        watch = self._watch
        hung_call = None if watch is None else watch.find_hung_call()
        self._call_left_out = False
        if hung_call is None and silent_seconds - min(self.waited_for_cpu, _MAX_STARVED_SECONDS) <= patience:
            return False
        self._last_collector_fault = "was stopped" if procfs.is_stopped(process.pid) else ""
        cause = "the collector was stopped and" if self._last_collector_fault else "the collector did not answer and"
        if hung_call is not None:
            failure = f"did not return within {HANG_SECONDS:g} s"
            cause = f"{hung_call.name} {failure}; the collector"
            self._call_hung_since_sample = True
            self._call_left_out = self._suspect_calls.leave_out(hung_call.name, failure)
        elif watch is not None and watch.call is not None:
            self._suspect_calls.forget_latest()
        self._detail = f"{cause} was replaced"
        return True

    def _note_end(self, process: CollectorProcess) -> bool:
        """Notes how a collector ended; whether it was a call that the next one will not make."""
        code = wait_for_exit_code(process)
        self._last_collector_fault = _OWN_FAILURE if self.failure else ending_text(code)
        call = self._watch.call if self._watch is not None else None
        left_out = False
        if call is not None and code is not None and code < 0 and -code in CRASH_SIGNALS:
            self._last_collector_fault += f" in {call.name}, a function of the driver's library"
            name = signal.Signals(-code).name
            left_out = self._suspect_calls.leave_out(call.name, f"crashed the driver's library ({name})")
            if not left_out:
                with self._arrived:
                    self._library_crashes = True
                    self._arrived.notify_all()
        self._detail = f"the collector {self._last_collector_fault} and was replaced"
        return left_out

    def _sample_host(self) -> None:
        """Reads the host here, without the driver, while the driver blocks the collector."""
        from gpuwatch.machine.collector.host_snapshots import HostSnapshots  # most dashboards never need it

        if self._host_snapshots is None:
            try:
                self._host_snapshots = HostSnapshots()
            except GpuwatchError:  # without /proc; the collector reports that
                return
        self._host_only = self._host_snapshots.take()
        self._wake()

    def _patience(self) -> float:
        """Seconds without a snapshot after which the collector is replaced.

        A slow driver needs time, and a new collector asks it for more than the old one did: the time doubles with
        every collector that produced nothing.
        """
        doubled = _REPLACE_SECONDS * (1 << min(self._vain_replacements, _MAX_DOUBLINGS))
        return max(doubled, 5 * self._settings.interval, 3 * self._sample_seconds)

    def _note_duration(self, seconds: float) -> None:
        """Notes how long a sample took: a driver that answers slowly is not silent."""
        self._sample_seconds = seconds
        self._slowest_sample_seconds = max(seconds, _SLOWEST_SAMPLE_SHARE * self._slowest_sample_seconds)

    def _read_snapshots(self, process: CollectorProcess) -> None:
        decoder = FrameDecoder()
        ahead, self._frames_read_ahead = self._frames_read_ahead, ()
        for kind, frame in chain(ahead, read_frames(process)):
            if process is not self._process:
                return  # a replaced collector that answers after all
            if kind == FAILURE:
                self._note_failure(frame.decode())
            elif kind == SOURCE:
                before, self._source, self._silence_reported_at = (
                    self._source,
                    msgspec.msgpack.decode(frame, type=Source),
                    time.monotonic(),
                )
                if before.recording != self._source.recording:
                    self._begin_idle_times()
            elif kind == PREVIEW:
                continue  # it was drawn, if at all, before this reads
            else:
                self._take_snapshot(decoder.receive(kind, frame))
            self._wake()

    def _begin_idle_times(self) -> None:
        """Called when another begins to take the samples."""
        from gpuwatch.machine.collector.continued_idle_times import ContinuedIdleTimes  # most dashboards never need it

        if self._newest_snapshot is not None:
            self._idle_times = ContinuedIdleTimes(self._newest_snapshot)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        if self._idle_times is not None:
            snapshot = self._idle_times.continue_in(snapshot)
        self._newest_snapshot = snapshot
        self._suspect_calls.note_sample()
        if self._watch is not None:
            self._watch.note_delivery()
        self._vain_replacements, self._call_hung_since_sample = 0, False
        self._note_duration(snapshot.took_seconds)
        note_seen_devices(self._settings.seen, snapshot.devices)
        with self._arrived:  # who reads "ok" finds the sample, and who has the sample does not read "starting"
            self._snapshots.append(snapshot)
            self._last_arrival, self._host_only, self.failure, self._library_crashes = time.monotonic(), None, "", False
            self._arrived.notify_all()

"""The collector's process: samples at an interval and writes snapshots to stdout.

The format is described in :mod:`gpuwatch.machine.collector.protocol`. Commands come on stdin, one JSON object
per line (``{"interval": 1.0}``); the process exits at end of file, so it never outlives the program that started it.
"""

from __future__ import annotations

import ctypes
import datetime
import gc
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.protocol import FAILURE, PREVIEW, SOURCE, Command, Settings, Source, note_seen_devices
from gpuwatch.machine.history.sample_frames import FrameEncoder, encoded, framed
from gpuwatch.machine.sources import driver_call_tracking

if TYPE_CHECKING:
    from gpuwatch.machine.collector.recorder_follower import RecorderFollower

_PR_SET_PDEATHSIG = 1
_SAMPLES_UNTIL_FREEZE = 3
"""Samples until all objects that stay exist, which the garbage collector then need not scan again."""
_CLOCK_SET_BACK_SECONDS = 10.0
"""Seconds by which a sample is older than the one before it if the clock was set back in between."""
_SILENCE_REPEAT_SECONDS = 1.0
"""Seconds after which the parent is told again that the recorder works although its collector is late."""
_RECORDER_CHECK_SECONDS = 5.0
"""Seconds between searches for a recorder while this process samples itself."""


def _die_with_parent() -> None:
    """Have the kernel kill this process with its parent: a call that hangs would not notice that stdin was closed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _CollectorService:
    """Samples, here or by following a recorder, until stdin ends."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._encoder = FrameEncoder()
        self._commands = msgspec.json.Decoder(Command)
        self._stdin_poll = select.poll()
        self._stdin_poll.register(0, select.POLLIN)
        self._partial_line = b""
        self._due = 0.0
        """When the next sample is due, on the monotonic clock."""
        self._last_taken_at: datetime.datetime | None = None
        """When the last sample that was sent had been taken."""
        self._samples_until_freeze = _SAMPLES_UNTIL_FREEZE

    def run(self) -> None:
        recorder = self._find_recorder()
        while True:
            if recorder is None:
                recorder = self._sample_here()
                if recorder is None:
                    return
            try:
                if not self._follow_recorder(recorder):
                    return
            finally:
                recorder.close()
            recorder = self._find_recorder()

    def _sample_here(self) -> RecorderFollower | None:
        """Samples until there is a recorder to follow, which is returned; None when stdin ended."""
        from gpuwatch.machine.collector.collector import Collector  # if this fails, :func:`serve` reports it

        settings = self._settings
        collector = Collector(settings.on_demand, gpm=settings.gpm, seen=tuple(settings.seen.values()))
        self._due = time.monotonic()
        check_at = self._due + _RECORDER_CHECK_SECONDS
        try:
            # The devices of the first sample are sent before its processes, of which there may be hundreds.
            self._send_own(collector.sample(lambda devices: _write(framed(PREVIEW, encoded(devices)))))
            while True:
                if time.monotonic() >= check_at:  # also between two samples, which may be a minute apart
                    check_at = time.monotonic() + _RECORDER_CHECK_SECONDS
                    recorder = self._find_recorder()
                    if recorder is not None:
                        return recorder
                if not self._wait(check_at):
                    return None
                if time.monotonic() >= self._due:
                    collector.gpm = settings.gpm
                    self._send_own(collector.sample())
        finally:
            collector.close()

    def _send_own(self, snapshot: Snapshot) -> None:
        """Sends a sample that was taken here; the next one is due an interval later."""
        self._send(snapshot)
        self._due = max(self._due + self._settings.interval, time.monotonic())

    def _find_recorder(self) -> RecorderFollower | None:
        settings = self._settings
        if not settings.share:
            return None
        from gpuwatch.machine.collector.recorder_follower import find_recorder

        return find_recorder(settings.interval, gpm=settings.gpm, seen=settings.seen)

    def _follow_recorder(self, follower: RecorderFollower) -> bool:
        """Sends what a recorder records until there is a reason to sample here; False when stdin ended."""
        settings = self._settings
        snapshots = [follower.first] if follower.first is not None else []
        sent_source, sent_at, reason_to_stop = Source(), 0.0, ""
        while not reason_to_stop:
            source, now = follower.source, time.monotonic()
            if source != sent_source or (follower.is_late and now - sent_at >= _SILENCE_REPEAT_SECONDS):
                sent_source, sent_at = source, now
                _write(framed(SOURCE, encoded(source)))  # before its samples
            for snapshot in snapshots:
                if self._is_wanted(snapshot, follower.interval):
                    self._send(snapshot)
            self._due = follower.next_check()
            if not self._wait():
                return False
            is_alive = follower.recorder.is_alive  # asked first, so that the last sample is not missed
            snapshots, reason_to_stop = follower.new_samples()
            if not is_alive:
                reason_to_stop = f"{follower.name} ended"
            elif not settings.share:
                reason_to_stop = "own collector, as requested"
            elif not follower.recorder.entry.is_sufficient(settings.interval, gpm=settings.gpm):
                reason_to_stop = f"{follower.name} samples less often or less"
        for snapshot in snapshots:
            self._send(snapshot)
        _write(framed(SOURCE, encoded(Source(note=f"{reason_to_stop}: the dashboard queries the driver itself"))))
        return True

    def _is_wanted(self, snapshot: Snapshot, interval: float) -> bool:
        """Whether a sample of a recorder that samples more often is one of those that are wanted."""
        if self._last_taken_at is None:
            return True
        seconds_apart = (snapshot.taken_at - self._last_taken_at).total_seconds()
        # One that is a little older was taken beside one of our own; much older: the clock was set back.
        return not -_CLOCK_SET_BACK_SECONDS < seconds_apart < self._settings.interval - interval / 2

    def _send(self, snapshot: Snapshot) -> None:
        self._last_taken_at = snapshot.taken_at
        note_seen_devices(self._settings.seen, snapshot.devices)
        _write(self._encoder.frames(snapshot))
        if self._samples_until_freeze:
            self._samples_until_freeze -= 1
            if not self._samples_until_freeze:
                gc.freeze()

    def _wait(self, at_latest: float = float("inf")) -> bool:
        """Waits until :attr:`_due`, or ``at_latest`` if that is earlier, taking commands; False when stdin ended."""
        settings = self._settings
        while True:
            wait = min(self._due, at_latest) - time.monotonic()
            if wait <= 0:
                return True
            if not self._stdin_poll.poll(wait * 1000):
                return True
            chunk = os.read(0, 65536)
            if not chunk:
                return False
            *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
            for line in lines:
                command = self._commands.decode(line)
                if command.interval is not None:
                    self._due += command.interval - settings.interval
                    settings.interval = command.interval
                if command.gpm is not None:
                    settings.gpm = command.gpm
                if command.share is not None:
                    settings.share = command.share
                if command.now:
                    self._due = time.monotonic()


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def serve(settings: Settings) -> None:
    """Runs the process, whether it was spawned or forked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is the parent's to handle
    _die_with_parent()
    driver_call_tracking.start_tracking(settings.page, settings.left_out)
    gc.enable()  # a fork inherits it disabled from the dashboard's start
    try:
        _CollectorService(settings).run()
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001  # an error of gpuwatch itself: the parent shows it as such
        from gpuwatch.core.crash_files import describe_error

        with suppress(OSError):
            _write(framed(FAILURE, "; ".join(describe_error(error)).encode()))
        if os.environ.get("GPUWATCH_DEBUG"):
            sys.excepthook(*sys.exc_info())
        os._exit(1)


def main() -> None:
    """Entry point of the process; its argument: :class:`Settings` as JSON."""
    serve(msgspec.json.decode(sys.argv[1], type=Settings))


if __name__ == "__main__":
    main()

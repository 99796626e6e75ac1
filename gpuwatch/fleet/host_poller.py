"""Reads a source of hosts again and again in a thread of its own, so that a screen never waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuwatch.core.model.fleet import Fleet
from gpuwatch.fleet.host_summary import FleetSummary, summarize_fleet
from gpuwatch.machine.collector.feed_interface import Feed


class FleetSource:
    """Where hosts come from."""

    name: str

    def start(self, news: Callable[[], None]) -> None:
        """Called once before the first read; ``news`` may be called from any thread to be read at once."""

    def read(self) -> Fleet:
        """All hosts now; may block for seconds."""
        raise NotImplementedError

    def feed(self, host: str, interval: float) -> Feed:
        """The snapshots of one of the hosts, one every ``interval`` seconds; not started yet."""
        raise NotImplementedError

    def set_interval(self, interval: float) -> None:
        """Sets the seconds between two reads."""

    def stop(self) -> None:
        """Ends what was started."""


class FleetWatch:
    """The newest hosts of a source, summed up. ``interval`` is in seconds and may be set at any time."""

    def __init__(self, source: FleetSource, interval: float) -> None:
        self.source = source
        self._interval = interval
        self.summary: FleetSummary | None = None
        """The newest; None before the first."""
        self._wake: Callable[[], None] = lambda: None
        self._due = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        """The error of gpuwatch itself that ended the thread."""

    @property
    def interval(self) -> float:
        return self._interval

    @interval.setter
    def interval(self, seconds: float) -> None:
        self._interval = seconds
        self.source.set_interval(seconds)
        self._due.set()

    def start(self, wake: Callable[[], None]) -> None:
        """Starts reading; ``wake`` is called from the thread after each read."""
        self._wake = wake
        if self._thread is None:
            self.source.start(self.read_now)
            self._thread = threading.Thread(target=self._run, name="gpuwatch-fleet", daemon=True)
            self._thread.start()

    def read_now(self) -> None:
        """Reads at once instead of at the end of the interval."""
        self._due.set()

    def stop(self) -> None:
        """Ends the thread; one that waits for an answer is left to end by itself."""
        self._stopping = True
        self._due.set()
        if self._thread is not None:
            self._thread.join(timeout=0.5)
            self.source.stop()

    def _run(self) -> None:
        try:
            while not self._stopping:
                began = time.monotonic()
                self._due.clear()
                fleet = self.source.read()
                if self._stopping:
                    return
                self.summary = summarize_fleet(fleet, self.summary)
                self._wake()
                left = began + self._interval - time.monotonic()
                if left > 0:
                    self._due.wait(left)
        except BaseException as error:  # noqa: BLE001  # the screen raises it
            self.failure = error
            self._wake()

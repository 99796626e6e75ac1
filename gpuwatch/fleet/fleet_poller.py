"""Reads all hosts from their source at an interval, in a thread of its own, so that a screen never waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gpuwatch.fleet.fleet_source import FleetSource
from gpuwatch.fleet.host_summary import FleetSummary, summarize_fleet


class FleetPoller:
    """The newest hosts of a source, summed up. ``interval`` is in seconds and may be set at any time."""

    def __init__(self, source: FleetSource, interval: float) -> None:
        self.source = source
        self._interval = interval
        self.summary: FleetSummary | None = None
        """The newest; None before the first."""
        self._wake: Callable[[], None] = lambda: None
        self._read_due = threading.Event()
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
        self._read_due.set()

    def start(self, wake: Callable[[], None]) -> None:
        """Starts reading; ``wake`` is called from the thread after each read."""
        self._wake = wake
        if self._thread is None:
            self.source.start(self.read_now)
            self._thread = threading.Thread(target=self._run, name="gpuwatch-fleet", daemon=True)
            self._thread.start()

    def read_now(self) -> None:
        """Reads at once instead of at the end of the interval."""
        self._read_due.set()

    def stop(self) -> None:
        """Ends the thread; one that waits for an answer is left to end by itself."""
        self._stopping = True
        self._read_due.set()
        if self._thread is not None:
            self._thread.join(timeout=0.5)
            self.source.stop()

    def _run(self) -> None:
        try:
            while not self._stopping:
                began = time.monotonic()
                self._read_due.clear()
                fleet = self.source.read()
                if self._stopping:
                    return
                self.summary = summarize_fleet(fleet, self.summary)
                self._wake()
                seconds_left = began + self._interval - time.monotonic()
                if seconds_left > 0:
                    self._read_due.wait(seconds_left)
        except BaseException as error:  # noqa: BLE001  # the screen raises it
            self.failure = error
            self._wake()

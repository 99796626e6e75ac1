"""Reads a source of hosts again and again in a thread of its own, so that a screen never waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from gpuwatch.core.model.fleet import Fleet
from gpuwatch.fleet.host_summary import FleetSummary, Summaries


class FleetSource(Protocol):
    """Where hosts come from."""

    @property
    def name(self) -> str: ...

    def start(self, news: Callable[[], None]) -> None:
        """Called once before the first read; ``new_samples`` may be called from any thread to be read at once."""
        ...

    def read(self) -> Fleet:
        """All hosts now; may block for seconds."""
        ...

    def set_interval(self, interval: float) -> None:
        """The interval between two reads is now so many seconds."""
        ...

    def stop(self) -> None: ...


class FleetWatch:
    """The newest hosts of a source, summed up. ``interval`` is in seconds and may be set at any time."""

    def __init__(self, source: FleetSource, interval: float) -> None:
        self.source = source
        self._interval = interval
        self._summaries = Summaries()
        self._summary: FleetSummary | None = None
        self._wake: Callable[[], None] | None = None
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

    @property
    def summary(self) -> FleetSummary | None:
        """The newest; None before the first."""
        return self._summary

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
                self._summary = self._summaries.of(fleet)
                if self._wake is not None:
                    self._wake()
                left = began + self._interval - time.monotonic()
                if left > 0:
                    self._due.wait(left)
        except BaseException as error:  # noqa: BLE001  # the screen raises it
            self.failure = error
            if self._wake is not None:
                self._wake()

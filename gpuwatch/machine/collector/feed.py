"""A feed of snapshots as its consumers see it: its interface and its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.host_processes import HostProcesses

FeedState = Literal["starting", "ok", "not-answering", "stopped"]


class FeedStatus(msgspec.Struct, frozen=True):
    """The state of a feed at one moment."""

    state: FeedState
    age_seconds: float | None = None
    """Since the last snapshot arrived; None before the first."""
    waiting_seconds: float = 0.0
    """How long the next snapshot has been overdue; 0 if it is not."""
    replacements: int = 0
    """How often a collector that did not answer was replaced."""
    detail: str = ""
    collector_fault: str = ""
    """What is wrong with the collector itself (``was stopped``); empty if it is waiting for the driver."""
    machine: Snapshot | None = None
    """The host and its processes without devices, read while the driver blocks the newest collector."""
    recording: str = ""
    """The file of the recorder whose samples these are; empty: the driver is queried for this feed."""
    source_note: str = ""
    """The last change of that, for the user."""

    @property
    def log_line(self) -> str:
        """For a log, when the state changes: why there are no samples, or that they come again."""
        if self.state != "not-answering":
            return "gpuwatch: sampling again"
        fault = f"the collector {self.collector_fault}" if self.collector_fault else "the driver does not answer"
        return f"gpuwatch: no samples: {'; '.join(filter(None, (fault, self.detail)))}"


class Feed(Protocol):
    """A source of snapshots that never blocks its caller."""

    interval: float
    """Seconds between samples; may be set at any time."""

    @property
    def host(self) -> HostProcesses:
        """What can be asked of the host that the snapshots are of."""

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Starts the feed; ``wake`` is called from another thread whenever a snapshot has arrived."""

    def drain(self) -> list[Snapshot]:
        """All snapshots since the last call, oldest first."""

    def status(self) -> FeedStatus:
        """The feed's state; cheap enough for every key press."""

    def resumed(self) -> None:
        """Called after SIGCONT: do not count the stop as driver delay."""

    def stop(self) -> None:
        """Ends everything that the feed started, within about a second."""

"""Where snapshots come from, as the dashboard and the other consumers see it.

:class:`gpuwatch.monitor.collector.Collector` is the live feed; tests and replay have their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from gpuwatch.model.snapshot import Snapshot

FeedState = Literal["starting", "ok", "not-answering", "stopped"]


class FeedStatus(msgspec.Struct, frozen=True):
    """How the feed is doing right now."""

    state: FeedState
    age_seconds: float | None = None
    """Since the last snapshot arrived; None when none has yet."""
    waiting_seconds: float = 0.0
    """How long it has been overdue, 0 when it is not."""
    replaced: int = 0
    """How often a collector that did not answer was replaced."""
    detail: str = ""
    blame: str = ""
    """What is wrong with the collector itself (``was stopped``); empty while it is the driver that is waited for."""
    machine: Snapshot | None = None
    """The host and its processes, read without the driver while that keeps the newest collector waiting; no devices."""


class Feed(Protocol):
    """A source of snapshots that never blocks its caller."""

    interval: float
    """Seconds between samples; may be set at any time."""

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Begins; ``wake`` is called from another thread whenever a snapshot has arrived."""
        ...

    def drain(self) -> list[Snapshot]:
        """Every snapshot since the last call, oldest first."""
        ...

    def status(self) -> FeedStatus:
        """How it is doing; cheap enough for every key press."""
        ...

    def resumed(self) -> None:
        """This process stood still for a while and goes on: what is late now has not been waited for."""
        ...

    def stop(self) -> None:
        """Ends everything that was started, within about a second."""
        ...

"""What the collector's process and its parent send each other: settings and commands; frames.

Besides the frames of samples (:mod:`gpuwatch.machine.history.sample_frames`) there are some that are not part of their
sequence of deltas: what is known before the first sample, where samples come from, the error that ended the collector.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuwatch.core.model.snapshot import Device
from gpuwatch.machine.sources.device_source import SeenDevice
from gpuwatch.machine.sources.driver_call_tracking import LeftOut

DEFAULT_INTERVAL_SECONDS = 1.0
"""Seconds between samples where nobody asks for another interval: without settings, and before they are known."""


class Settings(msgspec.Struct):
    """What the parent wants of the collector's process, at its start."""

    interval: float
    """Seconds between samples."""
    on_demand: bool = False
    """Whether metrics are read whose calls are slow (:attr:`.metrics.Lane.ON_DEMAND`)."""
    gpm: bool = False
    share: bool = False
    """Whether the samples may come from a recorder."""
    seen: dict[str, SeenDevice] = {}
    """The devices of an earlier collector, by UUID."""
    page: int | None = None
    """The descriptor of the page that says which call into the driver is under way."""
    left_out: dict[str, LeftOut] = {}
    """Calls that took an earlier collector down."""


class Command(msgspec.Struct):
    """A command of the parent, one JSON object a line on stdin: what is set of it is changed."""

    interval: float | None = None
    now: bool = False
    """Take the next sample at once."""
    gpm: bool | None = None
    """Read GPM metrics, or stop reading them."""
    share: bool | None = None
    """Take the samples from a recorder on this machine if there is one, or stop that."""


def note_seen_devices(seen: dict[str, SeenDevice], devices: Iterable[Device]) -> None:
    """Adds the devices of a sample, but for those of which only the place is known."""
    for device in devices:
        known = seen.get(device.uuid)
        if device.is_placeholder:
            continue
        xids = device.xids or (known.xids if known is not None else ())
        if known is None or (known.index, known.state, known.xids) != (device.index, device.state, xids):
            facts = (device.name, device.pci_bus_id, device.compute_capability)
            seen[device.uuid] = SeenDevice(device.index, device.uuid, *facts, device.state, xids)


PREVIEW, SOURCE, FAILURE = b"P", b"R", b"F"
"""Kinds of frames. A preview is the first snapshot without details of processes. A source is a :class:`Source`. A
failure, the last frame, is text for the user: the error of gpuwatch itself that ended the collector."""


class Source(msgspec.Struct, frozen=True):
    """Where the samples come from; repeated while a recorder reports that its collector is late."""

    recording: str = ""
    """The file of the recorder that they come from; empty: from a collector of our own."""
    note: str = ""
    """The last change, for the user."""
    detail: str = ""
    collector_fault: str = ""
    """``collector_fault`` of the recorder's ``FeedStatus`` while its collector is late."""

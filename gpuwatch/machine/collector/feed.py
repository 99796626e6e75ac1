"""A feed of snapshots as its consumers see it: its interface, its state, and what can be asked of its host besides."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.sim.environment import ENV_STATE

if TYPE_CHECKING:
    from gpuwatch.machine.sources.process_details import ProcessDetails
    from gpuwatch.machine.sources.process_signals import SignalResult
    from gpuwatch.sim.simulated_machine import SimMachine

DeviceNumbers = tuple[tuple[int, str], ...]
"""CUDA's device numbers in a process, each with the UUID of the GPU."""


class ProcessAccess:
    """What can be asked of a host's processes besides snapshots: nothing, of another machine or a recording.

    Feeds of hosts that can be accessed return a subclass. Any method may block: do not call them from the UI thread.
    """

    def __init__(self, name: str, *, simulated: bool = False, unreachable: str | None = None) -> None:
        self.name = name
        """The host's name, by which front ends identify sessions."""
        self.simulated = simulated
        """Whether simulated GPUs were requested; known before their driver answers."""
        another = f"{name or 'its host'} is another host, known only by its snapshots"
        self.unreachable = another if unreachable is None else unreachable
        """Why processes can be neither inspected nor signaled; empty if they can."""

    def details(self, pid: int, create_time: float | None) -> ProcessDetails:
        """Details of the process ``pid`` that was started at ``create_time`` (seconds since the epoch)."""
        from gpuwatch.machine.sources.process_details import ProcessDetails

        return ProcessDetails(problem=self.unreachable)

    def device_numbers(self, pid: int) -> DeviceNumbers:
        """CUDA's device numbers in a process; empty if the driver does not report them."""
        return ()

    def signal(self, pid: int, create_time: float | None, number: int) -> SignalResult:
        """Sends a signal to the process that was started at ``create_time``."""
        from gpuwatch.machine.sources.process_signals import SignalResult

        return SignalResult("denied", self.unreachable)


class LocalProcessAccess(ProcessAccess):
    """This machine, through /proc. ``environment``: the collector's, if it differs from this process's own."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment
        super().__init__(os.uname().nodename, simulated=bool(self._environment.get(ENV_STATE)), unreachable="")

    def details(self, pid: int, create_time: float | None) -> ProcessDetails:
        from gpuwatch.machine.sources.process_details import read_process_details

        return read_process_details(pid, create_time)

    def device_numbers(self, pid: int) -> DeviceNumbers:
        """CUDA device numbers of a process; only the driver of simulated GPUs reports them."""
        try:
            return self._simulator.ordinals(pid) if self._simulator is not None else ()
        except (GpuwatchError, OSError):
            return ()  # the simulated machine has ended: fall back to the environment

    @cached_property
    def _simulator(self) -> SimMachine | None:
        from gpuwatch.sim.simulated_machine import SimMachine

        return SimMachine.from_environment(self._environment)

    def signal(self, pid: int, create_time: float | None, number: int) -> SignalResult:
        from gpuwatch.machine.sources.process_signals import send_signal

        return send_signal(pid, create_time, number)


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


class Feed(Protocol):
    """A source of snapshots that never blocks its caller."""

    interval: float
    """Seconds between samples; may be set at any time."""

    @property
    def host(self) -> ProcessAccess:
        """What can be asked of the host that the snapshots are of."""
        ...

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Starts the feed; ``wake`` is called from another thread whenever a snapshot has arrived."""
        ...

    def drain(self) -> list[Snapshot]:
        """All snapshots since the last call, oldest first."""
        ...

    def status(self) -> FeedStatus:
        """The feed's state; cheap enough for every key press."""
        ...

    def resumed(self) -> None:
        """Called after SIGCONT: do not count the stop as driver delay."""
        ...

    def stop(self) -> None:
        """Ends everything that the feed started, within about a second."""
        ...

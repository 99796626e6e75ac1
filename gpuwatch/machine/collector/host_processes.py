"""The processes of a feed's host, besides snapshots: their details, CUDA's device numbers in them, signals to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.sim.environment import ENV_STATE

if TYPE_CHECKING:
    from gpuwatch.machine.sources.process_details import ProcessDetails
    from gpuwatch.machine.sources.process_signals import SignalResult
    from gpuwatch.sim.simulated_machine import SimMachine

DeviceNumbers = tuple[tuple[int, str], ...]
"""CUDA's device numbers in a process, each with the UUID of the GPU."""


class HostProcesses:
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


class LocalProcesses(HostProcesses):
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

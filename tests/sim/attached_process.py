"""Processes on simulated GPUs of every kind that the simulated driver knows, with a given load."""

from __future__ import annotations

from gpuwatch.sim.simulated_machine import SimMachine

_KINDS = {"C": 1, "G": 2, "C+G": 3, "M": 4, "M+C": 5}
_VARYING = 2


def attach_process(
    machine: SimMachine,
    pid: int,
    device: int,
    memory_bytes: int,
    *,
    sm_percent: float = 0.0,
    memory_percent: float = 0.0,
    kind: str = "C",
    vary: bool = False,
) -> None:
    """As ``SimMachine.attach``: also graphics and MPS, time in which memory is moved, and load that varies."""
    code = machine._control.gws_attach(
        *(machine._open_handle(), pid, device, memory_bytes, sm_percent / 100, memory_percent / 100),
        *(_KINDS[kind], _VARYING if vary else 0, -1),
    )
    assert not code

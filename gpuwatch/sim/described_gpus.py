"""Simulated GPUs that answer as a real machine did: names, memory, and the answer to each NVML call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from gpuwatch.sim.mig_layout import SimInstance

MAX_NUMBERS: Final = 4
NOT_AVAILABLE: Final = -1
"""As a number of an answer: NVML_VALUE_NOT_AVAILABLE, in any width."""


@dataclass(frozen=True, slots=True)
class SimAnswer:
    """What one NVML function answers (gws_answer of state.h)."""

    function: str
    argument: int = 0
    """Tells calls of a function apart: the clock, sensor or field; of memory, the MIG instance plus 1."""
    code: int = 0
    """nvmlReturn_t."""
    numbers: tuple[int, ...] = ()
    """In NVML's units, in the order of the function's outputs."""
    text: str = ""
    until_used: bool = False
    """Whether the simulation takes over once a program uses the GPU."""


class SimCard(NamedTuple):
    """What a model's NVIDIA data sheet and nvidia-smi say of it."""

    capability: int
    """CUDA compute capability: 90 is 9.0."""
    multiprocessors: int
    power_limit_mw: int
    """Default and maximum."""
    sm_clock_mhz: int
    """Maximum."""
    memory_clock_mhz: int
    """Maximum."""


@dataclass(frozen=True, slots=True)
class DescribedGpu:
    """One GPU of a described machine."""

    name: str
    memory_bytes: int
    taken_bytes: int
    """What programs cannot have: the driver's reserve, and what others held when it was described."""
    answers: tuple[SimAnswer, ...]
    mig: tuple[SimInstance, ...] | None = None
    """None: MIG is off."""
    card: SimCard | None = None
    """None: that of plain simulated GPUs."""

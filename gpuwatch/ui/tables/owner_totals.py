"""Totals by user or job: memory by GPU, processes, CPU and host memory. Pure.

A sum with missing parts is shown as a lower bound (``≥``), never as the total.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuwatch.core.model.snapshot import Device, Process


@dataclass(slots=True)
class Sum:
    """Sum of the known readings, and whether any was missing."""

    known: float = 0.0
    count: int = 0
    missing: bool = False

    def add(self, value: float | None) -> None:
        """Adds one reading; None if it is missing."""
        if value is None:
            self.missing = True
        else:
            self.known += value
            self.count += 1

    @property
    def value(self) -> float | None:
        """The known part; None if nothing is known."""
        return self.known if self.count else None

    def shown(self, text: Callable[[float | None], str]) -> str:
        """As text, with ``≥`` if a part is missing."""
        return ("≥" if self.missing and self.count else "") + text(self.value)


@dataclass(slots=True)
class Total:
    """One user or job."""

    name: str | None
    """None: all processes whose owner or job cannot be read."""
    processes: int = 0
    memory: Sum = field(default_factory=Sum)
    by_gpu: dict[int, Sum] = field(default_factory=dict)
    """By NVML index, for the GPUs the user's processes are on."""
    cpu: Sum = field(default_factory=Sum)
    host_memory: Sum = field(default_factory=Sum)


def user_of(row: Process) -> str | None:
    """Its owner."""
    return row.user


NO_JOB = "(no job)"
"""Name of the total of processes without a job."""


def job_of(row: Process) -> str | None:
    """Its Slurm job, pod or container, or :data:`NO_JOB`; None for a process that cannot be seen from here."""
    return row.container or (NO_JOB if row.create_time is not None else None)


def totals(rows: Iterable[Process], of: Callable[[Process], str | None] = user_of) -> list[Total]:
    """Totals by user, or by another name; most GPU memory first. A process on two GPUs counts once."""
    found: dict[str | None, Total] = {}
    seen: set[tuple[int, float | None]] = set()
    for row in rows:
        total = found.setdefault(of(row), Total(of(row)))
        if row.device_index is not None:
            held = row.number("gpu_memory_bytes")
            total.memory.add(held)
            total.by_gpu.setdefault(row.device_index, Sum()).add(held)
        if (row.pid, row.create_time) in seen:
            continue
        seen.add((row.pid, row.create_time))
        total.processes += 1
        total.cpu.add(row.number("cpu_percent"))
        total.host_memory.add(row.number("host_memory_bytes"))
    return sorted(
        found.values(), key=lambda total: (-total.memory.known, -total.host_memory.known, total.name or "\uffff")
    )


def unexplained_total(parts: Sequence[tuple[Device, float]]) -> Total:
    """Memory that no process owns, by GPU, as a separate line."""
    total = Total("")
    for device, amount in parts:
        total.memory.add(amount)
        total.by_gpu.setdefault(device.index, Sum()).add(amount)
    return total

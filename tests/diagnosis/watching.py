"""Machines second by second, for conditions: a device, its processes, and what changes about them."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, Driver, Host, Problem, Process, Snapshot
from gpuwatch.explain.diagnosis.condition_engine import ConditionEngine

GIB = 1 << 30
BEGIN = datetime.datetime(2026, 11, 20, 10, 0, tzinfo=datetime.UTC)
HEALTHY_LINK = {"pcie.generation": 4, "pcie.width": 16, "pcie.max_generation": 4, "pcie.max_width": 16}

Second = Callable[[int], dict[str, Any]]


def gpu(index: int = 0, *, busy: float | None = 0.0, used: float = 1.0, **changes: Any) -> Device:
    """A card of 24 GiB; ``used`` in GiB."""
    readings: dict[str, Any] = {
        "memory.total_bytes": 24 * GIB,
        "memory.used_bytes": int(used * GIB),
        "memory.unexplained_bytes": 0,
        "temperature.gpu_celsius": 60,
        "power.draw_watts": 200.0,
        "power.limit_watts": 350.0,
        "power.default_limit_watts": 350.0,
        "clocks.sm_mhz": 1900,
        "clocks.sm_max_mhz": 2000,
        "clocks.event_reasons": "none",
        "ecc.uncorrected": 0,
        **HEALTHY_LINK,
        **changes.pop("readings", {}),
    }
    if busy is not None:
        readings["utilization.gpu_percent"] = busy
    facts: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "Card",
        "pci_bus_id": f"0000:{index + 1:02x}:00.0",
        **changes,
    }
    return Device(readings=readings, missing={}, **facts)


def program(
    pid: int = 7,
    *,
    held: float = 20.0,
    age: float | None = 4000.0,
    sm: float | None = None,
    cpu: float | None = 5.0,
    gpu: int | None = 0,
    framework: str | None = "tensorflow 2.21.0",
    **changes: Any,
) -> Process:
    """``held`` in GiB; ``age``: for how many seconds it had run at :data:`BEGIN`; ``sm`` None: the driver had no
    sample of it."""
    readings: dict[str, Any] = {"gpu_memory_bytes": int(held * GIB)} if gpu is not None else {}
    missing = {}
    for name, value in (("cpu_percent", cpu), ("sm_percent", sm)):
        if value is not None:
            readings[name] = value
        else:
            missing[name] = Missing("no_sample")
    facts: dict[str, Any] = {
        "create_time": None if age is None else BEGIN.timestamp() - age,
        "user": "alice",
        "command": "python train.py",
        "name": "python",
        "type": "C" if gpu is not None else "H",
        **changes,
    }
    return Process(
        pid=pid,
        device_uuid=None if gpu is None else f"GPU-{gpu}",
        device_index=gpu,
        framework=framework,
        readings=readings,
        missing=missing,
        **facts,
    )


def sample(
    at: float,
    devices: Iterable[Device],
    processes: Iterable[Process] = (),
    *,
    bystanders: Iterable[Process] = (),
    container: str | None = None,
    problems: tuple[Problem, ...] = (),
) -> Snapshot:
    """``at`` seconds after the beginning."""
    listed = tuple(devices)
    return Snapshot(
        taken_at=BEGIN + datetime.timedelta(seconds=at),
        took_seconds=0.01,
        simulated=False,
        driver=Driver(version="580.1", cuda_version="13.0", nvml_version="13") if not problems else None,
        devices=listed,
        processes=tuple(processes),
        host=Host(
            hostname="h",
            cpu_percent=0.0,
            cpu_count=8,
            memory_used_bytes=1,
            memory_total_bytes=2,
            container=container,
        ),
        problems=problems,
        bystanders=tuple(bystanders),
    )


def seconds(count: int, make: Callable[[int], Snapshot], *, start: int = 0, step: int = 1) -> Iterator[Snapshot]:
    """``make`` of every ``step``-th second."""
    return (make(second) for second in range(start, start + count, step))


def watched(snapshots: Iterable[Snapshot], watch: ConditionEngine | None = None) -> ConditionEngine:
    """After all of them."""
    watch = watch or ConditionEngine()
    for snapshot in snapshots:
        watch.observe(snapshot)
    return watch


def of(findings: Iterable[Finding], cause: str) -> list[Finding]:
    """Those of one cause."""
    return [finding for finding in findings if finding.id == cause]


def ids(watch: ConditionEngine) -> list[str]:
    """What is told now."""
    return [finding.id for finding in watch.findings]


def history(snapshots: Iterable[Snapshot], cause: str) -> list[bool]:
    """Whether ``cause`` was told, snapshot by snapshot."""
    watch, found = ConditionEngine(), []
    for snapshot in snapshots:
        watch.observe(snapshot)
        found.append(bool(of(watch.findings, cause)))
    return found

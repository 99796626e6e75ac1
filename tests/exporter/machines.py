"""Machines that no simulator has: made by hand."""

from __future__ import annotations

import datetime
from typing import Any

from msgspec.structs import replace

from gpuwatch.core.model.metrics import METRICS, Lane, Unit
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import Device, Driver, Host, MigInstance, Process, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.share.exporter.metric_series import ExporterOptions, SampleLines, ScrapeContent, series_lines
from gpuwatch.share.openmetrics_text import Family

GIB = 1 << 30
AT = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
HOST = Host(
    hostname="node7",
    cpu_percent=25.0,
    cpu_count=64,
    memory_used_bytes=100 * GIB,
    memory_total_bytes=512 * GIB,
    load=(1.5, 1.0, 0.5),
)
OPTIONS = ExporterOptions("node7", 5.0)


def every_reading() -> dict[str, Value]:
    """A value for every metric but those that are read on demand and by GPM."""
    readings: dict[str, Value] = {}
    for number, spec in enumerate(METRICS):
        if spec.lane in (Lane.ON_DEMAND, Lane.GPM):
            continue
        if spec.names:
            readings[spec.id] = next(iter(spec.names.values()))
        else:
            readings[spec.id] = f"name {number}" if spec.unit is Unit.NAME else number + 1
    readings |= {
        "memory.total_bytes": 80 * GIB,
        "memory.used_bytes": 20 * GIB,
        "memory.free_bytes": 59 * GIB,
        "utilization.gpu_percent": 87,
        "clocks.sm_mhz": 1680,
        "clocks.event_reasons": "sw-power-cap+sw-thermal",
        "performance.state": "P2",
        "mig.mode": "disabled",
    }
    return readings


def device(index: int = 0, **changes: Any) -> Device:
    """A GPU of which everything is known."""
    one = Device(
        index=index,
        uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"0000:{index:02x}:00.0",
        compute_capability="9.0",
        readings=every_reading(),
        missing={},
    )
    return replace(one, **changes)


def mig_device(index: int = 0) -> Device:
    """A GPU that MIG divides in two."""
    divided = every_reading() | {"mig.mode": "enabled"}
    instances = tuple(
        MigInstance(
            id=f"{number}/0",
            index=number,
            uuid=f"MIG-{number}",
            gpu_instance=number,
            compute_instance=0,
            profile="3g.40gb",
            readings={"memory.total_bytes": 40 * GIB, "memory.used_bytes": GIB, "memory.free_bytes": 39 * GIB},
        )
        for number in (1, 2)
    )
    return device(index, readings=divided, mig_instances=instances)


def process(pid: int, gpu: Device, gib: float | None = 1.0, **changes: Any) -> Process:
    """A process on a GPU."""
    readings: dict[str, Value] = {"sm_percent": 40, "cpu_percent": 150.0, "host_memory_bytes": GIB}
    if gib is not None:
        readings["gpu_memory_bytes"] = int(gib * GIB)
    one = Process(
        pid=pid,
        create_time=1000.0 + pid,
        user="alice",
        command=f"python train.py --token=hf_{'abcdefghijklmnopqrstuvwxyzABCDEFGH'}",
        name="python",
        type="C",
        device_uuid=gpu.uuid,
        device_index=gpu.index,
        framework="torch 2.11.0",
        readings=readings,
        missing={} if gib is not None else {"gpu_memory_bytes": Missing("unknown")},
    )
    return replace(one, **changes)


def snapshot(*devices: Device, processes: tuple[Process, ...] = (), **changes: Any) -> Snapshot:
    """A sample of these GPUs."""
    one = Snapshot(
        taken_at=AT,
        took_seconds=0.004,
        simulated=False,
        driver=Driver(version="580.95", cuda_version="13.0", nvml_version="13.580.95"),
        devices=devices,
        processes=processes,
        host=HOST,
    )
    return replace(one, **changes)


def large() -> Snapshot:
    """64 GPUs and 5,000 processes of 40 users."""
    devices = [device(index, xids=(Xid(1.0, 79),)) for index in range(64)]
    rows = [process(1000 + n, devices[n % 64], 0.2 + n / 5000, user=f"user{n % 40}") for n in range(5000)]
    return snapshot(*devices, processes=tuple(rows))


def found(content: ScrapeContent | Snapshot, options: ExporterOptions = OPTIONS, **changes: Any) -> dict[str, str]:
    """Value by name and labels of each sample."""
    if isinstance(content, Snapshot):
        content = ScrapeContent(content, driver_answers=True)
    lines = series_lines(content._replace(**changes), options)
    return {key: number for line in texts(lines) for key, _, number in [line.rstrip("\n").rpartition(" ")]}


def texts(lines: SampleLines) -> list[str]:
    """All lines of samples."""
    listed: list[str] = []
    for one in lines.lines.values():
        listed += one
    return listed


def names_of(samples: dict[str, str]) -> set[str]:
    """The names of samples."""
    return {key.partition("{")[0] for key in samples}


def one(samples: dict[str, str], family: Family | str, **labels: str) -> float | None:
    """The value of the only sample with these labels; None if there is none."""
    name = family if isinstance(family, str) else family.sample_name
    hits = [
        float(number)
        for key, number in samples.items()
        if key.partition("{")[0] == name and all(f'{label}="{text}"' in key for label, text in labels.items())
    ]
    assert len(hits) <= 1, hits
    return hits[0] if hits else None
